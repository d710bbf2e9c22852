"""Stands here so that every test can import `building`.

Generated examples judge values, not speed: a busy machine fails no test.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("steady")
