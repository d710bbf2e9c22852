"""Out of memory on a device, from the bundles in the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flightlog.analyze.findings.base import Facts, Finding

_TIMES = {1: "once", 2: "twice"}


def device_memory(facts: Facts) -> Iterable[Finding]:
    """That a device ran out of memory, how often, and in what; what it cost is not known."""
    bundles = facts.out_of_memory
    if not bundles:
        return
    phases = [name for name, _ in Counter(one.phase for one in bundles if one.phase).most_common()]
    within = f", in {', '.join(f'`{name}`' for name in phases[:3])}" if phases else ""
    times = _TIMES.get(len(bundles), f"{len(bundles)} times or more")
    yield Finding(
        kind="device_memory",
        seconds=None,
        share=None,
        sentence=(
            f"Ran out of device memory {times}{within}: `flightlog devices {facts.summary.run.run_id}` "
            "explains it."
        ),
        evidence={"bundles": [one.folder for one in bundles], "phases": phases},
        where=phases[:3],
    )
