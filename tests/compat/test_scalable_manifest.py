"""`scalable.yaml`: what it says is said in Flightlog's words, and what has no word here is told."""

from __future__ import annotations

import os

import pytest

from flightlog.compat.scalable import ScalableSession
from flightlog.compat.scalable.manifest import load_scalable
from flightlog.core.errors import ManifestError, UsageError

WHOLE = """\
version: 1
project:
  name: integrated
  default_storage: s3://bucket/runs/
targets:
  local:
    provider: local
    max_workers: 3
    containers: docker
    dashboard_address: ":8787"
  hpc:
    provider: slurm
    queue: short
    account: ${ACCOUNT:-mine}
    walltime: "02:00:00"
    logs_location: ./logs
    name: gcam
    comm_port: 50051
    container_runtime: apptainer
    suppress_logs: true
  cloud:
    provider: aws
    region: us-west-2
    overlay: big
components:
  gcam:
    image: /containers/gcam.sif
    runtime: apptainer
    cpus: 2
    memory: 8G
    mounts:
      /host/data: /data
tasks:
  run_gcam:
    component: gcam
    cache: true
    outputs:
      database: out/db.xml
      log: out/log.txt
overlays:
  big:
    targets:
      cloud:
        instance_type: m6i.xlarge
    components:
      gcam:
        memory: 32G
  small:
    targets:
      local:
        max_workers: 1
        containers: none
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    for name in [*os.environ]:
        if name.startswith(("SCALABLE_", "FLIGHTLOG_", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def put(text, name="scalable.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return put


def test_a_local_target_runs_in_threads_unless_it_says_otherwise(write):
    manifest, _ = load_scalable(write(WHOLE))
    assert manifest.resolved({}, "local").targets["local"].options == {"max_workers": 3, "processes": False}
    manifest, _ = load_scalable(write(WHOLE.replace("max_workers: 3", "processes: true")))
    assert manifest.resolved({}, "local").targets["local"].options == {"processes": True}


def test_a_slurm_target_keeps_what_has_a_meaning(write):
    manifest, _ = load_scalable(write(WHOLE))
    assert manifest.resolved({}, "hpc").targets["hpc"].options == {
        "queue": "short",
        "account": "mine",
        "walltime_s": 7200.0,
        "log_directory": "./logs",
        "job_extra_directives": ("--job-name=gcam",),
    }


def test_components_and_tasks_are_as_written(write):
    contents = load_scalable(write(WHOLE))[0].resolved({}, "local")
    gcam, task = contents.components["gcam"], contents.tasks["run_gcam"]
    assert (gcam.image, gcam.runtime, gcam.cpus, gcam.memory_bytes, gcam.mounts) == (
        "/containers/gcam.sif",
        "apptainer",
        2.0,
        8 << 30,
        {"/host/data": "/data"},
    )
    assert (task.component, task.cache, task.outputs) == ("gcam", None, ("out/db.xml", "out/log.txt"))
    assert contents.project.default_storage == "s3://bucket/runs/"


def test_what_is_left_out_is_told_with_its_line(write):
    session = ScalableSession.from_yaml(write(WHOLE), target="local")
    assert [(issue.path, issue.message) for issue in session.validate().warnings] == [
        ("targets.cloud", "is left out: there is no engine for aws"),
        (
            "targets.local.containers",
            "is left out: tasks run without containers here, as they do in Scalable's local provider",
        ),
        (
            "targets.local.dashboard_address",
            "is left out: local workers are no Dask cluster, and have no dashboard",
        ),
        ("targets.hpc.comm_port", "is left out: workers need no communicator"),
        ("targets.hpc.container_runtime", "is left out: a component's `runtime` says what runs its image"),
        ("targets.hpc.suppress_logs", "is left out: the jobs' output always goes to a folder"),
        (
            "tasks.run_gcam.cache",
            "is left out: it has no effect in Scalable; a function that is @cacheable keeps its results",
        ),
    ]
    assert session.validate().ok


def test_what_is_left_out_of_its_target_is_logged_when_a_session_starts(write, caplog):
    write(WHOLE)
    ScalableSession.from_yaml(target="local", sample_interval_s=None).start().session.close()
    assert [record.getMessage().partition(" is left out")[0] for record in caplog.records] == [
        "scalable.yaml:9: targets.local.containers",
        "scalable.yaml:10: targets.local.dashboard_address",
        "scalable.yaml:36: tasks.run_gcam.cache",
    ]


def test_an_overlay_applies_to_its_target(write):
    text = WHOLE.replace("    max_workers: 3\n", "    max_workers: 3\n    overlay: small\n")
    session = ScalableSession.from_yaml(write(text), target="local")
    assert session.manifest.resolved({}, "local").targets["local"].options == {
        "max_workers": 1,
        "processes": False,
    }


def test_a_plan_shows_what_overlays_make_of_the_manifest(write):
    text = WHOLE.replace("    max_workers: 3\n", "    max_workers: 3\n    overlay: small\n")
    session = ScalableSession.from_yaml(write(text), target="local", overlay="big")
    asked = session.plan(objective="minimize time").scale_plan
    assert asked.workers_by_tag == {"gcam": 1}
    assert (asked.resources_by_tag["gcam"].cpus, asked.resources_by_tag["gcam"].memory) == (2.0, "32G")


def test_a_target_without_an_engine_is_refused_when_it_is_asked_for(write):
    path = write(WHOLE)
    message = "there is no engine for the provider 'aws' of target 'cloud'"
    with pytest.raises(UsageError, match=message):
        ScalableSession.from_yaml(path, target="cloud")
    with pytest.raises(UsageError, match=message):
        ScalableSession.from_yaml(path, environ={"SCALABLE_TARGET": "cloud"})


def test_a_manifest_for_elsewhere_does_not_run_here_by_itself(write):
    text = "version: 1\nproject: {name: p}\ntargets:\n  gke: {provider: kubernetes, adaptive: {minimum: 2}}\n"
    path = write(text)
    with pytest.raises(UsageError, match=r"none of the targets of .* has an engine here: gke; name `local`"):
        ScalableSession.from_yaml(path)
    assert ScalableSession.from_yaml(path, target="local").target_name == "local"


def test_an_unknown_key_is_told_with_its_line_and_the_nearest_right_one(write):
    with pytest.raises(ManifestError) as raised:
        load_scalable(write(WHOLE.replace("max_workers: 3", "max_wrokers: 3")))
    assert "scalable.yaml:8: targets.local.max_wrokers" in str(raised.value)
    assert "max_workers" in str(raised.value)


def test_variables_are_kept_as_written(write):
    manifest, _ = load_scalable(write(WHOLE))
    assert "${ACCOUNT:-mine}" in manifest.source


def test_the_manifest_is_where_the_argument_or_the_variable_says(write, tmp_path):
    write(WHOLE, "project/scalable.yaml")
    assert load_scalable(tmp_path / "project")[0].path == tmp_path / "project/scalable.yaml"
    named, _ = load_scalable(None, {"SCALABLE_MANIFEST": "project/scalable.yaml"})
    assert named.path == tmp_path / "project/scalable.yaml"
    with pytest.raises(
        UsageError, match=r"there is no file scalable.yaml; name the manifest, or set SCALABLE_MANIFEST"
    ):
        load_scalable(None, {})


def test_a_manifest_that_is_no_text_is_told(write, tmp_path):
    (tmp_path / "scalable.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="is not UTF-8"):
        load_scalable(None, {})


@pytest.mark.parametrize(
    "text", ["targets: 3", "targets: {local: 3}", "tasks: [1]", "overlays: {a: 1}", "overlays: 1"]
)
def test_odd_shapes_are_for_the_checks_to_tell(write, text):
    with pytest.raises(ManifestError):
        load_scalable(write(f"version: 1\nproject: {{name: p}}\n{text}\n"))
