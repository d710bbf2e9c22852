"""Explains why a run, or tasks in it, failed: root causes first, each with its evidence, what to do and how
to check it.

    flightlog diagnose                                            # the run that started last
    flightlog diagnose run-20260520T035200Z-demo-a1b2c3d4
    flightlog diagnose latest --format json
    flightlog diagnose --text slurm-1234.out                      # a log or a traceback alone
    python train.py 2>&1 | flightlog diagnose --text -

Any run can be diagnosed: one that failed, crashed or was killed, one that is running, damaged or half-copied,
and one that completed although tasks failed. Failures with one cause are grouped, and consequences are listed
under their cause: tasks that were lost with a worker, a host or a job, tasks that depend on one that failed,
and what ended when a disk was full or a job's time was up.

Every cause has a class and a confidence from 0 to 1: how likely the class is right. What kernel, cgroup,
batch system, exit code, signal, exception type and memory use show counts more than the text of messages.
Each line of evidence names the file, the event and the time in the run. Where the evidence is not enough, the
cause is `unknown`, and the answer says what to record, or whom to ask, next time. The commands under *check*
show the evidence itself.

With `--text`, only a text is read: the end of a log, a traceback, an error message.
[How to read a diagnosis](../diagnose.md) lists the classes, and shows how to add rules of your own.
"""

from __future__ import annotations

from flightlog.cli.limits import CliLimits
from flightlog.cli.options import AnyFormat, RunRef, RunsDir, open_named, option
from flightlog.cli.output import note, put_result
from flightlog.core.errors import UsageError

DOING = "looking for what went wrong"


def diagnose(
    run: RunRef = None,
    text: str | None = option(
        "FILE", "Diagnose the text in this file instead of a run; - is standard input."
    ),
    exception_type: str | None = option(
        "TYPE", "With --text: class of the exception, if the text does not show it."
    ),
    runs_dir: RunsDir = None,
    format_: AnyFormat = "text",
) -> None:
    """Explain why a run, or tasks in it, failed.

    Example: flightlog diagnose latest --format json
    """
    from flightlog.analyze.diagnosis.diagnose import diagnose as why
    from flightlog.analyze.diagnosis.diagnose import diagnosis_bytes
    from flightlog.analyze.diagnosis.score import diagnose_text
    from flightlog.show.diagnosis import diagnosis_text, text_diagnosis_text
    from flightlog.store.read.snapshot import held_still

    if text is not None:
        if run is not None or runs_dir is not None:
            raise UsageError("--text diagnoses a text alone: leave out the run")
        found = diagnose_text(_read(text), exception_type)
        put_result(found, format_, text_diagnosis_text, encode=diagnosis_bytes)
        return
    if exception_type is not None:
        raise UsageError("--exception-type goes with --text")
    with held_still(open_named(run, runs_dir=runs_dir), note=note) as still:
        put_result(why(still), format_, diagnosis_text, encode=diagnosis_bytes)


def _read(source: str) -> str:
    """The text of a file or of standard input, whatever its bytes are."""
    import sys
    from collections import deque
    from pathlib import Path

    try:
        if source != "-":
            with Path(source).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - CliLimits.max_diagnosed_text_bytes))
                return file.read(CliLimits.max_diagnosed_text_bytes).decode(errors="replace")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from None
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed: there is no text to read")
    kept: deque[bytes] = deque()
    held = 0
    while block := sys.stdin.buffer.read(1 << 20):
        kept.append(block)
        held += len(block)
        while held - len(kept[0]) > CliLimits.max_diagnosed_text_bytes:
            held -= len(kept.popleft())
    return b"".join(kept).decode(errors="replace")
