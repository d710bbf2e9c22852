"""Generated examples judge values, not speed: a busy machine fails no test."""

from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("steady")
