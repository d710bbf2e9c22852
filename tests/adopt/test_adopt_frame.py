"""The frame of adopting: what is recognized, torn and foreign lines, whole runs or none, bounded memory."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adopting import PEERS, STORMLOG, adopt_all, adopt_one, content, events_of
from hypothesis import given
from hypothesis import strategies as st

from flightlog.adopt import adopters, kind_of_path
from flightlog.adopt.run_maker import AdoptOptions, RunMaker, SourceRecording, make_runs
from flightlog.adopt.scratch import ScratchStore, nest
from flightlog.adopt.source_files import DocumentItems, SourceLines, moment_ns, stamp
from flightlog.core.errors import FlightlogError, UsageError
from flightlog.events import Metric, UserEvent
from flightlog.store.catalogue import run_paths

RHAPSODY = PEERS / "rhapsody" / "fixture.session.1794727371.telemetry.jsonl"


class Notes:
    """A kind made up for tests: a file of moments."""

    name = "notes"
    title = "file of moments"

    def recognize(self, path: Path) -> str | None:
        return "moments" if path.suffix == ".moments" else None

    def sources(self, path: Path) -> list[SourceRecording]:
        return [SourceRecording(path, (path,))]

    def adopt(self, source: SourceRecording, maker: RunMaker) -> None:
        for line in source.path.read_text().split():
            if line == "break":
                raise UsageError("this is where it ends")
            maker.add(Metric(name="moment", value=float(line)), int(float(line) * 1e9))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (PEERS / "scalable", "scalable"),
        (PEERS / "scalable" / "runs", "scalable"),
        (RHAPSODY, "rhapsody"),
        (PEERS / "rhapsody", "rhapsody"),
        (PEERS / "modelops", "modelops"),
        (STORMLOG, "stormlog"),
        (PEERS / "modelops" / "telemetry" / "jobs" / "job-abc123" / "spans.jsonl", "modelops"),
        (STORMLOG / "sink-rank0", "stormlog"),
        (STORMLOG / "sink-rank0" / "manifest.json", "stormlog"),
        (STORMLOG / "legacy.json", "stormlog"),
        (Path(__file__).with_name("slurm-22.05.json"), "slurm"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_recording_is_recognized_by_what_it_holds(path: Path, kind: str) -> None:
    assert kind_of_path(path) == kind


def test_accounting_is_recognized_without_the_note_of_who_wrote_it(tmp_path: Path) -> None:
    accounting = json.loads(Path(__file__).with_name("slurm-22.05.json").read_text())
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": accounting["jobs"]}))
    assert kind_of_path(tmp_path / "jobs.json") == "slurm"


def test_what_is_not_recognized_is_described_and_every_kind_named(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("shall I compare thee\n")
    with pytest.raises(UsageError, match="begins with b'shall I compare") as refused:
        kind_of_path(tmp_path / "poem.txt")
    assert all(f"{name}: " in str(refused.value) for name in [*adopters(), "slurm"])
    with pytest.raises(UsageError, match=r"a folder with poem\.txt"):
        kind_of_path(tmp_path)
    with pytest.raises(UsageError, match="there is no file or folder"):
        kind_of_path(tmp_path / "nothing")
    with pytest.raises(UsageError, match="there is no kind 'poem'"):
        kind_of_path(tmp_path, "poem")


def test_a_path_that_fits_two_kinds_asks_which(tmp_path: Path) -> None:
    shutil.copytree(PEERS / "modelops" / "telemetry" / "jobs" / "job-abc123", tmp_path / "both" / "job-1")
    shutil.copy(RHAPSODY, tmp_path / "both")
    with pytest.raises(
        UsageError, match=r"fits several kinds: modelops .*; rhapsody .*Say which with --kind"
    ):
        kind_of_path(tmp_path / "both")
    assert kind_of_path(tmp_path / "both", "modelops") == "modelops"


def test_a_run_of_ours_is_no_recording_of_another_tool(tmp_path: Path) -> None:
    _, run = adopt_one(RHAPSODY, tmp_path / "runs")
    with pytest.raises(UsageError, match="is a run of Flightlog already"):
        kind_of_path(run.path)


def test_an_adoption_that_breaks_off_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.moments").write_text("1000 1001 break")
    runs = tmp_path / "runs"
    runs.mkdir()
    with pytest.raises(UsageError, match="this is where it ends"):
        make_runs(
            Notes(),
            [SourceRecording(tmp_path / "a.moments", (tmp_path / "a.moments",))],
            runs,
            AdoptOptions(),
        )
    assert list(runs.iterdir()) == []


def test_a_recording_that_grew_is_another_run_and_a_copy_is_the_same(tmp_path: Path) -> None:
    file, copy, runs = tmp_path / "a.moments", tmp_path / "b.moments", tmp_path / "runs"
    runs.mkdir()

    def adopt(path: Path) -> Any:
        [one] = make_runs(Notes(), [SourceRecording(path, (path,))], runs, AdoptOptions())
        return one

    file.write_text("1000 1001")
    first = adopt(file)
    shutil.copy(file, copy)
    assert adopt(copy).run_id == first.run_id
    file.write_text("1000 1001 1002")
    grown = adopt(file)
    assert (grown.made, grown.events, len(run_paths(runs))) == (True, {"metric": 3}, 2)


def test_what_a_killed_adoption_left_is_no_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    left = runs / ".adopting-abc" / "run"
    left.mkdir(parents=True)
    (left / "metrics.jsonl").write_text('{"event":"metric"}\n')
    adoption, _ = adopt_one(RHAPSODY, runs)
    assert [path.name for path in run_paths(runs)] == [adoption.run_id]


def test_two_processes_that_adopt_at_once_make_one_run(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = [
        sys.executable,
        "-m",
        "flightlog",
        "adopt",
        str(RHAPSODY),
        "--runs-dir",
        str(runs),
        "--format",
        "json",
    ]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    said = [json.loads(process.communicate()[0])[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sorted(one["made"] for one in said) == [False, True]
    assert [path.name for path in run_paths(runs)] == [said[0]["run_id"]] == [said[1]["run_id"]]
    assert not list(runs.glob(".adopting-*"))


def test_a_disk_that_refuses_the_scratch_store_is_one_clear_error(tmp_path: Path) -> None:
    def fill() -> None:
        with ScratchStore(tmp_path) as scratch:
            scratch._db.execute("PRAGMA max_page_count = 5")
            for number in range(1000):
                scratch.place("lane", number, 0, "x" * 1000)

    with pytest.raises(FlightlogError, match="cannot put the recording in order in"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_the_project_can_be_given(tmp_path: Path) -> None:
    _, run = adopt_one(RHAPSODY, tmp_path / "runs", project="mine")
    assert run.info.project == "mine"
    assert run.run_id.startswith("run-20261115T072251Z-mine-")


LINES = st.lists(
    st.one_of(
        st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=3).map(
            lambda value: (value, json.dumps(value).encode())
        ),
        st.sampled_from([b"", b"  ", b"[1]", b"torn {", b"\xff\xfe", b"3", b'"text"', b"nul"]).map(
            lambda line: (None, line)
        ),
    ),
    max_size=20,
)


@given(lines=LINES, packed=st.booleans(), cut=st.booleans())
def test_foreign_lines_cost_no_other_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[Any, bytes]], packed: bool, cut: bool
) -> None:
    file = tmp_path_factory.mktemp("lines") / "x.jsonl"
    data = b"".join(line + b"\n" for _, line in lines) + (b'{"a": 1, "b' if cut else b"")
    file.write_bytes(gzip.compress(data) if packed else data)
    source = SourceLines(file)
    assert list(source) == [value for value, _ in lines if value is not None]
    foreign = sum(value is None and bool(line.strip()) for value, line in lines)
    assert (source.read, source.foreign, source.torn) == (
        len(lines) - sum(v is None for v, _ in lines),
        foreign,
        cut,
    )


def test_numbers_that_json_has_no_form_for_are_taken_as_python_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"a": NaN}\n{"a": -Infinity}\n')
    assert [str(record["a"]) for record in SourceLines(file)] == ["nan", "-inf"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(items=st.lists(JSON, max_size=10), wrapped=st.booleans(), indent=st.sampled_from([None, 1]))
def test_the_items_of_a_document_are_those_that_a_parser_of_the_whole_finds(
    tmp_path_factory: pytest.TempPathFactory, items: list[Any], wrapped: bool, indent: int | None
) -> None:
    file = tmp_path_factory.mktemp("items") / "x.json"
    document = {"before": {"a": [1]}, "traceEvents": items, "after": "b"} if wrapped else items
    file.write_text(json.dumps(document, indent=indent))
    found = DocumentItems(file, "traceEvents")
    assert list(found) == items
    assert found.others == ({"before": {"a": [1]}, "after": "b"} if wrapped else {})
    assert not found.torn


@given(items=st.lists(st.integers() | st.text(), min_size=1, max_size=6), data=st.data())
def test_of_a_document_that_ends_in_the_middle_the_items_before_are_given(
    tmp_path_factory: pytest.TempPathFactory, items: list[Any], data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("items") / "x.json"
    text = json.dumps(items)
    end = data.draw(st.integers(1, len(text) - 1))
    file.write_text(text[:end])
    found = DocumentItems(file, "traceEvents")
    given_out = list(found)
    assert found.torn
    whole = given_out[:-1]
    assert whole == items[: len(whole)]  # the last may be a number that was cut


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=30))
def test_an_interval_lies_inside_the_shortest_earlier_one_that_holds_it(
    intervals: list[tuple[int, int]],
) -> None:
    placed = sorted(((a, a + b) for a, b in intervals), key=lambda one: (one[0], -one[1]))
    found = list(nest(("lane", a, b, None) for a, b in placed))
    for one in found:
        holding = [
            (other.end, -other.number)
            for other in found[: one.number]
            if other.begin <= one.begin
            and other.end >= one.end
            and other.end > other.begin
            and (other.end > one.begin or one.end == one.begin)
        ]
        if one.parent is None:
            assert holding == []
        else:
            assert (found[one.parent].end, -one.parent) in holding


@given(st.integers(0, 253_402_300_799_999_999_999))
def test_a_timestamp_gives_its_moment_back_to_the_microsecond(ns: int) -> None:
    assert moment_ns(stamp(ns)) == ns // 1000 * 1000


@pytest.mark.parametrize(
    "value", [None, True, "yesterday", "", float("nan"), float("inf"), -1, 1e300, [], "1960-01-01"]
)
def test_what_is_no_moment_is_none(value: Any) -> None:
    assert moment_ns(value) is None


@given(cut=st.integers(0, 50_000))
def test_a_checkpoint_cut_anywhere_is_adopted_up_to_there(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    data = RHAPSODY.read_bytes()[:cut]
    file = folder / "x.telemetry.jsonl"
    file.write_bytes(data)
    whole = [
        json.loads(line)
        for line in data.split(b"\n")
        if line.endswith(b"}") and line.count(b"{") == line.count(b"}")
    ]
    if not any(record["section"] == "event" for record in whole):
        with pytest.raises(UsageError):
            adopt_all(file, folder / "runs", kind="rhapsody")
        return
    adoption, run = adopt_one(file, folder / "runs", kind="rhapsody")
    assert adoption.events.get("task_completed", 0) == sum(
        record.get("event_type") == "TaskCompleted" for record in whole
    )
    assert len(events_of(run, "tasks")) == sum(
        record.get("event_type") in {"TaskSubmitted", "TaskQueued", "TaskCompleted", "TaskFailed"}
        for record in whole
    )


ADOPT_MANY = """
import resource, sys
from pathlib import Path
from flightlog.adopt.run_maker import AdoptOptions
from flightlog.adopt import adopt_path
folder = Path(sys.argv[1])
few = adopt_path(folder / "few.jsonl", folder / "runs", options=AdoptOptions(mapping=folder / "map.yaml"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
many = adopt_path(folder / "many.jsonl", folder / "runs", options=AdoptOptions(mapping=folder / "map.yaml"))
print(many[0].events["metric"], (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""


def test_many_lines_take_no_more_memory_than_a_few(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "map.yaml").write_text("kind: metric\ntime: t\nname: =loss\nvalue: v\ntags: []\n")
    for name, count in (("few", 5_000), ("many", 100_000)):
        with (tmp_path / f"{name}.jsonl").open("w") as out:
            out.writelines(f'{{"t": {1_779_249_120 + n}, "v": {n}}}\n' for n in range(count))
    done = subprocess.run(
        [sys.executable, "-c", ADOPT_MANY, str(tmp_path)], capture_output=True, text=True, check=True
    )
    metrics, grown = map(int, done.stdout.split())
    assert metrics == 100_000
    assert grown < 8 << 20  # to keep them all takes 20 MiB and more


def test_text_of_a_recording_is_bounded_and_redacted(tmp_path: Path) -> None:
    file = tmp_path / "s.telemetry.jsonl"
    event = {
        "event_type": "custom",
        "event_time": 1.0,
        "session_id": "s",
        "section": "event",
        "password": "hunter2",
    }
    file.write_text(json.dumps({**event, "note": "x" * 100_000}) + "\n")
    before = content(tmp_path)
    _, run = adopt_one(file, tmp_path / "runs")
    [user] = events_of(run, "events")
    assert isinstance(user, UserEvent)
    assert "hunter2" not in (run.path / "events.jsonl").read_text()
    assert len(user.fields["note"]) < 5000
    assert {name: content(tmp_path)[name] for name in before} == before
