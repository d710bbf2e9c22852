"""A run at an address is followed through its copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from builders.counted_remote import ADDRESS, CountedMemory, empty_place, sync
from builders.runs import START, at, make_run
from builders.task_events import completed, submitted

from flightlog.analyze.limits import LiveLimits
from flightlog.analyze.live.follow import FollowedRun
from flightlog.core.time import SECOND, moment
from flightlog.store import layout
from flightlog.store.runs_folder import folder_of_runs

NOW = (moment(START) or 0) / SECOND + 20


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedMemory]:
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    yield empty_place()
    empty_place()


def test_a_remote_run_is_asked_for_what_is_new_now_and_then(tmp_path: Path, there: CountedMemory) -> None:
    run = make_run(
        tmp_path / "here",
        [submitted("a"), submitted("b")],
        status="running",
        end_time=None,
        duration_s=None,
        host="elsewhere",
        heartbeat=at(19),
    )
    sync(run)
    ticks = [0.0]
    live = FollowedRun(folder_of_runs(ADDRESS) / run.name, now=lambda: NOW, clock=lambda: ticks[0])
    assert live.update().progress.submitted == 2
    ended = completed("a", 3, 1.0)
    ended.writer, ended.seq = "w0000001", 2
    with layout.stream_file(run, "tasks").open("ab") as out:
        out.write(msgspec.json.encode(ended) + b"\n")
    sync(run)
    asked = there.calls.total()
    assert (live.update().progress.completed, there.calls.total()) == (0, asked)
    ticks[0] += LiveLimits.remote_interval_s
    state = live.update()
    assert (state.progress.completed, state.status, state.problems) == (1, "running", [])
