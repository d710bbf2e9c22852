from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from builders.runs import at, make_run
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.analyze.report.report import report_on
from flightlog.core.errors import AmbiguousRun, DamagedRun, RunNotFound, UsageError
from flightlog.events import Metric, SpanEvent, TaskCompleted, TaskStarted, TaskSubmitted
from flightlog.events.codec import UnknownEvent
from flightlog.show.report import report_text
from flightlog.store import layout
from flightlog.store.completing import open_run
from flightlog.store.documents import RecorderInfo, read_document, write_document
from flightlog.store.integrity import verify_files
from flightlog.store.layout import RunInfo, WriterInfo
from flightlog.store.liveness import Observer, latest, process_start, this_host, unix_time
from flightlog.store.read.events import Completeness
from flightlog.store.run import Ending

GOLDEN = Path(__file__).parent.parent / "golden" / "run-v1"
CLOSED = "run-20260520T035200Z-demo-a1b2c3d4"
KILLED = "run-20260521T101500Z-sweep-0badcafe"
NOW = 1_779_400_000.0  # after the golden runs
HERE = Observer(now=NOW, host="here", process_started=lambda _pid: None)


def metrics(*values: float) -> list[Metric]:
    return [Metric(name="loss", value=value) for value in values]


# --- runs of the first format, which load for ever


def test_the_closed_golden_run_loads_whole():
    run = open_run(CLOSED, runs_dir=GOLDEN, observer=HERE)
    writer, trace = "0a0a0a0a", "4bf92f3577b34da6a3ce929d0e0e4736"
    assert run.info == RunInfo(
        run_id=CLOSED,
        project="demo",
        status="completed",
        start_time="2026-05-20T03:52:00.000000Z",
        end_time="2026-05-20T03:52:12.500000Z",
        duration_s=12.5,
        target="local",
        provider="local",
        tasks_submitted=1,
        tasks_completed=1,
        command=["python", "sweep.py"],
        cwd="/home/ada/sweep",
        host="node-1",
        pid=4242,
        pid_start=123456.0,
        heartbeat="2026-05-20T03:52:12.000000Z",
        python="3.12.4",
        git_commit="4f2d9a1",
        git_dirty=False,
        tags={"study": "sir"},
        trace_id=trace,
        span_id="00f067aa0ba902b7",
        writer=writer,
        sample_interval_s=1.0,
        schema_version=1,
        flightlog_version="0.1.0",
        overhead={"cpu_s": 0.01},
    )
    assert run.streams() == ["spans", "tasks"]
    assert list(run.events("tasks")) == [
        TaskSubmitted(
            timestamp="2026-05-20T03:52:01.000000Z",
            writer=writer,
            seq=0,
            task="simulate",
            task_id="t1",
            args={"seed": 42},
        ),
        TaskStarted(
            timestamp="2026-05-20T03:52:01.250000Z",
            writer=writer,
            seq=1,
            task="simulate",
            task_id="t1",
            worker="w1",
            queue_s=0.25,
        ),
        TaskCompleted(
            timestamp="2026-05-20T03:52:03.250000Z",
            writer=writer,
            seq=2,
            task="simulate",
            task_id="t1",
            args={"seed": 42},
            worker="w1",
            duration_s=2.0,
            queue_s=0.25,
            cpu_s=1.9,
            cpu_scope="thread",
            peak_rss_bytes=104857600,
            rss_scope="process",
        ),
    ]
    linked = {
        "event": "span_linked",
        "timestamp": "2026-05-20T03:52:02.000000Z",
        "writer": writer,
        "seq": 1,
        "to": "b7ad6b7169203331",
    }
    assert list(run.events("spans")) == [
        SpanEvent(
            timestamp="2026-05-20T03:52:01.300000Z",
            writer=writer,
            seq=0,
            name="solve",
            tags={"ü": "\u2028"},
            metrics={"loss": 0.3},
            status="ok",
            duration_s=1.5,
            trace_id=trace,
            span_id="b7ad6b7169203331",
            parent_id="00f067aa0ba902b7",
        ),
        UnknownEvent("span_linked", linked),
    ]
    assert run.writers() == [
        WriterInfo(
            writer=writer,
            pid=4242,
            host="node-1",
            pid_start=123456.0,
            started="2026-05-20T03:52:00.000000Z",
            heartbeat="2026-05-20T03:52:12.500000Z",
            closed=True,
            owner=True,
            lines={"tasks": 3, "spans": 2},
            bytes=1000,
        )
    ]
    assert run.completeness() == Completeness(
        lines=5,
        lost={},
        torn=0,
        foreign=0,
        oversized=0,
        doubled=0,
        unknown=1,
        unnumbered=0,
        writers=1,
        writers_open=0,
        problems=("spans: 1 line of a kind this version does not know",),
    )
    assert (run.status, run.ending()) == ("completed", Ending("2026-05-20T03:52:12.500000Z", 12.5))
    assert verify_files(run.path) == []


def test_the_killed_golden_run_loads_with_what_its_tails_hold():
    run = open_run(KILLED, runs_dir=GOLDEN, observer=HERE)
    assert run.info == RunInfo(
        run_id=KILLED,
        project="sweep",
        status="running",
        start_time="2026-05-21T10:15:00.000000Z",
        host="node-1",
        pid=77,
        pid_start=500.0,
        heartbeat="2026-05-21T10:15:08.000000Z",
        writer="0c0c0c0c",
    )
    reading = run.read()
    assert sorted(reading.events("metrics"), key=lambda event: (event.writer, event.seq)) == [
        Metric(
            timestamp=f"2026-05-21T10:15:{seq:02d}.000000Z",
            writer=writer,
            seq=seq,
            name="loss",
            value=float(seq),
            step=seq,
        )
        for writer, seqs in (("0c0c0c0c", range(6)), ("0d0d0d0d", (0, 1, 3)))
        for seq in seqs
    ]
    assert run.completeness(reading) == Completeness(
        lines=9,
        lost={"metrics": 1},
        torn=2,
        foreign=1,
        oversized=0,
        doubled=1,
        unknown=0,
        unnumbered=0,
        writers=2,
        writers_open=2,
        problems=(
            "metrics: 1 line of writer 0d0d0d0d lost: no. 2",
            "writer 0d0d0d0d could not write 1 line: No space left on device",
            "metrics: 2 lines cut off in the middle",
            "metrics: 1 line without an event",
            "metrics: 1 line standing twice, taken once",
            "2 processes did not close the record (0c0c0c0c, 0d0d0d0d): whether more was to come is unknown",
        ),
        reasons={"No space left on device": 1},
        writers_unknown=2,
    )
    assert (run.status, run.ending(reading)) == ("crashed", Ending("2026-05-21T10:15:08.000000Z", 8.0))


FILES = sorted(file.relative_to(GOLDEN / KILLED) for file in (GOLDEN / KILLED).rglob("*") if file.is_file())


@settings(deadline=None)
@given(st.sampled_from(FILES), st.integers(0, 1024))
def test_a_run_with_any_file_cut_off_anywhere_opens(tmp_path_factory, file, cut):
    whole = open_run(GOLDEN / KILLED, observer=HERE)
    folder = tmp_path_factory.mktemp("cut") / KILLED
    shutil.copytree(GOLDEN / KILLED, folder)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:cut])
    run = open_run(folder, observer=HERE)
    assert run.status in {"crashed", "unknown"}
    assert run.run_id == whole.run_id
    kept = {(event.writer, event.seq) for event in run.events("metrics")}
    before = {(event.writer, event.seq) for event in whole.events("metrics")}
    gone = before - kept
    assert kept <= before
    assert all(f'"seq":{seq},'.encode() in content for _, seq in gone)
    assert run.completeness().lines == len(kept)
    assert run.ending().end_time is not None
    shutil.rmtree(folder)


# --- which run


def test_latest_is_the_run_that_started_last_whatever_its_name(tmp_path):
    make_run(tmp_path, project="zebra", token="00000001", start_time=at(5))
    later = make_run(tmp_path, project="ant", token="00000002", start_time=at(9))
    for ref in ("latest", "last"):
        assert open_run(ref, runs_dir=tmp_path, observer=HERE).path == later
    (later / layout.RUN).write_bytes(b"{")  # then its name tells the time, which is the same for both
    assert open_run(runs_dir=str(tmp_path), observer=HERE).info.project == "zebra"


def test_a_run_is_found_by_id_prefix_token_and_path(tmp_path, monkeypatch):
    path = make_run(tmp_path, metrics(1.0), token="feed0001")
    make_run(tmp_path, project="other", token="beef0002")
    (tmp_path / "link").symlink_to(path, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    for ref in (path.name, path.name[:-4], "feed", "feed0001", path, str(path), f"{path}/", "./link/"):
        run = open_run(ref, runs_dir=tmp_path, observer=HERE)
        assert (run.run_id, len(list(run.events("metrics")))) == (path.name, 1)
    monkeypatch.chdir(path)
    assert open_run(".", runs_dir=tmp_path, observer=HERE).run_id == path.name


def test_a_run_is_found_by_the_first_digits_of_its_token_behind_run(tmp_path):
    path = make_run(tmp_path, metrics(1.0), token="abc12345")
    make_run(tmp_path, metrics(1.0), token="def45678")
    assert open_run("run-abc123", runs_dir=tmp_path).path == path


def test_the_id_of_a_job_names_the_newest_run_that_is_tagged_with_it(tmp_path):
    tags = {"job_id": "job-abc123"}
    make_run(tmp_path, metrics(1.0), token="a0000000", tags=tags)
    newest = make_run(tmp_path, metrics(1.0), token="a0000001", tags=tags, start_time="2026-05-21T00:00:00Z")
    make_run(tmp_path, metrics(1.0), token="a0000002")
    assert open_run("job-abc123", runs_dir=tmp_path).path == newest
    for unknown in ("job-abc", "None"):
        with pytest.raises(RunNotFound):
            open_run(unknown, runs_dir=tmp_path)


def test_the_id_of_a_job_that_another_run_begins_with_is_ambiguous(tmp_path):
    other = make_run(tmp_path, token="12300000")
    tagged = make_run(tmp_path, token="45600000", tags={"job_id": 123})
    with pytest.raises(AmbiguousRun) as error:
        open_run("123", runs_dir=tmp_path)
    assert str(error.value) == (
        f"2 runs in {tmp_path} begin with or have the tag job_id '123': {other.name}, {tagged.name}"
    )
    assert open_run("1230", runs_dir=tmp_path, observer=HERE).path == other
    assert open_run("456", runs_dir=tmp_path, observer=HERE).path == tagged


def test_the_configured_folder_of_runs_is_the_default(tmp_path, monkeypatch):
    path = make_run(tmp_path)
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path))
    assert open_run(observer=HERE).path == path


def test_an_exact_id_wins_over_a_longer_one_that_begins_with_it(tmp_path):
    path = make_run(tmp_path, project="a", token="11111111")
    make_run(tmp_path, project="a-11111111", token="22222222")
    assert open_run(path.name, runs_dir=tmp_path, observer=HERE).path == path


def test_a_prefix_that_several_runs_share_lists_them(tmp_path):
    for number in range(7):
        make_run(tmp_path, token=f"abc0000{number}")
    with pytest.raises(AmbiguousRun) as error:
        open_run("abc", runs_dir=tmp_path)
    ids = ", ".join(f"run-20260520T035200Z-demo-abc0000{number}" for number in range(5))
    assert str(error.value) == f"7 runs in {tmp_path} begin with 'abc': {ids}, …"


def test_a_missing_run_says_where_it_was_looked_for_and_what_is_close(tmp_path):
    make_run(tmp_path, token="abc00001")
    with pytest.raises(RunNotFound) as error:
        open_run("run-20260520T035200Z-demo-abc00002", runs_dir=tmp_path)
    assert str(error.value) == (
        f"no run 'run-20260520T035200Z-demo-abc00002' in {tmp_path}, which holds 1 run; "
        "close: run-20260520T035200Z-demo-abc00001"
    )
    with pytest.raises(RunNotFound, match="there are no runs in"):
        open_run(runs_dir=tmp_path / "nowhere")
    with pytest.raises(RunNotFound, match="there is no folder"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(RunNotFound, match="it holds 1 run: name one of them"):
        open_run(tmp_path)
    with pytest.raises(UsageError, match="an empty name"):
        open_run("", runs_dir=tmp_path)


# --- runs that are not whole


def test_a_run_without_run_json_is_described_by_its_name_and_events_and_says_so(tmp_path):
    path = make_run(
        tmp_path, [TaskSubmitted(task="f", task_id="1", args={}, timestamp=at(3))], recorder=False
    )
    (path / layout.RUN).unlink()
    run = open_run(path, observer=HERE)
    assert run.info == RunInfo(
        run_id=path.name,
        project="demo",
        status="unknown",
        start_time="",
        tasks_submitted=1,
    )
    assert (run.inferred, run.status, run.ending()) == (True, "unknown", Ending(at(3), None))
    assert run.completeness().problems == (
        "run.json: No such file or directory; the run is described by its folder's name and its events; "
        "when it started, and with it how long it took, is unknown",
        "1 process did not close the record (w0000001): whether more was to come is unknown",
    )


def test_a_folder_with_events_alone_is_a_run(tmp_path):
    path = make_run(tmp_path, [Metric(name="loss", value=1.0, timestamp=at(7))], recorder=False)
    (path / layout.RUN).unlink()
    copy = path.rename(tmp_path / "copied")
    run = open_run(copy, observer=HERE)
    assert (run.run_id, run.info.project, run.info.start_time) == ("copied", "copied", "")


def test_the_owner_tells_whether_a_run_without_run_json_still_runs(tmp_path):
    path = make_run(tmp_path, metrics(1.0), recorder=False)
    (path / layout.RUN).unlink()
    folder = layout.writer_folder(path, "w0000001")
    folder.mkdir(parents=True)
    owner = WriterInfo(writer="w0000001", pid=9, host="here", pid_start=5.0, owner=True, started=at(1))
    write_document(folder / layout.WRITER, owner)
    for start, status in ((5.0, "running"), (6.0, "crashed"), (None, "crashed")):
        observer = Observer(now=NOW, host="here", process_started=lambda _pid, start=start: start)
        assert open_run(path, observer=observer).status == status


def test_a_directory_in_which_nothing_can_be_read_is_damaged(tmp_path):
    path = make_run(tmp_path)
    (path / layout.RUN).write_bytes(b'{"run_id": "ru')
    (path / "tasks.jsonl").touch()
    with pytest.raises(DamagedRun, match="holds nothing that can be read"):
        open_run(path)


def test_opening_and_reading_change_nothing(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "runs")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    run = open_run(KILLED, runs_dir=tmp_path / "runs", observer=HERE)
    run.completeness()
    assert run.size_bytes() == sum(len(content) for file, content in before.items() if KILLED in file.parts)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


# --- whether it runs


@pytest.mark.parametrize(
    ("info", "start", "status"),
    [
        ({"host": "here", "pid_start": 5.0}, 5.0, "running"),
        ({"host": "here", "pid_start": 5.0}, 6.0, "crashed"),
        ({"host": "here", "pid_start": 5.0}, None, "crashed"),
        ({"host": "here", "pid_start": None, "heartbeat": "2026-05-21T21:46:39Z"}, 6.0, "running"),
        ({"host": "here", "pid_start": None, "heartbeat": "2026-05-21T21:45:39Z"}, 6.0, "crashed"),
        ({"host": "there", "heartbeat": "2026-05-21T21:45:41Z"}, 5.0, "running"),
        ({"host": "there", "heartbeat": "2026-05-21T21:45:39Z"}, 5.0, "crashed"),
        ({"host": "there", "heartbeat": "soon"}, 5.0, "crashed"),
        ({"host": "there", "status": "failed"}, None, "failed"),
    ],
)
def test_a_run_runs_while_its_process_lives_or_its_heartbeat_is_young(info, start, status):
    assert unix_time("2026-05-21T21:46:40Z") == NOW
    fields = {"run_id": "r", "project": "p", "status": "running", "start_time": at(0), "pid": 9, **info}
    observer = Observer(now=NOW, host="here", process_started=lambda _pid: start)
    assert observer.status(RunInfo(**fields)) == status


def test_a_process_is_named_by_its_start_and_a_zombie_is_gone(tmp_path):
    stat = "{pid} (a) b (c) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 98765 20 21"
    for pid, state in ((1, "S"), (2, "Z")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat.format(pid=pid, state=state))
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "stat").write_text("3 (torn")
    assert [process_start(pid, tmp_path) for pid in (1, 2, 3, 4, 0, -1)] == [98765.0, *[None] * 5]


def test_this_very_process_is_alive():
    import os

    started = process_start(os.getpid())
    assert started is not None
    assert process_start(os.getpid()) == started
    assert this_host()


def test_the_latest_timestamp_is_by_time_and_not_by_text():
    assert (
        latest("2026-05-20T05:00:00+02:00", None, "", "junk", "2026-05-20T04:00:00Z")
        == "2026-05-20T04:00:00Z"
    )
    assert latest(None, "junk") is None


def test_a_running_run_has_no_end_and_lasts_to_its_heartbeat(tmp_path):
    path = make_run(
        tmp_path, status="running", end_time=None, duration_s=None, heartbeat=at(4.5), pid_start=5.0
    )
    observer = Observer(now=NOW, host="node-1", process_started=lambda _pid: 5.0)
    run = open_run(path, observer=observer)
    assert (run.status, run.ending()) == ("running", Ending(None, 4.5))


# --- documents


def test_a_document_with_an_odd_field_keeps_the_others(tmp_path):
    file = tmp_path / "writer.json"
    file.write_bytes(b'{"writer": "aa", "pid": "nine", "host": "h", "closed": 1, "bytes": 7, "new": {}}')
    assert read_document(file, WriterInfo).problem == ("writer.json: not valid: pid, closed")
    file.write_bytes(b'{"writer": "aa", "pid": 9, "host": "h", "closed": 1, "bytes": 7, "new": {}}')
    read = read_document(file, WriterInfo)
    assert read.value == WriterInfo(writer="aa", pid=9, host="h", bytes=7)
    assert read.problem == "writer.json: not valid: closed"


@given(st.integers(0, 2000))
def test_a_document_cut_off_anywhere_is_none_with_a_reason(cut):
    from flightlog.store.documents import decode_document

    content = (GOLDEN / CLOSED / layout.RUN).read_bytes()
    read = decode_document(content[:cut], RunInfo, "run.json")
    if cut >= len(content) - 1:  # the newline at the end
        assert read.value is not None
    else:
        assert read.value is None
        assert "run.json: not a whole JSON document" in (read.problem or "")


def test_a_document_with_a_wrong_field_and_damage_behind_it_is_no_document():
    from flightlog.store.documents import decode_document

    read = decode_document(b'{"run_id": 5, "project": ', RunInfo, "run.json")
    assert read.value is None
    assert read.problem is not None
    assert read.problem.startswith("run.json: not a whole JSON document")


def test_a_document_is_replaced_in_one_step_and_nothing_is_left_behind(tmp_path):
    file = tmp_path / "recorder.json"
    info = WriterInfo(writer="aa", pid=1, host="h", drain_s=float("nan"))
    for durable in (False, True):
        write_document(file, RecorderInfo(writers=[info]), durable=durable)
    assert [entry.name for entry in tmp_path.iterdir()] == ["recorder.json"]
    text = file.read_text()
    assert text.endswith("}\n")
    assert msgspec.json.decode(text)["writers"][0]["drain_s"] is None


def test_a_document_that_cannot_be_written_leaves_the_old_one(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(OSError):
        write_document(tmp_path / "run.json", {"a": 1})
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("recorder", [True, False], ids=["writers tell", "run.json alone tells"])
def test_tasks_that_were_counted_and_are_not_there_are_lost(tmp_path: Path, recorder: bool) -> None:
    submitted = [TaskSubmitted(timestamp=at(n), task="fit", task_id=f"t{n}", args={}) for n in range(3)]
    path = make_run(tmp_path, submitted, tasks_submitted=3, recorder=recorder)
    assert open_run(path).completeness().lost == {}
    (path / "tasks.jsonl").unlink()
    found = open_run(path).completeness()
    assert (found.lines, found.lost, len(found.problems)) == (0, {"tasks": 3}, 1)
    said = report_text(report_on(open_run(path)))
    assert "incomplete: 3 of 3 lines are lost, and missing from all numbers below" in said


def test_a_run_that_goes_on_may_have_counted_tasks_before_their_lines_are_written(tmp_path: Path) -> None:
    info = {"status": "running", "end_time": None, "duration_s": None, "tasks_submitted": 3}
    process = {"host": this_host(), "pid": os.getpid(), "pid_start": process_start(os.getpid())}
    path = make_run(tmp_path, recorder=False, **info, **process)
    run = open_run(path)
    assert (run.status, run.completeness().lost) == ("running", {})
