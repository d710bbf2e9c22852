"""What components should have: a component serves all its tasks, so it needs what the most demanding one
does.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from flightlog.analyze.advice.resources import Recommendation, is_same
from flightlog.analyze.advice.sizes import memory_text


class Wanted(Struct, frozen=True, kw_only=True):
    """An amount that a component should have of one resource."""

    amount: float
    """CPUs or bytes."""
    text: str
    """As a manifest takes it."""
    task: str
    """The task that decides."""
    now: float | None
    """What that task had last; None where nothing was asked for."""
    whole: bool
    """Whether every task on the component is known well enough; otherwise one of the others may need more."""

    @property
    def is_news(self) -> bool:
        """Whether to change anything. Where not all is known, nothing is lowered."""
        if self.now is not None and is_same(self.now, self.amount):
            return False
        return self.whole or (self.now is not None and self.amount > self.now)


class ComponentNeeds(Struct, frozen=True, kw_only=True):
    """What the tasks on one component need."""

    cpus: Wanted | None
    memory: Wanted | None
    attempts: int
    runs: int


def component_needs(found: Sequence[Recommendation]) -> dict[str, ComponentNeeds]:
    """By component, in the order of the recommendations; tasks without a component are in none."""
    by_component: dict[str, list[Recommendation]] = {}
    for one in found:
        if one.component is not None:
            by_component.setdefault(one.component, []).append(one)
    return {
        name: ComponentNeeds(
            cpus=_wanted([(one.recommended.cpus, one.current.cpus, one) for one in tasks], memory=False),
            memory=_wanted(
                [(one.recommended.memory_bytes, one.current.memory_bytes, one) for one in tasks], memory=True
            ),
            attempts=sum(one.attempts for one in tasks),
            runs=max(one.runs for one in tasks),
        )
        for name, tasks in by_component.items()
    }


def component_settings(found: Sequence[Recommendation]) -> dict[str, Wanted]:
    """What to set, by path in the manifest; what is right as it is, or may not be lowered, is left out."""
    return {
        f"components.{name}.{key}": wanted
        for name, needs in component_needs(found).items()
        for key, wanted in (("cpus", needs.cpus), ("memory", needs.memory))
        if wanted is not None and wanted.is_news
    }


def _wanted(
    tasks: Sequence[tuple[float | None, float | None, Recommendation]], *, memory: bool
) -> Wanted | None:
    known = [(amount, now, one) for amount, now, one in tasks if amount is not None]
    if not known:
        return None
    amount, now, decides = max(known, key=lambda each: each[0])
    return Wanted(
        amount=amount,
        text=memory_text(int(amount)) if memory else f"{amount:g}",
        task=decides.task,
        now=now,
        whole=len(known) == len(tasks),
    )
