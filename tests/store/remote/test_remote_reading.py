"""Remote runs are read through local copies: few calls, nothing twice, and honest about what is not here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from builders.counted_remote import ADDRESS, CountedMemory, copy_plainly, empty_place, sync
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.core.errors import RemoteError, RunNotFound, UsageError
from flightlog.events import TaskCompleted, TaskSubmitted
from flightlog.store import layout
from flightlog.store.catalogue import list_runs
from flightlog.store.completing import open_run
from flightlog.store.integrity import verify_files, write_checksums
from flightlog.store.liveness import Observer
from flightlog.store.remote.copies import RemoteFile, SyncNote, note_name
from flightlog.store.run import Run
from flightlog.store.runs_folder import address_of, folder_of_runs, place


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedMemory]:
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY", "1")
    yield empty_place()
    empty_place()


def some_run(runs: Path, token: str = "a1b2c3d4", tasks: int = 3, **info: object) -> Path:
    events = [
        event
        for number in range(tasks)
        for event in (
            TaskSubmitted(timestamp=at(number), task="sim", task_id=f"t{number}", args={"seed": number}),
            TaskCompleted(
                timestamp=at(number + 1),
                task="sim",
                task_id=f"t{number}",
                args={"seed": number},
                worker="w1",
                duration_s=1.0,
            ),
        )
    ]
    return make_run(runs, events, token=token, **info)


def files_of(run: Path) -> dict[str, bytes]:
    return {
        file.relative_to(run).as_posix(): file.read_bytes()
        for file in run.rglob("*")
        if file.is_file() and ".followers" not in file.parts
    }


class Told(list[str]):
    """What was noted."""

    def __call__(self, message: str) -> None:
        self.append(message)


def fail(error: Exception, kinds: str = "find ls read info") -> None:
    def broken(kind: str, path: str) -> None:
        if kind in kinds.split():
            raise error

    CountedMemory.broken = broken


def test_a_remote_run_reads_as_the_run_itself_and_is_the_same_to_the_byte(
    tmp_path: Path, there: CountedMemory
) -> None:
    run = some_run(tmp_path / "runs")
    (run / "oom" / "1-x").mkdir(parents=True)
    (run / "oom" / "1-x" / "snapshot.json").write_bytes(b"{}")
    (run / "empty.jsonl").touch()
    write_checksums(run)
    sync(run)
    for opened in (
        open_run("latest", runs_dir=ADDRESS),
        open_run(f"{ADDRESS}/{run.name}"),
        open_run("a1b2", runs_dir=ADDRESS),
    ):
        assert files_of(opened.path) == files_of(run)
        assert opened.problems == ()
        assert list(opened.events("tasks")) == list(Run(run).events("tasks"))
        assert verify_files(opened.path) == []


def test_a_list_of_many_runs_is_one_listing_and_one_small_read_a_new_run(
    tmp_path: Path, there: CountedMemory
) -> None:
    for number in range(1000):
        run_id = f"run-20260520T035200Z-demo-{number:08x}"
        info = layout.RunInfo(run_id=run_id, project="demo", status="completed", start_time=at(number / 10))
        there.pipe_file(f"/place/runs/{run_id}/run.json", msgspec.json.encode(info))
        there.pipe_file(f"/place/runs/{run_id}/summary.json", b"{}")
        there.pipe_file(f"/place/runs/{run_id}/tasks.jsonl", b"")
    there.forget()
    entries = list_runs(folder_of_runs(ADDRESS))
    assert [entry.run_id for entry in entries[:2]] == [
        f"run-20260520T035200Z-demo-{n:08x}" for n in (999, 998)
    ]
    assert len(entries) == 1000
    assert there.calls == {"find": 1, "read": 1000}
    assert {name.rpartition("/")[2] for name in there.read} == {"run.json"}

    there.forget()
    assert list_runs(folder_of_runs(ADDRESS)) == entries
    assert there.calls == {"find": 1}

    there.pipe_file("/place/runs/run-20260520T035200Z-demo-0000000f/run.json", b"{}")
    there.forget()
    assert [entry.problem is None for entry in list_runs(folder_of_runs(ADDRESS))].count(False) == 1
    assert there.calls == {"find": 1, "read": 1}


def test_a_closed_run_is_fetched_when_it_is_opened_and_never_again(
    tmp_path: Path, there: CountedMemory
) -> None:
    first, second = some_run(tmp_path / "runs"), some_run(tmp_path / "runs", "b1b2c3d4")
    sync(first)
    sync(second)
    folder = folder_of_runs(ADDRESS)
    assert sorted(files_of(folder / first.name)) == ["run.json"]
    open_run("a1b2c3d4", runs_dir=ADDRESS)
    assert sorted(files_of(folder / second.name)) == ["run.json"]
    there.forget()
    opened = open_run("a1b2c3d4", runs_dir=ADDRESS)
    list(opened.events("tasks"))
    assert (there.calls, there.read) == ({"find": 1}, [])


def test_one_run_by_its_whole_name_asks_for_nothing_of_the_others(
    tmp_path: Path, there: CountedMemory
) -> None:
    first, second = some_run(tmp_path / "runs"), some_run(tmp_path / "runs", "b1b2c3d4")
    sync(first)
    sync(second)
    there.forget()
    open_run(first.name, runs_dir=ADDRESS)
    assert {name.partition("/")[0] for name in there.read} == {first.name}


def test_summaries_come_only_for_the_runs_that_a_trend_is_of(tmp_path: Path, there: CountedMemory) -> None:
    from flightlog.analyze.history.trends import trends
    from flightlog.store.headline import headline_bytes, headline_of

    for project in ("demo", "other"):
        run = some_run(tmp_path / "runs", project=project)
        (run / layout.SUMMARY).write_bytes(headline_bytes(headline_of(Run(run))))
        sync(run)
    there.forget()
    found = trends("demo", "duration:sim", runs_dir=ADDRESS)
    assert [point.value for point in found.points] == [1.0]
    assert sorted(name.partition("demo-")[2] for name in there.read if "-demo-" in name) == [
        "a1b2c3d4/run.json",
        "a1b2c3d4/summary.json",
    ]
    assert [name.rpartition("/")[2] for name in there.read if "-other-" in name] == ["run.json"]


def test_of_a_run_that_goes_on_only_what_is_new_is_fetched(tmp_path: Path, there: CountedMemory) -> None:
    run = make_run(
        tmp_path / "runs",
        [],
        status="running",
        end_time=None,
        duration_s=None,
        host="elsewhere",
        heartbeat=at(5),
    )
    lines = layout.stream_file(run, "tasks")
    observer = Observer(now=1779249130.0, host="here")  # at(10)

    def add(number: int, size: int) -> None:
        with lines.open("ab") as out:
            for seq in range(number, number + size):
                event = TaskSubmitted(timestamp=at(1), task="sim", task_id=f"t{seq}", args={"seed": seq})
                event.writer, event.seq = "w0000001", seq
                out.write(msgspec.json.encode(event) + b"\n")

    add(0, 5000)
    sync(run, observer=observer)
    opened = open_run("latest", runs_dir=ADDRESS, observer=observer)
    assert (opened.status, sum(1 for _ in opened.events("tasks"))) == ("running", 5000)
    add(5000, 10)
    sync(run, observer=observer)
    there.forget()
    opened = open_run("latest", runs_dir=ADDRESS, observer=observer)
    assert [event.seq for event in opened.events("tasks")] == list(range(5010))
    assert there.read_bytes < 20_000 < lines.stat().st_size

    ended = msgspec.json.decode((run / layout.RUN).read_bytes()) | {"status": "completed", "end_time": at(9)}
    (run / layout.RUN).write_bytes(msgspec.json.encode(ended))
    sync(run)
    there.forget()
    opened = open_run("latest", runs_dir=ADDRESS, observer=observer)
    assert (opened.status, files_of(opened.path)) == ("completed", files_of(run))
    assert there.read_bytes < 20_000


def test_a_run_that_is_being_recorded_is_read_up_to_the_last_upload(
    tmp_path: Path, there: CountedMemory
) -> None:
    with flightlog.record("live", runs_dir=tmp_path / "runs") as run:
        for number in range(3):
            with flightlog.span("step", number=number):
                pass
        sync(run.path)
        with flightlog.span("step", number=3):
            pass
        opened = open_run("latest", runs_dir=ADDRESS)
        assert [span.tags["number"] for span in opened.events("spans")] == [0, 1, 2]
        assert opened.status == "running"
        assert opened.completeness().lost == {}
        sync(run.path)
        assert [s.tags["number"] for s in open_run("latest", runs_dir=ADDRESS).events("spans")] == [
            0,
            1,
            2,
            3,
        ]
    sync(run.path)
    opened = open_run("latest", runs_dir=ADDRESS)
    assert (opened.status, files_of(opened.path)) == ("completed", files_of(run.path))


def test_a_copied_run_of_another_host_is_judged_by_its_heartbeat_and_never_by_a_process_here(
    tmp_path: Path, there: CountedMemory
) -> None:
    def never(pid: int) -> float | None:
        raise AssertionError("a process of another host was looked for here")

    run = make_run(
        tmp_path / "runs",
        [],
        status="running",
        end_time=None,
        duration_s=None,
        host="elsewhere",
        heartbeat=at(5),
    )
    sync(run)
    for now, status in ((1779249130.0, "running"), (1779249330.0, "crashed")):
        observer = Observer(now=now, host="here", process_started=never)
        assert open_run("latest", runs_dir=ADDRESS, observer=observer).status == status
        assert [entry.status for entry in list_runs(folder_of_runs(ADDRESS), observer=observer)] == [status]


def test_runs_that_another_tool_copied_are_read_without_notes(tmp_path: Path, there: CountedMemory) -> None:
    run = some_run(tmp_path / "runs")
    copy_plainly(run, there)
    there.pipe_file("/place/runs/notes.txt", b"no run")
    there.pipe_file("/place/runs/other/data.csv", b"no run either")
    opened = open_run("latest", runs_dir=ADDRESS)
    assert files_of(opened.path) == files_of(run)
    there.pipe_file(f"/place/runs/{run.name}/tasks.jsonl", (run / "tasks.jsonl").read_bytes()[:-1] + b" ")
    there.forget()
    assert open_run("latest", runs_dir=ADDRESS).path == opened.path
    assert there.read == [f"{run.name}/tasks.jsonl"]
    assert [path.name for path in folder_of_runs(ADDRESS).iterdir() if not path.name.startswith(".")] == [
        run.name
    ]


def test_a_damaged_object_is_left_out_and_said(tmp_path: Path, there: CountedMemory) -> None:
    run = some_run(tmp_path / "runs")
    sync(run)
    name = f"/place/runs/{run.name}/tasks.jsonl"
    there.pipe_file(name, there.store[name].getvalue().replace(b"sim", b"sum"))
    opened = open_run("latest", runs_dir=ADDRESS)
    assert sorted(files_of(opened.path)) == ["recorder.json", "run.json"]
    [problem] = opened.problems
    assert problem.startswith("tasks.jsonl is left out: ")
    assert "SHA-256" in problem
    assert opened.completeness().lost == {"tasks": 6}


def test_a_note_cannot_name_files_outside_of_its_run(tmp_path: Path, there: CountedMemory) -> None:
    run = some_run(tmp_path / "runs")
    copy_plainly(run, there)
    paths = ["../../escaped", "/escaped", "run.json", ".remote/x", ""]
    note = SyncNote(
        run_id=run.name,
        uploader="u",
        source="s",
        host="h",
        revision=1,
        synced_at=at(0),
        complete=True,
        files=tuple(RemoteFile(path=path, size=(run / "run.json").stat().st_size) for path in paths),
    )
    there.pipe_file(f"/place/runs/{run.name}/{note_name('u', 1)}", msgspec.json.encode(note))
    opened = open_run(run.name, runs_dir=ADDRESS)
    assert sorted(files_of(opened.path)) == ["run.json"]
    assert [problem.partition(" is no path")[0] for problem in opened.problems] == [
        "''",
        "'../../escaped'",
        "'.remote/x'",
        "'/escaped'",
    ]
    assert not list(tmp_path.rglob("*escaped*"))


def test_away_from_the_network_what_is_here_is_shown_with_one_note(
    tmp_path: Path, there: CountedMemory
) -> None:
    run, unread = some_run(tmp_path / "runs"), some_run(tmp_path / "runs", "b1b2c3d4")
    sync(run)
    sync(unread)
    before = open_run("a1b2c3d4", runs_dir=ADDRESS)
    fail(ConnectionRefusedError("connection refused"))
    told = Told()
    assert len(list_runs(folder_of_runs(ADDRESS, note=told))) == 2
    [message] = told
    assert message.startswith(f"{ADDRESS} cannot be reached (connection refused); ")
    assert "; what is shown was copied from there at 20" in message
    opened = open_run("a1b2c3d4", runs_dir=ADDRESS, note=told)
    assert (files_of(opened.path), opened.problems) == (files_of(before.path), ())
    with pytest.raises(
        RemoteError, match=r"the files of run-.*-b1b2c3d4 are not here: counted:.* cannot be reached"
    ):
        open_run("b1b2c3d4", runs_dir=ADDRESS, note=told)
    with pytest.warns(UserWarning, match="cannot be reached"):
        folder_of_runs(ADDRESS)


def test_a_run_that_went_on_says_that_the_copy_is_behind(tmp_path: Path, there: CountedMemory) -> None:
    run = make_run(
        tmp_path / "runs",
        [],
        status="running",
        end_time=None,
        duration_s=None,
        host="elsewhere",
        heartbeat=at(5),
    )
    sync(run)
    assert open_run("latest", runs_dir=ADDRESS).problems == ()
    fail(TimeoutError("no answer"))
    [problem] = open_run("latest", runs_dir=ADDRESS, note=Told()).problems
    assert problem.startswith("what was recorded after 20")
    assert " is not here: counted://place/runs does not answer (no answer)" in problem


def test_a_remote_that_cannot_be_reached_and_was_never_read_is_an_error(there: CountedMemory) -> None:
    fail(ConnectionRefusedError("connection refused"))
    with pytest.raises(RemoteError, match=r"^counted://place/runs cannot be reached \(connection refused\)"):
        open_run("latest", runs_dir=ADDRESS)


def test_a_remote_that_goes_away_halfway_is_asked_no_more(tmp_path: Path, there: CountedMemory) -> None:
    for number in range(200):
        info = layout.RunInfo(run_id="", project="demo", status="completed", start_time=at(number))
        run_id = f"run-20260520T035200Z-demo-{number:08x}"
        there.pipe_file(f"/place/runs/{run_id}/run.json", msgspec.json.encode(info))
    fail(ConnectionRefusedError("connection refused"), "read")
    with pytest.raises(RemoteError, match="cannot be reached"):
        folder_of_runs(ADDRESS)
    assert there.calls["read"] <= 3 * 16  # each thread tries thrice at most


def test_a_run_that_was_removed_from_the_remote_is_said_and_its_copy_kept(
    tmp_path: Path, there: CountedMemory
) -> None:
    run, unread = some_run(tmp_path / "runs"), some_run(tmp_path / "runs", "b1b2c3d4")
    sync(run)
    sync(unread)
    open_run("a1b2c3d4", runs_dir=ADDRESS)
    held = dict(there.store)
    there.store.clear()
    told = Told()
    folder = folder_of_runs(ADDRESS, note=told)
    aside = folder / ".remote" / "gone"
    assert list_runs(folder) == []
    assert told == [
        f"1 run is no longer at {ADDRESS} ({run.name}); its copy is kept in {aside} while there is room"
    ]
    assert files_of(aside / run.name) == files_of(run)
    with pytest.raises(RunNotFound, match=rf"{run.name} is no longer at .*; the copy of it is {aside}"):
        open_run(run.name, runs_dir=ADDRESS)
    with pytest.raises(RunNotFound, match=rf"there is no run {unread.name} in {ADDRESS}"):
        open_run(f"{ADDRESS}/{unread.name}")

    there.store.update(held)
    there.forget()
    assert files_of(open_run("a1b2c3d4", runs_dir=ADDRESS).path) == files_of(run)
    assert f"{run.name}/tasks.jsonl" not in there.read


def test_a_copy_that_was_cut_short_is_made_whole_the_next_time(tmp_path: Path, there: CountedMemory) -> None:
    run = some_run(tmp_path / "runs")
    sync(run)

    def broken(kind: str, path: str) -> None:
        if path.endswith("recorder.json"):
            raise PermissionError("denied")

    CountedMemory.broken = broken
    with pytest.raises(RemoteError, match="refuses access"):
        open_run("latest", runs_dir=ADDRESS)
    assert sorted(files_of(folder_of_runs(ADDRESS) / run.name)) == ["run.json"]
    CountedMemory.broken = None
    assert files_of(open_run("latest", runs_dir=ADDRESS).path) == files_of(run)


def test_copies_may_be_removed_at_any_time(tmp_path: Path, there: CountedMemory) -> None:
    run = some_run(tmp_path / "runs")
    sync(run)
    folder = open_run("latest", runs_dir=ADDRESS).path.parent
    for gone in (folder / run.name, folder, tmp_path / "copies"):
        shutil.rmtree(gone)
        assert files_of(open_run("latest", runs_dir=ADDRESS).path) == files_of(run)


def test_an_object_that_was_damaged_and_is_mended_is_fetched(tmp_path: Path, there: CountedMemory) -> None:
    run = some_run(tmp_path / "runs")
    sync(run)
    whole = CountedMemory.cat_file
    CountedMemory.cat_file = lambda self, path, *a, **k: whole(self, path, *a, **k).replace(b"sim", b"sum")  # type: ignore[method-assign]
    try:
        assert len(open_run("latest", runs_dir=ADDRESS).problems) == 1
    finally:
        CountedMemory.cat_file = whole  # type: ignore[method-assign]
    there.forget()
    opened = open_run("latest", runs_dir=ADDRESS)
    assert (files_of(opened.path), opened.problems) == (files_of(run), ())
    assert [name for name in there.read if ".flightlog-sync" not in name] == [f"{run.name}/tasks.jsonl"]


def test_credentials_in_an_address_are_refused_and_not_repeated(there: CountedMemory) -> None:
    for address in ("s3://key:hidden-word@bucket/runs", "abfs://c@a.dfs/runs?sig=hidden-word"):
        with pytest.raises(UsageError) as caught:
            open_run("latest", runs_dir=address)
        assert "hidden-word" not in str(caught.value)


def test_an_address_that_nothing_here_knows_is_one_sentence(there: CountedMemory) -> None:
    with pytest.raises(UsageError, match="nothing here knows nowhere://"):
        open_run("latest", runs_dir="nowhere://bucket/runs")
    with pytest.raises(RunNotFound, match="there are no runs in counted://place/runs"):
        open_run("latest", runs_dir=ADDRESS)
    with pytest.raises(RunNotFound, match="counted://place is no address of a run"):
        open_run("counted://place")


def test_copies_that_cannot_be_kept_are_one_sentence(
    tmp_path: Path, there: CountedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "file"))
    with pytest.raises(RemoteError, match=r"cannot be kept in .*FLIGHTLOG_REMOTE_CACHE names another folder"):
        open_run("latest", runs_dir=ADDRESS)


@given(
    st.sampled_from(["s3", "file", "memory", "abfs", "gs"]),
    st.from_regex(r"[a-z0-9]+(/[a-z0-9._-]+){0,3}", fullmatch=True),
)
def test_an_address_is_understood_as_a_text_and_as_a_path(scheme: str, rest: str) -> None:
    address = f"{scheme}://{'/' if scheme == 'file' else ''}{rest}"
    assert address_of(address) == address
    found = address_of(Path(address))
    assert found is not None
    assert Path(found) == Path(address)


@pytest.mark.parametrize(
    "path", [None, "runs", "/data/runs", "C:/runs", "a:b/c", "~/runs", "s3:runs", Path("/data"), Path("a:b")]
)
def test_a_path_is_no_address(path: str | Path | None) -> None:
    assert address_of(path) is None


def test_a_folder_is_called_by_its_address_where_it_has_one(tmp_path: Path, there: CountedMemory) -> None:
    assert (place(folder_of_runs(ADDRESS)), place(tmp_path)) == (ADDRESS, str(tmp_path))
