"""Tracking in the processes of a run that nobody wrote it into: by environment, and inside `flightlog
run`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from flightlog.samplers.frameworks.allocator import Allocator
from flightlog.samplers.frameworks.finding import AUTO, find_allocator

_LAUNCHERS = frozenset(
    {
        "torchrun",
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate",
        "accelerate.commands.launch",
        "deepspeed",
        "deepspeed.launcher.runner",
        "deepspeed.launcher.launch",
    }
)
_TAKE_NEXT = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SITECUSTOMIZE = Path(__file__).parent / "sitecustomize"
"""Put first on `PYTHONPATH` of a command: Python imports the `sitecustomize` in it by itself."""


def tracking_environment(framework: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make the Python processes of a command track their device memory, by name."""
    path = [str(_SITECUSTOMIZE), *filter(None, [environ.get("PYTHONPATH")])]
    return {"FLIGHTLOG_DEVICE_MEMORY": framework or AUTO, "PYTHONPATH": os.pathsep.join(path)}


def find_in_workers(wanted: str) -> Allocator | None:
    """As `find_allocator`, and none in processes that only serve others: their memory is nobody's
    question.
    """
    return None if is_helper() else find_allocator(wanted)


def is_helper(argv: Sequence[str] | None = None) -> bool:
    """Whether this process is a launcher of ranks, or a daemonic child as data loaders have them."""
    words = sys.orig_argv if argv is None else argv
    if "RANK" not in os.environ and _program(words) in _LAUNCHERS:
        return True
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(process.current_process().daemon)


def _program(words: Sequence[str]) -> str | None:
    """The module or the script's name that Python was started with; its arguments are its own."""
    rest = iter(words[1:])
    for word in rest:
        if word in _TAKE_NEXT:
            next(rest, None)
        elif not word.startswith("-"):
            return os.path.basename(word)  # noqa: PTH119 - a word, and no path to look at
        elif not word.startswith("--"):
            if word.endswith("m"):
                return next(rest, None)
            if word == "-" or word.endswith("c"):
                return None
    return None
