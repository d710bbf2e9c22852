"""Runs in S3 and Azure Blob Storage, with networks that fail: nothing is lost, nothing doubled."""

from __future__ import annotations

import functools
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet
import pytest
from remote_servers import Store, azure_store, s3_store

import flightlog
from flightlog.store import layout
from flightlog.store.remote.copies import FOLDER, RemoteCopies, list_remote
from flightlog.store.remote.objects import Calls, open_objects
from flightlog.store.remote.state import states_of
from flightlog.store.remote.upload import Uploader, follow, sync_with_patience
from flightlog.store.run import Run

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # clients that are left behind in a call that hangs
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module", params=[s3_store, azure_store], ids=["s3", "azure"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with request.param() as started:
        yield started


@pytest.fixture(autouse=True)
def _works(store: Store) -> Iterator[None]:
    store.proxy.mend()
    yield
    store.proxy.mend()


LARGE = 17 << 20
"""Bytes that take an upload in three parts."""
HASTE = 10.0
"""So much faster does time go for a follower's pauses, which are what it waits for when the network fails."""


def remote_of(store: Store, *, timeout_s: float = 30.0) -> RemoteCopies:
    """The store as a new process sees it; a call that is silent for so long counts as lost."""
    calls = Calls(store.address, timeout_s=timeout_s, attempts=2, pause_s=0.05)
    options = {**store.options, "skip_instance_cache": True}
    return RemoteCopies(open_objects(store.address, calls=calls, options=options))


@functools.cache
def reader_of(store: Store) -> RemoteCopies:
    """The store for whoever only looks: to make a client takes a while."""
    return remote_of(store)


def spans_of(run: Path) -> list[tuple[str, int]]:
    return sorted((event.writer, event.seq) for event in Run(run).events("spans"))


def fetched(store: Store, run_id: str, folder: Path) -> Path:
    """The run as a reader has it."""
    remote, path = reader_of(store), folder / "fetched" / run_id
    for file in remote.files(run_id):
        remote.fetch(run_id, file, path / file.path)
    return path


def assert_same(store: Store, run: Path, folder: Path, *, late: bool = False) -> None:
    """What stands in the store is the run, every file of it, and nothing else but one note.

    `late` where a call that was given up may take effect at any moment, as an object that the note does not
    name: the next copy removes that.
    """
    copy = fetched(store, run.name, folder)
    assert content(copy) == content(run)
    assert spans_of(copy) == spans_of(run)
    names = {one.name.removeprefix(f"{run.name}/") for one in reader_of(store).objects.find(run.name)}
    assert {name for name in names if not name.startswith(FOLDER)} == content(run).keys()
    if not late:
        assert len([name for name in names if name.startswith(FOLDER)]) == 1


def content(run: Path) -> dict[str, bytes]:
    found = (file for file in run.rglob("*") if file.is_file() and layout.FOLLOWERS not in file.parts)
    return {file.relative_to(run).as_posix(): file.read_bytes() for file in found}


def record(folder: Path, spans: int = 200, *, padding: int = 0) -> Path:
    """A run that has ended; `padding` bytes stand in a file of it, too large for one call."""
    with flightlog.record("remote", runs_dir=folder) as run:
        for number in range(spans):
            with flightlog.span("work", number=number):
                pass
    if padding:
        (run.path / "large.bin").write_bytes(os.urandom(padding))
    return run.path


def command(store: Store, run: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "flightlog", "sync", str(run), "--to", store.address, *more]


def environment(store: Store) -> dict[str, str]:
    return {**os.environ, **store.environ}


def until(condition: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def test_a_run_with_a_large_file_is_held_checked_and_read_by_the_command_line(
    store: Store, tmp_path: Path
) -> None:
    run = record(tmp_path, padding=9 << 20)
    for more in ((), ("--verify",)):
        done = subprocess.run(
            command(store, run, *more), env=environment(store), capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert_same(store, run, tmp_path)
    written = [file.read_bytes() for file in run.rglob("*") if file.is_file()]
    objects = reader_of(store).objects
    written += [objects.read(one.name) for one in objects.find(run.name) if one.name.endswith(".json")]
    assert not [data for data in written if store.secret.encode() in data]


def test_a_history_at_an_address_is_written_and_only_what_is_missing_is_written_again(
    store: Store, tmp_path: Path
) -> None:
    runs = [record(tmp_path, spans=20) for _ in range(2)]
    place = f"{store.address.rpartition('/')[0]}/history"
    compact = [sys.executable, "-m", "flightlog", "compact", "--all", "--history", place]

    def said() -> list[str]:
        done = subprocess.run(
            [*compact, "--runs-dir", str(tmp_path)], env=environment(store), capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    first = said()
    assert [line.partition(":")[0] for line in first] == sorted(run.name for run in runs)
    assert all(" rows in " in line and line.endswith(f"in {place}") for line in first)
    objects = open_objects(place, options={**store.options, "skip_instance_cache": True})
    spans = [one.name for one in objects.find("") if one.name.startswith("spans/")]
    assert len(spans) == 2
    table = pyarrow.parquet.read_table(io.BytesIO(objects.read(spans[0])))
    assert table.num_rows == 20
    assert said() == [f"{name}: nothing new in {place}" for name in sorted(run.name for run in runs)]
    objects.remove([spans[0]])
    assert sorted(" rows in " in line for line in said()) == [False, True]
    assert [one.name for one in objects.find("") if one.name.startswith("spans/")] == spans


@pytest.mark.parametrize("fault", ["refuse", "slow", "error", "hang", "cut"])
def test_a_run_is_followed_through_a_fault_and_nothing_is_lost_or_doubled(
    store: Store, tmp_path: Path, fault: str
) -> None:
    """The network fails in the middle of the run and is mended after its end."""
    store.proxy.cut_after = 3000
    told: list[str] = []
    with flightlog.record("remote", runs_dir=tmp_path) as run:
        uploader = Uploader(run.path, remote_of(store, timeout_s=2))
        following = threading.Thread(
            target=lambda: follow(
                uploader,
                every_s=(0.5, 1.0),
                on_trouble=told.append,
                give_up_s=60 * HASTE,
                sleep=lambda seconds: time.sleep(seconds / HASTE),
                clock=lambda: time.monotonic() * HASTE,
            )
        )
        following.start()
        for number in range(60):
            with flightlog.span("work", number=number):
                time.sleep(0.01)
            if number == 20:
                before = store.proxy.passed
                until(lambda: store.proxy.passed > before, "a copy")
                store.proxy.mode = fault
    if fault != "slow":
        until(lambda: bool(told), "an error")
    store.proxy.mend()
    following.join(90)
    assert not following.is_alive()
    assert sync_with_patience(Uploader(run.path, reader_of(store))).sent_bytes == 0
    assert_same(store, run.path, tmp_path, late=True)
    assert len(list(Run(run.path).events("spans"))) >= 60


def test_killed_in_the_middle_of_an_upload_the_next_one_goes_on(store: Store, tmp_path: Path) -> None:
    run = record(tmp_path, padding=LARGE)
    for share in (0.3, 0.6):
        start = store.proxy.passed
        uploading = subprocess.Popen(command(store, run), env=environment(store), stderr=subprocess.DEVNULL)
        until(lambda: store.proxy.passed - start > share * LARGE or uploading.poll() is not None, "sending")
        uploading.send_signal(signal.SIGKILL)
        assert uploading.wait() == -signal.SIGKILL
        assert reader_of(store).notes(run.name) == []
    assert sync_with_patience(Uploader(run, remote_of(store))).complete
    assert_same(store, run, tmp_path)


PROGRAM = """
import sys
connections = []
sys.addaudithook(lambda event, args: connections.append(args) if event.startswith("socket.connect") else None)
import flightlog
with flightlog.record("remote") as run:
    for number in range(3000):
        with flightlog.span("work", number=number):
            pass
clients = sorted({"fsspec", "s3fs", "adlfs", "botocore", "azure.storage.blob"} & sys.modules.keys())
print(run.path, len(connections), clients, sep="|")
"""


def test_a_store_that_hangs_costs_the_run_no_call_and_no_event(store: Store, tmp_path: Path) -> None:
    store.proxy.mode = "hang"
    environ = {
        **environment(store),
        "FLIGHTLOG_RUNS_DIR": str(tmp_path),
        "FLIGHTLOG_RUNS_DIR_REMOTE": store.address,
        "FLIGHTLOG_FOLLOWERS_WAIT": "0",
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    path, connections, clients = done.stdout.strip().split("|")
    assert (connections, clients) == ("0", "[]")
    assert "in the background" in done.stderr
    run = Path(path)
    assert Run(run).completeness().lost_lines == 0
    assert len({event.span_id for event in Run(run).events("spans")}) == 3000
    store.proxy.mend()
    until(lambda: any(state.complete for state in states_of(run)), "the end of the copy", 90)
    assert_same(store, run, tmp_path)


ENDLESS = """
import flightlog, itertools, time
with flightlog.record("remote"):
    for number in itertools.count():
        with flightlog.span("work", number=number):
            time.sleep(0.001)
"""


def test_a_killed_program_is_copied_to_its_last_event(store: Store, tmp_path: Path) -> None:
    environ = {
        **environment(store),
        "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs"),
        "FLIGHTLOG_RUNS_DIR_REMOTE": store.address,
    }
    program = subprocess.Popen([sys.executable, "-c", ENDLESS], env=environ)
    try:
        until(
            lambda: any(
                run.name in list_remote(reader_of(store).objects) for run in (tmp_path / "runs").glob("run-*")
            ),
            "a copy",
        )
    finally:
        program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    (run,) = (tmp_path / "runs").glob("run-*")
    until(lambda: any(state.complete for state in states_of(run)), "the end of the copy", 90)
    assert Run(run).status == "crashed"
    assert spans_of(fetched(store, run.name, tmp_path)) == spans_of(run)
