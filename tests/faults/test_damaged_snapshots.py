"""Parquet snapshots that are damaged in any way give no wrong answer: the lines are read, verify tells,
compact repairs."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from builders.runs import at, make_run

from flightlog.analyze.compare.compare import compare_groups
from flightlog.analyze.compare.run_groups import RunGroup
from flightlog.analyze.report.report import keep_report, report_bytes, report_on
from flightlog.analyze.verify import verify
from flightlog.cli.main import main
from flightlog.core.errors import DamagedSnapshot
from flightlog.events import Metric, SpanEvent, TaskCompleted, TaskFailed, TaskStarted, define_event
from flightlog.store.headline import headline_bytes, headline_of
from flightlog.store.integrity import write_checksums
from flightlog.store.limits import StoreLimits
from flightlog.store.read.files import find_parts
from flightlog.store.run import Run
from flightlog.store.tables import snapshots
from flightlog.store.tables.parquet import snapshot_run
from flightlog.store.tables.run_tables import open_tables, read_again
from flightlog.store.tables.snapshots import Snapshots

Step = define_event("damaged_snapshots.Step", loss=float)
TABLES = ("task_events", "attempts", "tasks", "span_events", "spans", "metrics", "user_damaged_snapshots")
FILES = ("metrics", "spans", "tasks", "user.damaged_snapshots", "views/attempts", "views/spans")


def make(folder: Path, token: str = "a1b2c3d4", tasks: int = 30) -> Run:
    events = []
    for n in range(tasks):
        common = {"task": "sim", "task_id": f"t{n}", "worker": f"w{n % 3}"}
        events.append(TaskStarted(timestamp=at(n), queue_s=0.5, **common))
        common |= {"timestamp": at(n + 1), "duration_s": 1.0 + n / tasks, "args": {"seed": n}}
        failed = n % 7 == 0
        events.append(
            TaskFailed(error_type="E", error_message="no", **common) if failed else TaskCompleted(**common)
        )
        events.append(Metric(timestamp=at(n), name="loss", value=n / 8))
        events.append(SpanEvent(timestamp=at(n), name="step", span_id=f"s{n}", duration_s=0.5))
    path = make_run(
        folder, [*events, Step(loss=0.5)], token=token, end_time=at(tasks), duration_s=float(tasks)
    )
    write_checksums(path)
    return Run(path)


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> Run:
    """A run that was never compacted."""
    return make(tmp_path_factory.mktemp("lines"))


@pytest.fixture(scope="module")
def whole(lines, tmp_path_factory) -> Path:
    """The same run, compacted."""
    path = tmp_path_factory.mktemp("whole") / lines.path.name
    shutil.copytree(lines.path, path)
    run = Run(path)
    assert set(snapshot_run(run)) == set(FILES)
    assert keep_report(run, from_bytes=0)
    return path


@pytest.fixture
def run(whole, tmp_path) -> Path:
    shutil.copytree(whole, tmp_path / whole.name)
    return tmp_path / whole.name


def rows(run: Run) -> dict[str, list[tuple[object, ...]]]:
    with open_tables([run]) as connection:
        return {table: sorted(connection.execute(f"FROM {table}").fetchall(), key=repr) for table in TABLES}


@pytest.fixture(scope="module")
def expected(lines) -> dict[str, list[tuple[object, ...]]]:
    return rows(lines)


def flip(file: Path, position: int, bit: int) -> None:
    """Change one bit and nothing that the file system tells of a file but the time of that change."""
    before = file.stat()
    with file.open("r+b") as opened:
        opened.seek(position)
        (byte,) = opened.read(1)
        opened.seek(position)
        opened.write(bytes([byte ^ (1 << bit)]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_each_of_hundreds_of_flipped_bits_is_seen(run):
    dice = random.Random(18)
    folder, parts = run / "parquet", find_parts(run)
    seen, flips = 0, 0
    for name in FILES:
        file = folder / f"{name}.parquet"
        size = file.stat().st_size
        for position in sorted({0, 4, size - 1, size - 5, *(dice.randrange(size) for _ in range(60))}):
            bit = dice.randrange(8)
            flip(file, position, bit)
            seen += Snapshots(run, parts).damaged().keys() == {name}
            flip(file, position, bit)
            flips += 1
    assert (seen, Snapshots(run, parts).damaged()) == (flips, {})
    assert flips > 300


def test_answers_are_those_of_the_lines_whatever_bit_is_flipped(run, expected):
    dice = random.Random(19)
    for name in FILES:
        file = run / "parquet" / f"{name}.parquet"
        for _ in range(2):
            position, bit = dice.randrange(file.stat().st_size), dice.randrange(8)
            flip(file, position, bit)
            told: list[str] = []
            assert rows(Run(run, note=told.append)) == expected
            assert [note.split(" is damaged")[0] for note in told] == [f"{run.name}: parquet/{name}.parquet"]
            flip(file, position, bit)


def _cut(to: float) -> Callable[[Path, Path], None]:
    return lambda file, _: os.truncate(file, int(file.stat().st_size * to))


def _zeros(file: Path, _: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def _garbage(file: Path, _: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"garbage")


def _of_another_run(file: Path, other: Path) -> None:
    shutil.copyfile(other / "parquet" / file.name, file)


def _replaced(make: Callable[[Path], object]) -> Callable[[Path, Path], None]:
    def damage(file: Path, _: Path) -> None:
        file.unlink()
        make(file)

    return damage


def _link(file: Path) -> None:
    elsewhere = file.parent.parent.parent / "elsewhere.parquet"
    elsewhere.write_bytes(b"precious")
    file.symlink_to(elsewhere)


DAMAGE = {
    "emptied": _cut(0.0),
    "cut in half": _cut(0.5),
    "cut at its end": _cut(0.999),
    "zeros": _zeros,
    "garbage behind": _garbage,
    "another run's": _of_another_run,
    "missing": _replaced(lambda file: None),
    "a folder": _replaced(Path.mkdir),
    "a pipe": _replaced(os.mkfifo),
    "a link": _replaced(_link),
}


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    made = make(tmp_path_factory.mktemp("other"), "0000000f", tasks=31)
    snapshot_run(made)
    return made.path


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_costs_no_answer_is_named_by_verify_and_repaired_by_compact(
    run, expected, other, damage, capsys, tmp_path
):
    file = run / "parquet/tasks.parquet"
    DAMAGE[damage](file, other)
    assert rows(Run(run, note=lambda _: None)) == expected
    assert main(["sql", "SELECT count(*) AS n FROM task_events", "--run", str(run), "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert out == "n\n60\n"
    assert err.count(f"{run.name}: parquet/tasks.parquet ") == 1
    assert main(["verify", str(run)]) == 1
    assert "tasks.parquet" in capsys.readouterr().out
    assert main(["compact", str(run)]) == 0
    assert main(["verify", str(run)]) == 0
    assert "moved" not in str([path.name for path in (run / "parquet").iterdir()]) or damage == "a folder"
    elsewhere = tmp_path / "elsewhere.parquet"
    assert not elsewhere.exists() or elsewhere.read_bytes() == b"precious"


def test_reports_and_comparisons_over_damaged_snapshots_are_those_of_the_lines(run, lines):
    def answers(one: Run) -> tuple[bytes, bytes]:
        other = make(run.parent / one.path.parent.name, "0000000f", tasks=25)
        compared = compare_groups(RunGroup("a", (other,)), RunGroup("b", (one,)))
        return report_bytes(report_on(one)), msgspec.json.encode(compared)

    for name in FILES:
        _zeros(run / "parquet" / f"{name}.parquet", run)
    flip(run / "parquet/report.json", 1000, 0)
    told: list[str] = []
    assert answers(Run(run, note=told.append)) == answers(lines)
    assert {note.split(": ")[1].split(" ")[0] for note in told} >= {
        "parquet/report.json",
        "parquet/tasks.parquet",
        "parquet/views/attempts.parquet",
        "parquet/views/spans.parquet",
    }


def test_an_error_in_the_middle_of_a_query_makes_it_be_asked_again_of_the_lines(run):
    calls: list[int] = []
    file = run / "parquet/tasks.parquet"
    whole = file.read_bytes()
    opened = Run(run, note=lambda _: None)

    def ask() -> list[tuple[object, ...]]:
        @read_again
        def asked() -> list[tuple[object, ...]]:
            with open_tables([opened]) as tables:
                tables.make(["task_events"])
                if not calls:
                    file.write_bytes(bytes(len(whole)))  # checked, and damaged before it is read
                calls.append(1)
                return tables.execute("SELECT count(*) FROM task_events").fetchall()

        return asked()

    assert (ask(), len(calls)) == ([(60,)], 2)


def test_a_snapshot_that_fails_while_it_is_read_is_an_error_of_its_own_and_no_answer(run):
    def ask() -> list[tuple[object, ...]]:
        with open_tables([Run(run)]) as tables:
            tables.make(["task_events"])
            _zeros(run / "parquet/tasks.parquet", run)
            return tables.execute("FROM task_events").fetchall()

    with pytest.raises(DamagedSnapshot):
        ask()


def test_a_file_is_hashed_once_by_a_process_while_it_is_known_to_be_unchanged(run, monkeypatch):
    hashed: list[int] = []
    digest = snapshots.hashlib.file_digest
    monkeypatch.setattr(StoreLimits, "file_settled_ns", -1)
    monkeypatch.setattr(
        snapshots.hashlib, "file_digest", lambda file, name: hashed.append(1) or digest(file, name)
    )
    parts = find_parts(run)
    assert [Snapshots(run, parts).damaged() for _ in range(3)] == [{}, {}, {}]
    assert len(hashed) == len(FILES)


def test_notes_that_cannot_be_read_are_told_and_made_again(run, expected):
    (run / "parquet/snapshot.json").write_bytes(b'{"tasks": ')
    told: list[str] = []
    assert rows(Run(run, note=told.append)) == expected
    assert ["parquet/snapshot.json" in note for note in told] == [True]
    assert not verify(Run(run)).ok
    snapshot_run(Run(run))
    assert verify(Run(run)).ok


def test_repair_makes_again_what_the_lines_tell_and_leaves_nothing_wrong(run, capsys):
    summary = run / "summary.json"
    summary.write_bytes(headline_bytes(headline_of(Run(run))))
    write_checksums(run)
    before = {path.name: path.read_bytes() for path in run.glob("*.json*")}
    flip(summary, 40, 0)
    _zeros(run / "parquet/views/spans.parquet", run)
    flip(run / "parquet/report.json", 1000, 0)
    assert main(["verify", str(run)]) == 1
    assert f"`flightlog verify {run.name} --repair` makes them again" in capsys.readouterr().out
    assert main(["verify", str(run), "--repair"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == [
        f"{run.name}: summary.json was computed again",
        f"{run.name}: parquet: spans.parquet, views/spans.parquet made again from the lines",
    ]
    assert err == ""
    assert {path.name: path.read_bytes() for path in run.glob("*.json*")} == before
    assert main(["verify", str(run), "--repair"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{run.name}: there is nothing to repair"


def test_repair_leaves_lines_that_changed_as_they_are_and_says_so(run, capsys):
    lines = run / "metrics.jsonl"
    flip(lines, 30, 1)
    changed = lines.read_bytes()
    assert main(["verify", str(run), "--repair"]) == 1
    out, err = capsys.readouterr()
    assert "metrics.jsonl changed" in out
    assert "cannot be repaired" in err
    assert lines.read_bytes() == changed


@pytest.mark.parametrize(
    ("most", "written"), [(1 << 30, "summary and checksums"), (0, "checksums")], ids=["small", "large"]
)
def test_repair_closes_a_run_that_was_killed(lines, tmp_path, capsys, monkeypatch, most, written):
    monkeypatch.setattr(StoreLimits, "max_completed_summary_bytes", most)
    run = tmp_path / lines.path.name
    shutil.copytree(lines.path, run)
    (run / "checksums.json").unlink()
    (run / "summary.json").unlink(missing_ok=True)
    before = {path.name: path.read_bytes() for path in run.glob("*.jsonl")}
    assert main(["verify", str(run)]) == 1
    assert main(["verify", str(run), "--repair"]) == 0
    said = f"the run was closed: lines put together, {written} written"
    assert f"{run.name}: {said}" in capsys.readouterr().out.splitlines()
    assert {path.name: path.read_bytes() for path in run.glob("*.jsonl")} == before


def test_compact_writes_through_no_planted_link(lines, tmp_path, capsys):
    run, elsewhere = tmp_path / lines.path.name, tmp_path / "elsewhere"
    shutil.copytree(lines.path, run)
    elsewhere.mkdir()
    (run / "parquet").symlink_to(elsewhere)
    assert main(["compact", str(run)]) == 2
    assert f"{run}/parquet is a link to {elsewhere}" in capsys.readouterr().err
    (run / "parquet").unlink()
    (run / "parquet").mkdir()
    (run / "parquet/views").symlink_to(elsewhere)
    assert main(["compact", str(run)]) == 2
    assert list(elsewhere.iterdir()) == []
    (run / "parquet/views").unlink()
    targets = [tmp_path / f"target{n}" for n in range(3)]
    for target, name in zip(targets, ("snapshot.json", "tasks.parquet", "report.json"), strict=True):
        target.write_bytes(b"precious")
        (run / "parquet" / name).symlink_to(target)
    assert main(["compact", str(run)]) == 0
    assert [target.read_bytes() for target in targets] == [b"precious"] * 3
    assert Snapshots(run, find_parts(run)).damaged() == {}
