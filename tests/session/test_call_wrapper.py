"""What happens around a call: what is recorded of the files it makes."""

from __future__ import annotations

import pytest
from sessions import THREADS, events_of, session_in
from work_for_sessions import add

import flightlog
from flightlog.events import ArtifactRecorded
from flightlog.session.call_wrapper import call_around
from flightlog.session.manifest import parse_manifest
from flightlog.session.task_options import TaskDefaults
from flightlog.store.run import Run

MANIFEST = """
version: 1
project: {name: p}
tasks:
  write:
    outputs: ["${FOLDER}/made.txt", "${FOLDER}/missing-${TOKEN}.txt", plain.txt, "s3://b/${TOKEN}"]
"""


@pytest.fixture
def around(tmp_path):
    environ = {"FOLDER": str(tmp_path / "hush"), "TOKEN": "hush"}
    manifest = parse_manifest(MANIFEST, tmp_path / "flightlog.yaml")
    whole, written = (manifest.resolved(environ, raw=raw) for raw in (False, True))
    return TaskDefaults(whole, tmp_path, environ, written).choose("write").around


def test_outputs_are_recorded_as_the_manifest_writes_them_and_never_with_what_variables_hold(
    around, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "hush" / "made.txt"
    made.parent.mkdir()
    with (
        flightlog.record("r", runs_dir=tmp_path / "runs", sample_interval_s=None) as run,
        flightlog.span("s") as span,
    ):
        assert call_around(around, made.write_text, ("hello",), {}) == 5
    found = [e for e in Run(run.path).events("artifacts") if isinstance(e, ArtifactRecorded)]
    missing, plain = "${FOLDER}/missing-${TOKEN}.txt", str(tmp_path / "plain.txt")
    assert [(e.name, e.uri, e.size_bytes, e.error) for e in found] == [
        ("${FOLDER}/made.txt", "${FOLDER}/made.txt", 5, None),
        (missing, missing, None, f"No such file or directory: {missing}"),
        ("plain.txt", plain, None, f"No such file or directory: {plain}"),
        ("s3://b/${TOKEN}", "s3://b/${TOKEN}", None, None),
    ]
    assert {(e.kind, e.span_id) for e in found} == {("output", span.span_id)}
    assert "hush" not in (run.path / "artifacts.jsonl").read_text()


def test_what_a_variable_holds_is_in_no_file_of_a_sessions_run(tmp_path):
    tasks = 'tasks:\n  add:\n    outputs: ["out-${TOKEN}.txt"]\n'
    with session_in(tmp_path, tasks, where=THREADS, environ={"TOKEN": "hushhush"}) as session:
        assert session.client.submit(add, 1, 2).result() == 3
    (found,) = events_of(session, "artifacts", ArtifactRecorded)
    assert found.name == "out-${TOKEN}.txt"
    written = [file for file in session.path.rglob("*") if file.is_file()]
    assert written
    assert [file for file in written if b"hushhush" in file.read_bytes()] == []
