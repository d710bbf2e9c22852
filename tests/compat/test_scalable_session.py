"""`ScalableSession` and `ScalableClient`: a project moves by changing an import."""

from __future__ import annotations

import json
import os

import pytest
import scalable_work as work

from flightlog import open_run
from flightlog.compat.scalable import ScalableClient, ScalableSession
from flightlog.compat.scalable.manifest import EnvironmentVariables, translated_variables
from flightlog.core.errors import UsageError
from flightlog.store.integrity import verify_files


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder with a manifest, and an environment that says nothing of Scalable, Flightlog or Slurm."""
    for name in [*os.environ]:
        if name.startswith(("SCALABLE_", "FLIGHTLOG_", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scalable.yaml").write_text(work.MANIFEST)
    return tmp_path


def runs_in(folder):
    return [open_run(path) for path in sorted((folder / ".scalable/runs").iterdir()) if path.is_dir()]


def local(**options):
    return ScalableSession.from_yaml("scalable.yaml", target="local", sample_interval_s=None, **options)


def test_the_seeds_snippet_records_a_run_in_its_folder(project):
    session = ScalableSession.from_yaml("scalable.yaml", target="local", sample_interval_s=None)
    session.record_artifact("scalable.yaml", kind="result")
    session.close()
    (run,) = runs_in(project)
    assert (run.info.project, run.info.target, run.info.provider, run.info.status) == (
        "demeter-lulcc",
        "local",
        "local",
        "completed",
    )
    (artifact,) = run.events("artifacts")
    assert (artifact.name, artifact.kind) == ("scalable.yaml", "result")
    assert {"manifest.yaml", "plan.json", "manifest.lock", "run.json", "summary.json"} <= set(
        os.listdir(run.path)
    )
    assert (run.path / "manifest.yaml").read_text() == work.MANIFEST


def test_the_files_of_the_tutorial_are_there_though_empty_and_complete_when_the_session_ends(project):
    with local() as client:
        client.gather(client.map(abs, range(3)))
    [run] = runs_in(project)
    files = ("tasks", "resources", "workers", "failures", "cache", "artifacts", "cost")
    sizes = {name: (run.path / f"{name}.jsonl").stat().st_size for name in files}
    assert [name for name, size in sizes.items() if not size] == ["failures", "cache", "artifacts", "cost"]
    assert not (run.path / "segments").exists()
    assert verify_files(run.path) == []


def test_files_that_cannot_be_completed_are_a_warning(project, monkeypatch, caplog):
    def full(*_args):
        raise OSError("no space left on device")

    monkeypatch.setattr("flightlog.compat.scalable.session.session.is_to_complete", lambda _path: True)
    monkeypatch.setattr("flightlog.compat.scalable.session.session.complete", full)
    with local() as client:
        assert client.gather(client.map(abs, [-1])) == [1]
    assert any("no space left on device" in record.getMessage() for record in caplog.records)
    [run] = runs_in(project)  # the first reader completes it
    assert verify_files(run.path) == []


def test_start_gives_a_client_and_close_ends_the_run(project):
    session = local()
    client = session.start()
    assert isinstance(client, ScalableClient)
    assert session.start() is session.client is client
    assert client.submit(work.run_simulation, 7, tag="sim").result(timeout=30) == 49
    session.close()
    session.close()
    (run,) = runs_in(project)
    (done,) = [event for event in run.events("tasks") if type(event).__name__ == "TaskCompleted"]
    assert (done.task, done.component, done.args) == ("run_simulation", "sim", {"scenario_id": 7})


def test_the_block_gets_the_client_which_answers_for_the_session_too(project):
    with local() as session:
        futures = session.client.map(work.run_simulation, range(5))
        assert session.client.gather(futures) == [0, 1, 4, 9, 16]
        assert session.submit(work.run_simulation, 3).result(timeout=30) == 9
        session.record_artifact("scalable.yaml", kind="input")
        path = session.path
        assert session.run_id == path.name
    assert [type(event).__name__ for event in open_run(path).events("artifacts")] == ["ArtifactRecorded"]


def test_a_run_ends_as_its_block_did(project):
    with pytest.raises(KeyError), local():
        raise KeyError("zoom")
    (run,) = runs_in(project)
    assert run.info.status == "failed"


def test_tasks_of_a_map_have_the_functions_name(project):
    with local() as client:
        client.gather(client.map(work.run_simulation, range(3)))
        client.gather(client.map(work.run_simulation, range(2), _scalable_task_name="warm-up"))
    (run,) = runs_in(project)
    names = [event.task for event in run.events("tasks") if type(event).__name__ == "TaskSubmitted"]
    assert names == ["run_simulation"] * 3 + ["warm-up"] * 2


def test_gather_takes_what_dasks_takes(project):
    with local() as client:
        good, bad = client.submit(work.divide, 4), client.submit(work.divide, 0)
        assert client.gather(good) == 3
        assert client.gather({"a": good, "b": [good, (good, 1)]}) == {"a": 3, "b": [3, (3, 1)]}
        assert client.gather(iter([good, good])) == [3, 3]
        assert client.gather([bad, good], errors="skip") == [3]
        with pytest.raises(ZeroDivisionError):
            client.gather([good, bad])
        with pytest.raises(UsageError, match="none of"):
            client.gather([good], errors="drop")


def test_what_in_scalable_is_the_functions_stays_the_functions(project):
    with local() as client:
        future = client.submit(work.own_keywords, task="t", component="c", timeout=5)
        assert client.gather(future) == ("t", "c", 5)
        assert future.task == "own_keywords"


def test_dasks_hints_are_told_once_and_left_out(project, caplog):
    with local() as client:
        for _ in range(2):
            future = client.submit(work.run_simulation, 2, pure=False, n=3, key=None, retries=1)
            assert client.gather(future) == 4
    told = [record.getMessage() for record in caplog.records]
    assert [line for line in told if "here" in line] == [
        "pure= is Dask's own, and has no meaning here",
        "n=3: a task runs on one worker here",
    ]


def test_artifacts_may_be_told_in_the_originals_words(project):
    with local() as client:
        client.session.record_artifact(
            task_name="simulate",
            artifact_name="out",
            location="scalable.yaml",
            component="sim",
            kind="result",
            size_bytes=5,
            digest="abc",
        )
    (run,) = runs_in(project)
    (line,) = [json.loads(line) for line in (run.path / "artifacts.jsonl").read_text().splitlines()]
    assert (line["name"], line["kind"]) == ("out", "result")
    assert line["size_bytes"] == len(work.MANIFEST)
    assert line["metadata"] == {
        "task": "simulate",
        "component": "sim",
        "stated_size_bytes": 5,
        "stated_digest": "abc",
    }


def test_the_target_is_slurms_in_a_job_and_else_a_local_one(project):
    text = work.MANIFEST.replace(
        "components:", "  hpc:\n    provider: slurm\n    comm_port: 50051\ncomponents:"
    )
    (project / "scalable.yaml").write_text(text)
    outside, inside = dict(os.environ), {**os.environ, "SLURM_JOB_ID": "12"}
    assert ScalableSession.from_yaml(target="auto", environ=outside).target_name == "local"
    assert ScalableSession.from_yaml(target="auto", environ=inside).target_name == "hpc"
    assert ScalableSession.from_yaml(environ={**inside, "SCALABLE_TARGET": "local"}).target_name == "local"
    assert ScalableSession.from_yaml(environ={**inside, "SCALABLE_TARGET": "auto"}).target_name == "hpc"


def test_a_session_tells_its_plan_and_what_is_wrong(project):
    session = local()
    assert (session.spec.target_name, session.spec.provider_name) == ("local", "local")
    assert (session.validate().ok, session.validate().warnings) == (True, [])
    plan = session.plan(dry_run=True)
    assert plan.to_dict() == {
        "version": 1,
        "target": "local",
        "provider": "local",
        "manifest_lock": session.manifest.sha256,
        "task_to_component": {"run_simulation": "sim"},
        "scale_plan": {
            "workers_by_tag": {"sim": 1},
            "resources_by_tag": {"sim": {"cpus": 1.0, "memory": "2G", "walltime": None, "gpus": None}},
        },
    }
    assert session.plan(objective="minimize time").scale_plan.workers_by_tag == {"sim": 2}
    assert session.plan(objective="minimize time", policy="manual") == session.plan(policy="safe") == plan
    with pytest.raises(NotImplementedError, match="Unsupported objective"):
        session.plan(objective="do magic")
    with pytest.raises(NotImplementedError, match="Unsupported policy"):
        session.plan(policy="yolo")


def test_a_plan_of_another_target_does_not_start_a_session(project):
    (project / "scalable.yaml").write_text(
        work.MANIFEST.replace("components:", "  far:\n    provider: slurm\ncomponents:")
    )
    far = ScalableSession.from_yaml(target="far").plan()
    with pytest.raises(ValueError, match="plan target 'far' does not match session target 'local'"):
        local().start(far)
    assert not (project / ".scalable").exists()


def test_the_variables_say_where_and_whether(project, monkeypatch):
    monkeypatch.setenv("SCALABLE_RUNS_DIR", "history")
    monkeypatch.setenv("SCALABLE_TELEMETRY_PARQUET", "true")
    with local() as client:
        assert client.gather(client.map(work.run_simulation, [1])) == [1]
        path = client.path
    assert open_run(path).path.parent == project / "history"
    assert (path / "parquet").is_dir()
    monkeypatch.setenv("SCALABLE_TELEMETRY", "false")
    with local() as client:
        assert client.gather(client.map(work.run_simulation, [2])) == [4]
        assert client.run_id == "not-recorded"
    assert len(list((project / "history").iterdir())) == 1
    assert [name for name in os.environ if name.startswith("FLIGHTLOG_")] == []


def test_flightlogs_own_variables_win(project, monkeypatch):
    monkeypatch.setenv("SCALABLE_RUNS_DIR", "theirs")
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(project / "ours"))
    with local() as client:
        assert client.path.parent == project / "ours"
    assert os.environ["FLIGHTLOG_RUNS_DIR"] == str(project / "ours")


def test_every_variable_stands_for_one_of_flightlogs():
    theirs = {
        "SCALABLE_RUNS_DIR": "r",
        "SCALABLE_TELEMETRY": "1",
        "SCALABLE_TELEMETRY_PARQUET": "0",
        "SCALABLE_RUNS_DIR_REMOTE": "s3://b/r",
        "SCALABLE_CACHE_DIR": "c",
        "SCALABLE_TARGET": "hpc",
    }
    assert translated_variables(theirs) == {
        "FLIGHTLOG_RUNS_DIR": "r",
        "FLIGHTLOG_TELEMETRY": "1",
        "FLIGHTLOG_TELEMETRY_PARQUET": "0",
        "FLIGHTLOG_RUNS_DIR_REMOTE": "s3://b/r",
        "FLIGHTLOG_CACHE_DIR": "c",
        "FLIGHTLOG_TARGET": "hpc",
    }
    assert translated_variables({"SCALABLE_RUNS_DIR": " "}) == {"FLIGHTLOG_RUNS_DIR": ".scalable/runs"}
    assert translated_variables({"FLIGHTLOG_RUNS_DIR": "mine", "SCALABLE_TARGET": "auto"}) == {}


def test_variables_stay_while_any_session_needs_them():
    environ = {"SCALABLE_TELEMETRY": "0"}
    first, second = EnvironmentVariables(environ), EnvironmentVariables(environ)
    first.put()
    second.put()
    first.take_back()
    assert environ == {
        "SCALABLE_TELEMETRY": "0",
        "FLIGHTLOG_TELEMETRY": "0",
        "FLIGHTLOG_RUNS_DIR": ".scalable/runs",
    }
    environ["FLIGHTLOG_TELEMETRY"] = "1"
    second.take_back()
    second.take_back()
    assert environ == {"SCALABLE_TELEMETRY": "0", "FLIGHTLOG_TELEMETRY": "1"}


def test_a_client_of_a_dask_cluster_records_a_run_of_its_own(project):
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=":0"
    ) as cluster:
        client = ScalableClient(cluster)
        assert client.gather(client.map(work.run_simulation, range(3))) == [0, 1, 4]
        client.close()
    (run,) = runs_in(project)
    assert (run.info.status, run.info.provider, run.info.tasks_completed) == ("completed", "dask", 3)


def test_what_is_no_cluster_is_said_so():
    with pytest.raises(UsageError, match="int is no Dask cluster"):
        ScalableClient(3)
