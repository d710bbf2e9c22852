"""What tasks ask Ray for."""

from __future__ import annotations

from flightlog.engines.contract import Resources
from flightlog.engines.ray.engine import RayOptionsOf

OPTIONS = RayOptionsOf(
    {"num_cpus": 2.0, "num_gpus": 0.0},
    {"large": Resources(cpus=8.0, memory_bytes=1 << 30), "gpu": Resources(gpus=0.5)},
)


def test_a_component_asks_for_what_it_says_and_for_the_rest_as_all_do():
    assert OPTIONS.of(None) == OPTIONS.of("other") == {"num_cpus": 2.0, "num_gpus": 0.0, "max_retries": 0}
    assert OPTIONS.of("large") == {"num_cpus": 8.0, "num_gpus": 0.0, "memory": 1 << 30, "max_retries": 0}
    assert OPTIONS.of("gpu") == {"num_cpus": 2.0, "num_gpus": 0.5, "max_retries": 0}


def test_what_no_node_has_is_named():
    small, large = {"CPU": 4.0, "memory": 2.0**31}, {"CPU": 16.0, "memory": 2.0**31}
    assert OPTIONS.unmet("large", [small]) == "8 CPUs, 1.0 GiB of memory"
    assert OPTIONS.unmet("large", [small, large]) is None
    assert OPTIONS.unmet(None, [small]) is None
    assert OPTIONS.unmet("gpu", [small, large]) == "2 CPUs, 0.5 GPUs"
    assert OPTIONS.unmet("large", []) is None
