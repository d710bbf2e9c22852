"""A dashboard of runs at an address: asked seldom, and shown from the copies where it does not answer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.counted_remote import ADDRESS, CountedMemory, empty_place, sync
from builders.runs import at, make_run
from viewing import look

from flightlog.store.integrity import write_checksums
from flightlog.store.limits import StoreLimits
from flightlog.web.dashboard import RunsFolder

RUN = "run-20260520T035200Z-demo-a1b2c3d4"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with a run that was copied to the address, too."""
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    empty_place()
    copied(tmp_path / "runs", "a1b2c3d4")
    yield tmp_path / "runs"
    empty_place()


def copied(folder: Path, token: str) -> None:
    path = make_run(folder, token=token, start_time=at(int(token[0], 16)))
    write_checksums(path)
    sync(path)


def test_a_remote_is_asked_no_more_often_than_every_ten_seconds(place):
    clock = SimpleNamespace(now=0.0)
    runs = RunsFolder(ADDRESS, clock=lambda: clock.now)
    assert runs.place.is_remote
    found = [[row.run_id for row in runs.look().rows]]
    copied(place, "b1b2c3d4")
    asked = CountedMemory.calls.copy()
    for _ in range(20):
        found.append([row.run_id for row in runs.look().rows])
    assert CountedMemory.calls == asked
    clock.now = StoreLimits.remote_refresh_s
    found.append([row.run_id for row in runs.look().rows])
    later = RUN.replace("a1b2c3d4", "b1b2c3d4")
    assert found == [[RUN]] * 21 + [[later, RUN]]


def test_a_remote_that_went_away_is_said_and_its_runs_are_shown_as_they_were(place, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    runs = RunsFolder(ADDRESS, clock=lambda: clock.now)
    before = runs.look()

    def away(kind: str, path: str) -> None:
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(CountedMemory, "broken", staticmethod(away))
    clock.now = StoreLimits.remote_refresh_s
    after = runs.look()
    assert (after.rows, before.notes) == (before.rows, ())
    assert "what is shown was copied from there" in " ".join(after.notes)


def test_the_pages_of_a_remote_run_and_its_metrics_are_served_from_its_copy(place):
    async def doing(client, dashboard):
        listing = await dashboard.listing()
        metrics = await client.get("/metrics")
        return (
            listing.place,
            (await client.get(f"/run/{RUN}/diagnosis")).status_code,
            metrics.status_code,
            [
                line
                for line in metrics.text.splitlines()
                if line.startswith(('flightlog_runs{status="c', "flightlog_remote"))
            ],
        )

    assert look(ADDRESS, doing) == (
        ADDRESS,
        200,
        200,
        [
            'flightlog_runs{status="completed"} 1.0',
            'flightlog_runs{status="crashed"} 0.0',
            "flightlog_remote_problems 0.0",
        ],
    )
