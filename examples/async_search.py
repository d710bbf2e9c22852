"""Search for a good scenario from a coroutine: a fixed number of tasks in flight, the next ones chosen from
what has come back, until one is good enough.

Beside a `flightlog.yaml`, or as it is: without one, a manifest of two local workers is written to a temporary
folder. Then `flightlog report`.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

from flightlog import Session

MANIFEST = """\
version: 1
project: {name: search}
targets:
  local: {provider: local, max_workers: 2}
"""


def simulate(x: float) -> float:
    """How good a scenario is: at most 1, at x = 3."""
    return 1.0 / (1.0 + (x - 3.0) ** 2)


async def search(session: Session, in_flight: int, good_enough: float, at_most: int) -> tuple[float, float]:
    """The best scenario and how good it is."""
    draw = random.Random(1)
    best = (0.0, 0.0)
    scenarios = {session.client.submit(simulate, x): x for x in range(in_flight)}
    submitted = in_flight
    while scenarios and best[1] < good_enough:
        done, _ = await asyncio.wait(scenarios, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            best = max(best, (scenarios.pop(future), await future), key=lambda one: one[1])
            if submitted < at_most:
                x = draw.gauss(best[0], 1.0)
                scenarios[session.client.submit(simulate, x)] = x
                submitted += 1
    return best


async def main() -> None:
    """Search, and say what was found."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path("flightlog.yaml")
        if not manifest.exists():
            manifest = Path(folder, "flightlog.yaml")
            manifest.write_text(MANIFEST)
        async with Session(manifest) as session:
            x, good = await search(session, in_flight=8, good_enough=0.99, at_most=500)
            print(f"x = {x:.1f} is {good:.0%} good")  # noqa: T201 - a program


if __name__ == "__main__":
    asyncio.run(main())
