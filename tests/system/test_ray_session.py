"""A session on Ray: what it records, on a Ray of its own, on a cluster that runs, and where files are not
shared."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading

import pytest
from engine_programs import RECORDED, RESULTS, SCRIPTS, agreed, run_program, sweep

pytest.importorskip("ray", reason="Ray is not installed: pip install 'flightlog[ray]'")

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster():
    """A Ray that somebody else has started, and what the environment has to say to find it."""
    env = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    options = [
        "--head",
        "--block",
        "--num-cpus=2",
        "--port=0",
        "--include-dashboard=false",
        "--disable-usage-stats",
    ]
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = [
            SCRIPTS / "ray",
            "start",
            *options,
            "--object-store-memory=83886080",
            f"--temp-dir={folder}",
        ]
        head = subprocess.Popen(
            command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        reading = threading.Thread(target=head.stdout.read, daemon=True)  # so that it can go on talking
        try:
            said = [""]
            for line in head.stdout:
                said.append(line)
                if "--address=" in line:
                    break
            assert "--address=" in said[-1], "".join(said)
            reading.start()
            yield {**env, "RAY_ADDRESS": said[-1].split("'")[1]}
        finally:
            head.terminate()
            head.wait(60)
            if reading.ident is not None:
                reading.join(60)
            head.stdout.close()


def test_a_sweep_on_ray_is_recorded_as_on_local_processes_and_ray_says_nothing_of_its_own(tmp_path):
    folders = [tmp_path / "local", tmp_path / "ray"]
    for folder in folders:
        folder.mkdir()
    (local, _), (on_ray, done) = (sweep([sys.executable], folder.name, folder) for folder in folders)
    assert agreed(on_ray) == agreed(local) == RECORDED
    assert on_ray["results"] == local["results"] == RESULTS
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert [line.split("(")[0] for line in done.stderr.splitlines()] == ["1 of 8 tasks failed:", "  simulate"]


def test_a_cluster_that_runs_is_used_and_left_running(tmp_path, cluster):
    told, _ = sweep([sys.executable], "cluster", tmp_path, cluster)
    assert (agreed(told), told["results"]) == (RECORDED, RESULTS)
    assert set(told["recorded"]["workers"]) < set(told["recorded"]["sampled"])  # the program itself, too
    again = run_program([SCRIPTS / "ray", "status"], tmp_path, cluster)
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize("sees_the_door", [True, False])
def test_nothing_is_missing_where_workers_do_not_see_the_files_of_the_program(
    tmp_path, cluster, sees_the_door
):
    hidden = {"HIDDEN": str(tmp_path / "home")}
    if not sees_the_door:
        hidden["TMPDIR"] = hidden["HIDDEN"]
    told, _ = sweep([sys.executable], "cluster", tmp_path, {**cluster, **hidden})
    assert (agreed(told), told["results"]) == (RECORDED, RESULTS)
    assert list((tmp_path / "home").iterdir()) == []  # nobody else has seen any of it
