"""Adopts a recording into a folder of a test, and opens what it became."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from flightlog.adopt import adopt_path
from flightlog.adopt.run_maker import AdoptOptions
from flightlog.events import Event
from flightlog.store.layout import Adoption
from flightlog.store.run import Run

GOLDEN = Path(__file__).parents[1] / "golden"
PEERS = GOLDEN / "peers"
STORMLOG = GOLDEN / "devices"


def adopt_all(path: Path, runs: Path, kind: str | None = None, **options: Any) -> list[Adoption]:
    runs.mkdir(exist_ok=True)
    return adopt_path(path, runs, kind=kind, options=AdoptOptions(**options))


def adopt_one(path: Path, runs: Path, kind: str | None = None, **options: Any) -> tuple[Adoption, Run]:
    [adoption] = adopt_all(path, runs, kind, **options)
    return adoption, Run(Path(adoption.path))


def events_of(run: Run, stream: str) -> list[Event]:
    return [event for event in run.events(stream) if isinstance(event, Event)]


def content(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file below a folder, with its digest and when it was written."""
    return {
        str(file.relative_to(folder)): (
            hashlib.sha256(file.read_bytes()).hexdigest(),
            file.stat().st_mtime_ns,
        )
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
