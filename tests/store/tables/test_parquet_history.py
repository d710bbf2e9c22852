from __future__ import annotations

import json

import duckdb
import fsspec
import pyarrow.dataset
import pytest
from builders.runs import at, make_run

from flightlog.core.errors import UsageError
from flightlog.events import Metric, TaskCompleted
from flightlog.store.run import Run
from flightlog.store.tables.parquet import UNKNOWN, HistoryFolder, add_to_history, open_history, partition_of


def make(folder, *durations: float, project: str = "demo", **more) -> Run:
    events = [
        TaskCompleted(
            timestamp=at(n), task="sim", task_id=f"t{n}", worker="w", args={"n": n}, duration_s=duration
        )
        for n, duration in enumerate(durations)
    ]
    return Run(make_run(folder, events, project=project, **more))


def files_in(folder) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def asked(query: str) -> list[tuple]:
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def test_a_history_is_one_folder_a_table_with_partitions_that_duckdb_knows(tmp_path):
    history = tmp_path / "history"
    one, two = (
        make(tmp_path, 1.0, 3.0),
        make(tmp_path, 5.0, project="other", start_time="2026-05-21T00:00:00.000000Z"),
    )
    assert add_to_history(one, HistoryFolder(history)) == {
        "attempts": 2,
        "tasks": 2,
        "runs": 1,
        "task_events": 2,
    }
    assert add_to_history(two, HistoryFolder(history)) == {
        "attempts": 1,
        "tasks": 1,
        "runs": 1,
        "task_events": 1,
    }
    assert [name for name in files_in(history) if name.startswith(("attempts", "_"))] == [
        "_flightlog/run-20260520T035200Z-demo-a1b2c3d4.json",
        "_flightlog/run-20260520T035200Z-other-a1b2c3d4.json",
        "attempts/project=demo/date=2026-05-20/run-20260520T035200Z-demo-a1b2c3d4.parquet",
        "attempts/project=other/date=2026-05-21/run-20260520T035200Z-other-a1b2c3d4.parquet",
    ]
    assert asked(
        "SELECT project, CAST(date AS VARCHAR), run_id[-8:], sum(duration_s) "
        f"FROM read_parquet('{history}/attempts/**', hive_partitioning=true) GROUP BY ALL ORDER BY ALL"
    ) == [("demo", "2026-05-20", "a1b2c3d4", 4.0), ("other", "2026-05-21", "a1b2c3d4", 5.0)]
    assert asked(
        f"SELECT project, status FROM read_parquet('{history}/runs/**', hive_partitioning=true) ORDER BY ALL"
    ) == [("demo", "completed"), ("other", "completed")]


def test_arrow_reads_it_with_the_same_partitions(tmp_path):
    add_to_history(make(tmp_path, 1.0, 3.0), HistoryFolder(tmp_path / "history"))
    table = pyarrow.dataset.dataset(tmp_path / "history/tasks", partitioning="hive").to_table()
    assert table.select(["project", "date", "task", "duration_s"]).sort_by("duration_s").to_pylist() == [
        {"project": "demo", "date": "2026-05-20", "task": "sim", "duration_s": 1.0},
        {"project": "demo", "date": "2026-05-20", "task": "sim", "duration_s": 3.0},
    ]


def test_a_run_that_did_not_change_is_left_alone(tmp_path):
    run, history = make(tmp_path, 1.0), tmp_path / "history"
    add_to_history(run, HistoryFolder(history))
    before = {name: (history / name).stat().st_mtime_ns for name in files_in(history)}
    assert add_to_history(Run(run.path), HistoryFolder(history)) == {}
    assert {name: (history / name).stat().st_mtime_ns for name in files_in(history)} == before


def test_a_run_that_changed_is_written_anew_and_what_it_no_longer_has_goes(tmp_path):
    run, history = make(tmp_path, 1.0), tmp_path / "history"
    (run.path / "metrics.jsonl").write_bytes(b'{"event":"metric","name":"loss","value":1}\n')
    add_to_history(run, HistoryFolder(history))
    (run.path / "metrics.jsonl").unlink()
    document = json.loads((run.path / "run.json").read_bytes()) | {"project": "renamed"}
    (run.path / "run.json").write_text(json.dumps(document))
    rows = add_to_history(Run(run.path), HistoryFolder(history))
    assert rows == {"attempts": 1, "tasks": 1, "runs": 1, "task_events": 1}
    assert files_in(history) == [
        f"{table}/project=renamed/date=2026-05-20/{run.run_id}.parquet"
        if table != "_flightlog"
        else f"_flightlog/{run.run_id}.json"
        for table in ("_flightlog", "attempts", "runs", "task_events", "tasks")
    ]


def test_a_file_that_was_removed_from_a_history_comes_back(tmp_path):
    run, history = make(tmp_path, 1.0), tmp_path / "history"
    add_to_history(run, HistoryFolder(history))
    (history / f"attempts/project=demo/date=2026-05-20/{run.run_id}.parquet").unlink()
    assert add_to_history(run, HistoryFolder(history))["attempts"] == 1
    assert len(asked(f"FROM read_parquet('{history}/attempts/**')")) == 1


def test_runs_that_were_removed_stay_in_a_history(tmp_path):
    run, history = make(tmp_path, 1.0), tmp_path / "history"
    add_to_history(run, HistoryFolder(history))
    other = make(tmp_path, 2.0, token="00000002")
    for file in run.path.iterdir():
        file.unlink()
    add_to_history(other, HistoryFolder(history))
    assert len(asked(f"FROM read_parquet('{history}/attempts/**')")) == 2


@pytest.mark.parametrize(
    ("project", "folder"),
    [("a/b", "a%2Fb"), ("a=b", "a%3Db"), ("ü ", "%C3%BC "), ("..", ".."), ("", "__HIVE_DEFAULT_PARTITION__")],
)
def test_every_name_of_a_project_is_one_folder_and_comes_back_as_it_was(tmp_path, project, folder):
    run = make(tmp_path, 1.0)
    document = json.loads((run.path / "run.json").read_bytes()) | {"project": project}
    (run.path / "run.json").write_text(json.dumps(document))
    history = tmp_path / "history"
    add_to_history(Run(run.path), HistoryFolder(history))
    assert [path.name for path in (history / "attempts").iterdir()] == [f"project={folder}"]
    found = asked(
        f"SELECT DISTINCT project FROM read_parquet('{history}/attempts/**', hive_partitioning=true)"
    )
    assert found in ([(project or None,)], [(project or UNKNOWN,)])  # what an older DuckDB makes of unknown


def test_an_unknown_start_is_hive_s_unknown_date():
    assert partition_of("p", "") == "project=p/date=__HIVE_DEFAULT_PARTITION__"
    assert partition_of("p", "2026-05-20T23:59:59.999999-02:00") == "project=p/date=2026-05-21"


def test_a_running_run_waits(tmp_path):
    run = make(tmp_path, 1.0)
    info = json.loads((run.path / "run.json").read_bytes()) | {"status": "running", "host": "elsewhere"}
    (run.path / "run.json").write_text(json.dumps(info | {"heartbeat": "2999-01-01T00:00:00.000000Z"}))
    with pytest.raises(UsageError, match="is running: it goes into a history when it has ended"):
        add_to_history(Run(run.path), HistoryFolder(tmp_path / "history"))
    assert not (tmp_path / "history").exists()


def test_a_run_id_that_would_lead_elsewhere_stays_in_the_history(tmp_path):
    run = make(tmp_path, 1.0)
    document = json.loads((run.path / "run.json").read_bytes()) | {"run_id": "../../../escaped"}
    (run.path / "run.json").write_text(json.dumps(document))
    add_to_history(Run(run.path), HistoryFolder(tmp_path / "deep/history"))
    assert not list(tmp_path.glob("**/escaped*"))
    assert asked(f"SELECT run_id FROM read_parquet('{tmp_path}/deep/history/runs/**')") == [
        ("../../../escaped",)
    ]


def test_metrics_of_many_runs_are_one_question(tmp_path):
    for n in range(3):
        run = Run(make_run(tmp_path, [Metric(name="loss", value=float(n))], token=f"{n:08x}"))
        add_to_history(run, HistoryFolder(tmp_path / "history"))
    assert asked(f"SELECT max(value), count(*) FROM read_parquet('{tmp_path}/history/metrics/**')") == [
        (2.0, 3)
    ]


def test_a_history_at_an_address_has_the_files_of_one_in_a_folder(tmp_path):
    run, place = make(tmp_path, 1.0, 3.0), "memory://history/of/runs"
    folder, remote = tmp_path / "history", fsspec.filesystem("memory")
    rows = add_to_history(run, HistoryFolder(folder))
    with open_history(place) as history:
        assert add_to_history(run, history) == rows
        there = {name.removeprefix("/history/of/runs/") for name in remote.find("/history/of/runs")}
        assert there == set(files_in(folder))
        assert files_in(history.folder) == []  # it was made here, and sent
    for name in files_in(folder):
        if name.endswith(".parquet"):
            assert remote.cat_file(f"/history/of/runs/{name}") == (folder / name).read_bytes()


def test_at_an_address_only_what_changed_is_sent_again_and_what_is_gone_goes(tmp_path):
    run, place = make(tmp_path, 1.0), "memory://history/changed"
    (run.path / "metrics.jsonl").write_bytes(b'{"event":"metric","name":"loss","value":1}\n')
    with open_history(place) as history:
        add_to_history(run, history)
    with open_history(place) as history:
        assert add_to_history(Run(run.path), history) == {}
    (run.path / "metrics.jsonl").unlink()
    with open_history(place) as history:
        assert "metrics" not in add_to_history(Run(run.path), history)
    remote = fsspec.filesystem("memory")
    assert not [name for name in remote.find("/history/changed") if "/metrics/" in name]
    (lost,) = [name for name in remote.find("/history/changed") if "/attempts/" in name]
    remote.rm_file(lost)
    with open_history(place) as history:
        assert add_to_history(Run(run.path), history)["attempts"] == 1
    assert remote.exists(lost)
