"""Records any command, in any language, as a run.

    flightlog run -- ./model --steps 100
    flightlog run --project climate --tag member=3 -- python simulate.py

The run holds the command as one task with its exit code or signal, its CPU time and peak memory, samples of
its whole process tree and of the machine, and the last 8 KB of output that goes to a file or a pipe. Output
that goes to a terminal is not kept: the event `command_output` then holds null, and a note that says so. To
see it and keep it, add `2>&1 | cat`. Python code inside the command that uses `flightlog.span` or
`flightlog.record` records into the same run.

**Nothing changes for the command.** It has standard input itself, and a terminal itself: pagers read their
keys, editors draw, shells control their jobs, Ctrl-C and Ctrl-Z reach it, as without Flightlog. Other
output goes where it would have gone, byte for byte and at once; with `2>&1` the order of both streams is
kept; when the reader goes away (`| head`) the command gets its SIGPIPE. Signals sent to Flightlog are
passed on: SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, and SIGINT and SIGQUIT unless a terminal, which sends them
to the command itself, has Flightlog in its foreground. Flightlog prints nothing unless standard error is a
terminal or something could not be recorded, and then only after the command has ended. What a command may
notice all the same: output to a file is a pipe to it, two variables are in its environment, and where it
stops itself and nobody else (`suspend` in a shell) Flightlog goes on waiting for it.

**Its exit code is the exit code**: 128 and the signal's number if a signal ended it, 127 if it is not
found, 126 if it cannot be executed. The status of the run is `completed` for exit code 0, `interrupted` if
SIGTERM or SIGHUP was passed on to it or if it did not end well after Ctrl-C, and `failed` otherwise.

Processes that the command leaves behind do not keep it from ending. Their later output still arrives, passed
on by a `cat` that lives as long as they do; it is no longer part of the run.

**The memory of GPUs and of other devices**, as PyTorch, JAX or TensorFlow count it, is recorded with
`--device-memory`, in every Python process of the command that uses one of them, its ranks included:

    flightlog run --device-memory -- torchrun --nproc-per-node 4 train.py

The program needs no change, but its Python needs Flightlog installed. Two more variables are in its
environment then: `FLIGHTLOG_DEVICE_MEMORY`, and `PYTHONPATH` with a folder of Flightlog's in front, from
where Python runs a few lines at its start; `python -I` and `python -E` pass them by. Launchers and data
loaders' workers are left out. Of programs in other languages only the driver's figures are known: the device
as a whole, in the samples of the machine.

**In a Slurm job** the run also records the job: its id, partition, account, nodes, CPUs, memory and time
limit. The elements of an array (`sbatch --array`) are one run with one task per element, if all of them see
the folder of runs: the first creates it, the last one closes it. `flightlog adopt --slurm JOBID` adds what
Slurm's accounting knows afterwards: why a job was ended from outside, and what it used.

**What it costs** is recorded with `--rates FILE`, as `flightlog report --rates` takes it: the command's
time counts as a worker's, with the CPUs and the memory of its job, or else of the machine.

With `FLIGHTLOG_TELEMETRY=0` the command is executed in Flightlog's place and nothing is recorded. The two
variables are `FLIGHTLOG_RUN` and `TRACEPARENT`, which let code inside find the run.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from flightlog.cli.options import RatesFile, RunsDir, option, rates_in, recording_folder
from flightlog.cli.output import is_terminal, note
from flightlog.core.errors import UsageError

CONTEXT_SETTINGS = {"allow_interspersed_args": False}
"""Options after the command's name are the command's own, with `--` or without."""


class _Wrapper(TyperCommand):
    """A command whose arguments are another command: one thing to type, not a list of strings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As usual, and `--device-memory` may stand alone."""
        return list(super().parse_args(ctx, _with_framework(args)))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer's signature
        """What follows the command's name in the usage line."""
        return ["[OPTIONS]", "--", "COMMAND", "[ARGUMENTS]..."]


COMMAND_CLASS = _Wrapper

_DEVICE_MEMORY = "--device-memory"


def _with_framework(args: Sequence[str]) -> list[str]:
    """The words with `--device-memory=auto` for `--device-memory` alone, where it is an option of ours."""
    words = list(args)
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        if words[at] == _DEVICE_MEMORY:
            words[at] = f"{_DEVICE_MEMORY}=auto"
        takes_next = "=" not in words[at] and words[at] not in {"-h", "--help"}
        at += 2 if takes_next else 1
    return words


def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", hidden=True)],
    project: str | None = option("P", "Name of the project. Default: the name of the command"),
    runs_dir: RunsDir = None,
    tag: list[str] | None = option("K=V", "Tag the run. May be given several times."),
    sample_interval: float = option(
        "S", "Seconds between two samples of CPU, memory, disk and GPU.", min=0.1, default=1.0
    ),
    rates: RatesFile = None,
    device_memory: str | None = option(
        "[=FRAMEWORK]",
        "Record GPU memory as torch, jax or tensorflow counts it. Without a value: whichever "
        "the program uses.",
    ),
) -> None:
    """Record any command, in any language.

    COMMAND runs with its ARGUMENTS as it does without recording: same input, same output, same exit code.

    Example: flightlog run --project climate -- ./model --steps 100
    """
    tags = dict(_tag(text) for text in tag or ())
    if device_memory is not None:
        _track(device_memory)
    charged = rates_in(rates, target="local", provider=None)
    from flightlog.record.command.run_command import run_command

    with _kept_warnings() as kept:
        result = run_command(
            command,
            project=project,
            runs_dir=recording_folder(runs_dir),
            tags=tags,
            sample_interval_s=sample_interval,
            rates=charged,
        )
    if result.message is not None:
        note(result.message)
    for message in kept:
        note(message)
    if result.run_id is not None and is_terminal(sys.stderr):
        note(f"recorded as {result.run_id}")
    raise typer.Exit(result.code)


def _track(framework: str) -> None:
    """Make the command's processes track; Flightlog's own environment is what they get."""
    from flightlog.record.device.tracking import tracking_environment
    from flightlog.samplers.frameworks import NAMES

    if framework not in NAMES:
        raise UsageError(
            f"{framework!r} is no framework whose memory can be tracked. Use one of {', '.join(NAMES)}, "
            "or --device-memory alone for whichever the command uses."
        )
    os.environ.update(tracking_environment(framework, os.environ))


def _tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"tag {text!r} is not of the form KEY=VALUE")
    return key, value


class _KeptWarnings(logging.Handler):
    """Warnings, kept until the command has ended."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.messages.append(record.getMessage())


@contextmanager
def _kept_warnings() -> Iterator[list[str]]:
    """Keep warnings meanwhile: one in the middle of the command's output would be part of it."""
    log = logging.getLogger("flightlog")
    kept, told = _KeptWarnings(), log.propagate
    log.addHandler(kept)
    log.propagate = False
    try:
        yield kept.messages
    finally:
        log.propagate = told
        log.removeHandler(kept)
