"""Explains device memory: peaks by rank and phase, unused and hidden memory, leaks, and why memory ran out.

    flightlog devices                                  # the run that started last
    flightlog devices run-20260520T035200Z-demo-a1b2c3d4
    flightlog devices --rank 0 --rank 3 --phase evaluate
    flightlog devices telemetry.jsonl                  # a recording of device telemetry, of whatever tool
    flightlog devices sink-folder --format json

A run has device memory if it was recorded with `flightlog.track_device_memory()` or `flightlog run
--device-memory`. Anything else that is named must be a file or a folder of device telemetry (schema v2, v3 or
v4, or older).

**Peaks** are the highest values of the memory that the framework's allocator handed out (*allocated*), held
(*reserved*), and that all processes used on the device (*in use*), each with its own time. *Unused* is the
share of reserved memory that was not allocated at the peak of reserved memory. *Not ours* is the use of the
device minus what the allocators of this run held: contexts, libraries, other processes. It is known only
where the driver reports the use of the device. Unknown values are shown as unknown, never as 0.

**Phases** are what the code was doing: the innermost open span. Numbers at the end of a name are ignored, so
that `step 1` and `step 2` are one phase, `step #`. *Times* counts the repetitions with at least one event.
Every event counts for the time up to the next one, and a change of memory for the phase in which it was first
seen, so that times and growth add up to those of the session.

A **leak** is suspected where one phase was seen eight times or more, and both the level at the end of each
repetition and the lowest level within it grew steadily: warm-up, single steps, levelling off and saw teeth
are no leaks. The table shows how often levels in a random order would look the same. Memory outside of phases
is not judged.

**Out of memory**: what was requested, what was available, what explains it, which rank's memory rose first,
and how long before.

**Ranks** are aligned in time by clock offsets where they were measured, else by the clocks of their hosts,
and never by their first samples. With three ranks or more, the report names those that start a phase late,
take long in it or hold far more memory than the median.

The JSON holds all of it, with memory over time in up to 256 steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer

from flightlog.cli.options import OutputFile, RunsDir, open_named, option, run_argument
from flightlog.cli.output import check_file, put_result
from flightlog.core.errors import UsageError
from flightlog.core.settings import expanded

DOING = "reading device memory"


DevicesFormat = Literal["text", "json", "md"]
"""How the explanation is written."""


def devices(
    run: str | None = run_argument(
        "'latest', a run id, a unique prefix of one, a path of a run, or a file or folder of device"
        " telemetry. Default: latest"
    ),
    rank: list[int] | None = option("N", "Only this rank. May be given several times."),
    phase: str | None = option("P", "Only this phase."),
    format_: DevicesFormat = typer.Option("text", "--format", help="Output format."),
    output: OutputFile = None,
    runs_dir: RunsDir = None,
) -> None:
    """Explain GPU memory: peaks, phases, leaks, out-of-memory.

    Example: flightlog devices latest --rank 0 --format json
    """
    check_file(output)
    from flightlog.analyze.devices.report import devices_of_path, devices_of_run, only
    from flightlog.show.devices import devices_markdown, devices_text

    recording = _recording(run)
    found = devices_of_path(recording) if recording else devices_of_run(open_named(run, runs_dir=runs_dir))
    if rank or phase is not None:
        found = only(found, ranks=rank or (), phase=phase)
    put_result(found, format_, devices_text, others={"md": devices_markdown}, output=output)


def _recording(name: str | None) -> Path | None:
    """The path, if it is a file, or a folder that holds segments or a manifest and is no run."""
    if name is None:
        return None
    path = expanded(name)
    if path.is_file():
        return path
    if not path.is_dir():
        if path.suffix in {".json", ".jsonl", ".gz"}:
            raise UsageError(f"there is no file {path}")
        return None
    from flightlog.store.catalogue import is_run
    from flightlog.store.devices.reading import manifest_path, segment_paths

    is_sink = manifest_path(path) is not None or bool(segment_paths(path, None))
    return path if is_sink and not is_run(path) else None
