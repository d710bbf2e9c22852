"""A crate holds what the run holds: what ran, with what, and what came of it."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
from builders.runs import at, make_run
from rocrate.rocrate import ROCrate

import flightlog
from flightlog.core.errors import FlightlogError
from flightlog.events import TaskCompleted
from flightlog.export.base import ExportOptions
from flightlog.export.crate.exporter import exporter, moment
from flightlog.export.limits import ExportLimits
from flightlog.store.run import Run


def export(run_path: Path, output: Path):
    return exporter.export(Run(run_path), output, ExportOptions())


def graph_of(crate: Path) -> dict[str, dict]:
    entities = json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]
    found = {entity["@id"]: entity for entity in entities}
    assert len(found) == len(entities)  # each entity stands once
    return found


def of_type(graph: dict[str, dict], kind: str) -> list[dict]:
    return [entity for entity in graph.values() if entity["@type"] == kind]


def listed(value) -> list:
    return [] if value is None else value if isinstance(value, list) else [value]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A run of three tasks, one of which failed, with an input and two outputs."""
    (tmp_path / "given.csv").write_text("a,b\n1,2\n")
    with flightlog.record(
        "sweep",
        runs_dir=tmp_path / "runs",
        tags={"author": "A. Author", "orcid": "0000-0002-1825-0097", "license": "MIT"},
    ) as run:
        run.record_artifact(tmp_path / "given.csv", kind="input")
        for number in range(3):
            try:
                with run.task("simulate", n=number, method="rk4"):
                    (tmp_path / f"out{number}.txt").write_text(f"{number}\n")
                    if number == 2:
                        raise ValueError("diverged")
                    run.record_artifact(tmp_path / f"out{number}.txt", kind="result")
            except ValueError:
                pass
    return run.path


def test_each_execution_is_an_action_with_its_step_arguments_state_times_and_usage(sweep, tmp_path):
    exported = export(sweep, tmp_path / "crate")
    graph = graph_of(tmp_path / "crate")
    rows = Run(sweep).sql("SELECT task_id, state, duration_s FROM attempts ORDER BY started_at").rows()
    actions = [entity for entity in of_type(graph, "CreateAction") if entity["@id"].startswith("#task-")]
    assert exported.counts["executions"] == len(actions) == len(rows) == 3
    for action, (task_id, state, duration_s) in zip(actions, rows, strict=True):
        assert action["@id"] == f"#task-{task_id}-1"
        assert action["actionStatus"].endswith(
            "CompletedActionStatus" if state == "completed" else "FailedActionStatus"
        )
        used = {
            graph[one["@id"]]["name"]: graph[one["@id"]]["value"] for one in listed(action["resourceUsage"])
        }
        assert float(used["duration_s"]) == duration_s
        assert graph[action["instrument"]["@id"]]["name"] == "simulate"
    assert [action.get("error") for action in actions] == [None, None, "ValueError: diverged"]
    given = [
        {graph[one["@id"]]["name"]: graph[one["@id"]]["value"] for one in listed(action["object"])}
        for action in actions
    ]
    assert given == [{"n": str(number), "method": "rk4"} for number in range(3)]
    controls = of_type(graph, "ControlAction")
    assert [control["object"]["@id"] for control in controls] == [action["@id"] for action in actions]
    [organized] = of_type(graph, "OrganizeAction")
    assert [one["@id"] for one in organized["object"]] == [control["@id"] for control in controls]


def test_inputs_are_objects_and_outputs_results_with_the_bytes_they_had(sweep, tmp_path):
    export(sweep, tmp_path / "crate")
    graph = graph_of(tmp_path / "crate")
    action = graph["#run"]
    names = {
        side: [graph[one["@id"]]["name"] for one in listed(action[side])] for side in ("object", "result")
    }
    assert names == {"object": ["given.csv"], "result": ["out0.txt", "out1.txt"]}
    for side in names:
        for one in listed(action[side]):
            entity = graph[one["@id"]]
            data = (tmp_path / "crate" / entity["@id"]).read_bytes()
            assert (entity["sha256"], entity["contentSize"]) == (
                hashlib.sha256(data).hexdigest(),
                str(len(data)),
            )
    assert graph["https://orcid.org/0000-0002-1825-0097"]["name"] == "A. Author"
    assert graph["./"]["license"] == "MIT"


def test_the_run_directory_inside_reports_as_the_run_does(sweep, tmp_path):
    export(sweep, tmp_path / "crate")
    inside = Run(tmp_path / "crate" / "run")
    for stream in Run(sweep).streams():
        assert list(inside.events(stream)) == list(Run(sweep).events(stream))
    library = ROCrate(tmp_path / "crate")
    assert library.mainEntity.id == "command.sh"
    assert {Path(entity.id).name for entity in library.data_entities} >= {
        "run.json",
        "tasks.jsonl",
        "README.md",
    }


def test_an_artifact_that_changed_or_went_is_described_and_not_copied(sweep, tmp_path):
    (tmp_path / "out0.txt").write_text("something else\n")
    (tmp_path / "out1.txt").unlink()
    exported = export(sweep, tmp_path / "crate")
    assert [note for note in exported.notes if "described" in note] == [
        "not copied, only described: 1 artifacts that have changed since",
        "not copied, only described: 1 artifacts that no longer exist",
    ]
    graph = graph_of(tmp_path / "crate")
    described = of_type(graph, "CreativeWork")
    sums = {entity["name"]: entity.get("sha256") for entity in described if "sha256" in entity}
    assert sums == {f"out{n}.txt": hashlib.sha256(f"{n}\n".encode()).hexdigest() for n in range(2)}


def test_outermost_spans_are_the_steps_of_a_run_without_tasks_and_else_the_program(tmp_path):
    with flightlog.record("spans", runs_dir=tmp_path / "runs") as run, flightlog.span("load", rows=3):
        with flightlog.span("parse"):
            pass
    export(run.path, tmp_path / "spans")
    assert [step["name"] for step in of_type(graph_of(tmp_path / "spans"), "HowToStep")] == ["load"]
    with flightlog.record("bare", runs_dir=tmp_path / "runs") as run:
        pass
    export(run.path, tmp_path / "bare")
    assert [step["name"] for step in of_type(graph_of(tmp_path / "bare"), "HowToStep")] == ["program"]


def test_the_graph_is_bounded_and_says_what_it_leaves_out(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(ExportLimits, "max_executions", 2)
    exported = export(sweep, tmp_path / "crate")
    assert exported.counts["executions"] == 2
    assert "the graph has the first 2 executions; the files in run/ have all of them" in exported.notes


def test_a_crate_that_cannot_be_written_leaves_nothing_behind(sweep, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FlightlogError, match="cannot write"):
        export(sweep, tmp_path / "file" / "crate")
    assert not [path for path in tmp_path.iterdir() if "crate" in path.name]


def test_names_and_addresses_of_any_kind_are_taken_and_stand_for_what_they_name(tmp_path):
    names = ['q"uote.txt', "a b#c?.txt", "new\nline.txt", "x" * 250]
    with flightlog.record(
        'odd\n"name', runs_dir=tmp_path / "runs", tags={"author": ["x"], "orcid": "a b"}
    ) as run:
        for name in names:
            (tmp_path / name).write_text(name)
            with run.task(name, value=name):
                run.record_artifact(tmp_path / name)
        run.record_artifact("https://user:secret@example.org/a b?token=abc")
        run.record_artifact("wasb://store/model")
    exported = export(run.path, tmp_path / "crate")
    assert [note for note in exported.notes if "described" in note] == []
    graph = graph_of(tmp_path / "crate")
    copied = {
        entity["name"]: (tmp_path / "crate" / unquote(identifier)).read_text()
        for identifier, entity in graph.items()
        if identifier.startswith("artifacts/")
    }
    assert copied == {name: name for name in names}
    addresses = [one["@id"] for one in graph["#run"]["result"] if "://" in one["@id"]]
    assert addresses == [
        "https://user:%5Bredacted%5D@example.org/a%20b?token=%5Bredacted%5D",
        "wasb://store/model",
    ]
    assert [step["name"] for step in of_type(graph, "HowToStep")] == names
    assert not [identifier for identifier in graph if set(identifier) & set(' "<>\n[]')]


def test_an_artifact_that_was_recorded_twice_stands_once_as_it_was_last(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with flightlog.record("twice", runs_dir=tmp_path / "runs") as run:
        for folder, text in (("first", "old"), ("first", "new"), ("second", "other")):
            (tmp_path / folder / "out.txt").write_text(text)
            run.record_artifact(tmp_path / folder / "out.txt")
    exported = export(run.path, tmp_path / "crate")
    assert exported.counts["artifacts"] == 2
    assert {path.name: path.read_text() for path in (tmp_path / "crate/artifacts").iterdir()} == {
        "0-out.txt": "new",
        "1-out.txt": "other",
    }


def test_task_ids_of_other_tools_become_names_that_a_graph_may_have(tmp_path):
    ids = ["('sum-<lambda>', 0)", 'a "b"', "50%"]
    path = make_run(
        tmp_path / "runs",
        [
            TaskCompleted(timestamp=at(n), task="sum", task_id=one, args={}, worker=None, duration_s=0.5)
            for n, one in enumerate(ids, 1)
        ],
    )
    export(path, tmp_path / "crate")
    graph = graph_of(tmp_path / "crate")
    actions = [unquote(identifier) for identifier in graph if identifier.startswith("#task-")]
    assert [one for one in actions if one.endswith("-1")] == [f"#task-{one}-1" for one in ids]
    assert not [identifier for identifier in graph if set(identifier) & set(" '\"<>(")]


@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        ("2026-05-20T03:52:00.123456Z", "2026-05-20T03:52:00.123+00:00"),
        ("2026-05-20T05:52:00+02:00", "2026-05-20T03:52:00.000+00:00"),
        (datetime(2026, 5, 20, 3, 52), "2026-05-20T03:52:00.000+00:00"),
        ("yesterday", None),
        ("0001-01-01T00:00:00+14:00", None),
        (None, None),
    ],
)
def test_times_are_in_utc_and_what_is_no_time_is_left_out(time, wanted):
    assert moment(time) == wanted
