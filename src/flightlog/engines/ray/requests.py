"""What tasks ask Ray for: by their component, or as all do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flightlog.core.units import format_bytes
from flightlog.engines.contract import Resources

_NAMES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
"""Ray's names of resources, by those of a task's options."""


class RayOptionsOf:
    """The options of Ray tasks: what is the same for all, and what the components of a manifest ask for."""

    def __init__(self, common: Mapping[str, Any], components: Mapping[str, Resources]) -> None:
        self._common = {"num_cpus": 1, **common, "max_retries": 0}
        self._asked = {name: _asked(resources) for name, resources in components.items()}

    def of(self, component: str | None) -> dict[str, Any]:
        """The options of a task of this component; None is one that has none."""
        return {**self._common, **self._asked.get(component or "", {})}

    def unmet(self, component: str | None, nodes: Iterable[Mapping[str, float]]) -> str | None:
        """What no node has of what such a task asks for, in words; None if one could run it.

        `nodes` are the resources of each, by Ray's names. Without any node nothing is known.
        """
        asked = {_NAMES[key]: value for key, value in self.of(component).items() if key in _NAMES and value}
        there = list(nodes)
        if not there or any(
            all(node.get(name, 0) >= value for name, value in asked.items()) for node in there
        ):
            return None
        return ", ".join(_in_words(name, value) for name, value in asked.items())


def _in_words(name: str, value: float) -> str:
    if name == "memory":
        return f"{format_bytes(value)} of memory"
    return f"{value:g} {name}{'' if value == 1 else 's'}"


def _asked(resources: Resources) -> dict[str, Any]:
    given = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "memory": resources.memory_bytes}
    return {key: value for key, value in given.items() if value is not None}
