"""What `import flightlog` and `flightlog --version` cost, beside what they cannot do without."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from bench.timing import interleaved

HEAVY = ("duckdb", "plotly", "rich", "numpy", "pandas", "typer", "asyncio")
ROUNDS = 15


def seconds_of(command: list[str]) -> Callable[[], float]:
    """A case that runs a command, with compiled bytecode allowed as it is for users."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def measure() -> float:
        start = perf_counter()
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
        return perf_counter() - start

    measure()
    return measure


def starting() -> dict[str, float]:
    """Seconds of each start, the interpreter's own included."""
    return interleaved(
        {
            "python": seconds_of([sys.executable, "-c", "pass"]),
            "import msgspec, psutil": seconds_of([sys.executable, "-c", "import msgspec, psutil"]),
            "import flightlog": seconds_of([sys.executable, "-c", "import msgspec, psutil, flightlog"]),
            "flightlog --version": seconds_of(
                [str(Path(sys.executable).with_name("flightlog")), "--version"]
            ),
        },
        ROUNDS,
    )


def heavy_modules() -> list[str]:
    """Heavy modules that `import flightlog` pulls in; there should be none."""
    code = f"import sys, flightlog; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.split()
