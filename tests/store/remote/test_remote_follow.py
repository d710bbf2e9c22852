from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from remote_places import FaultyFileSystem, Killed, Writing, place, read_back

from flightlog.core.errors import RemoteError
from flightlog.store.limits import StoreLimits
from flightlog.store.remote.state import copies_of, sole_uploader, states_of
from flightlog.store.remote.upload import follow, sync_with_patience


class Time:
    """A clock that goes on by sleeping alone; `meanwhile` happens in each sleep."""

    def __init__(self, meanwhile: Callable[[float], None] = lambda _now: None) -> None:
        self.now = 0.0
        self._meanwhile = meanwhile

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._meanwhile(self.now)


def refuse(_call: str, _name: str) -> None:
    raise ConnectionRefusedError("refused")


def allow(_call: str, _name: str) -> None:
    return


def test_a_run_is_followed_to_its_end(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    seen: list[int] = []

    def meanwhile(now: float) -> None:
        seen.append(len(read_back(place(filesystem))))
        if not writing.alive:
            return
        if now > 60:
            writing.close()
        else:
            writing.write()
            writing.beat()

    time = Time(meanwhile)
    synced = follow(writing.uploader(place(filesystem)), sleep=time.sleep, clock=time.clock)
    assert synced.complete
    assert read_back(place(filesystem)) == sorted(writing.written)
    assert seen == sorted(seen)
    assert len(set(seen)) > 5


def test_a_killed_run_is_followed_to_its_end(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    time = Time(lambda now: writing.kill() if now > 10 and writing.alive else None)
    assert follow(writing.uploader(place(filesystem)), sleep=time.sleep, clock=time.clock).complete
    assert read_back(place(filesystem)) == sorted(writing.written)


def test_a_place_that_comes_back_gets_everything(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    filesystem.before = refuse
    told: list[str] = []

    def meanwhile(now: float) -> None:
        if writing.alive:
            writing.write()
        if now > 100 and writing.alive:
            writing.close()
        if now > 150:
            filesystem.before = allow

    time = Time(meanwhile)
    uploader = writing.uploader(place(filesystem))
    assert follow(uploader, on_trouble=told.append, sleep=time.sleep, clock=time.clock).complete
    assert read_back(place(filesystem)) == sorted(writing.written)
    assert told == [
        "s3://bucket/runs cannot be reached (refused); check the address, the network and any proxy"
    ]


def test_a_place_that_stays_away_is_given_up_a_bounded_time_after_the_end(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    filesystem.before = refuse
    writing.write(lines=3)
    writing.close()
    time = Time()
    with pytest.raises(RemoteError, match="cannot be reached"):
        follow(writing.uploader(place(filesystem)), sleep=time.sleep, clock=time.clock)
    assert StoreLimits.ended_upload_timeout_s / 2 < time.now <= StoreLimits.ended_upload_timeout_s
    (state,) = states_of(writing.path)
    assert not state.complete
    assert state.problem is not None
    filesystem.before = allow
    assert sync_with_patience(writing.uploader(place(filesystem))).complete


def test_what_will_not_pass_ends_following_when_the_run_has_ended_and_not_before(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()

    def deny(_call: str, _name: str) -> None:
        raise PermissionError("Access Denied")

    filesystem.before = deny
    time = Time(lambda now: writing.close() if now > 200 and writing.alive else None)
    with pytest.raises(RemoteError, match="refuses access"):
        follow(writing.uploader(place(filesystem)), sleep=time.sleep, clock=time.clock)
    assert time.now < 300


def test_who_waits_is_told_after_a_minute(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    filesystem.before = refuse
    time = Time()
    with pytest.raises(RemoteError):
        sync_with_patience(writing.uploader(place(filesystem)), sleep=time.sleep, clock=time.clock)
    assert time.now <= 60


def test_a_directory_that_is_removed_ends_following(tmp_path: Path) -> None:
    import shutil

    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    time = Time(lambda _now: shutil.rmtree(writing.path, ignore_errors=True))
    with pytest.raises(FileNotFoundError):
        follow(writing.uploader(place(filesystem)), sleep=time.sleep, clock=time.clock)


def test_a_place_that_has_not_answered_yet_is_known_to_be_behind(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    seen: list[list[tuple[str | None, str]]] = []

    def look(_call: str, _name: str) -> None:
        with sole_uploader(writing.path):
            seen.append([(copy.address, copy.state) for copy in copies_of(writing.path)])
        seen.append([(copy.address, copy.state) for copy in copies_of(writing.path)])
        raise Killed

    filesystem.before = look
    with pytest.raises(Killed):
        writing.uploader(place(filesystem)).sync()
    assert seen == [[("s3://bucket/runs", "copying")], [("s3://bucket/runs", "behind")]]
