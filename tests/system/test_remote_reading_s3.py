"""Runs in S3 are read as those in a folder: the same answers, few requests, and one sentence where it cannot
be had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from s3_reading_server import S3Server

from flightlog.store.remote.mirror import folder_name

pytestmark = pytest.mark.system

ADDRESS = "s3://lab/flightlog/runs"

Flightlog = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.make_bucket("lab")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def folder(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the demo, with a manifest, tasks, failures and a cache, in `runs`, and copies of them in S3."""
    folder = tmp_path_factory.mktemp("lab")
    for words in (["demo", "--runs-dir", "runs"], ["sync", "--all", "--to", ADDRESS, "--runs-dir", "runs"]):
        done = subprocess.run(
            [sys.executable, "-m", "flightlog", *words],
            cwd=folder,
            env=server.environ(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def flightlog(server: S3Server, folder: Path) -> Flightlog:
    """Runs a command beside the runs, with a cache that all tests share."""

    def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flightlog", *words],
            cwd=folder,
            env=server.environ(**{"FLIGHTLOG_REMOTE_CACHE": str(folder / "copies"), **environ}),
            capture_output=True,
            text=True,
            timeout=100,
        )

    return run


def copies_in(folder: Path) -> Path:
    return folder / "copies" / folder_name(ADDRESS)


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--format", "json"],
        ["report", "--format", "json"],
        ["report"],
        ["compare"],
        ["sql", "SELECT * FROM attempts ORDER BY ALL", "--all", "--format", "csv"],
        ["verify"],
        ["diagnose", "--format", "json"],
    ],
    ids=lambda words: " ".join(words[:1]),
)
def test_the_address_gives_the_bytes_that_the_folder_gives(
    flightlog: Flightlog, folder: Path, words: list[str]
) -> None:
    here = flightlog(*words, "--runs-dir", "runs")
    there = flightlog(*words, "--runs-dir", ADDRESS)
    out = there.stdout.replace(str(copies_in(folder)), "runs").replace(ADDRESS, "runs")
    assert (there.returncode, out, there.stderr) == (here.returncode, here.stdout, here.stderr)


def test_a_list_is_one_request_and_one_for_each_new_run_and_a_second_list_one(
    server: S3Server, flightlog: Flightlog, folder: Path
) -> None:
    fresh = {"FLIGHTLOG_REMOTE_CACHE": str(folder / "fresh")}
    runs = sorted(path.name for path in (folder / "runs").glob("run-*"))
    server.requests()
    first = flightlog("list", "--runs-dir", ADDRESS, **fresh)
    listed, *read = server.requests()
    assert listed.startswith("GET /lab?list-type=2&prefix=flightlog/runs/&")
    assert sorted(read) == [f"GET /lab/flightlog/runs/{run}/run.json" for run in runs]
    assert flightlog("list", "--runs-dir", ADDRESS, **fresh).stdout == first.stdout
    assert [request.partition("&")[0] for request in server.requests()] == ["GET /lab?list-type=2"]


def test_what_is_in_the_way_is_one_sentence_without_secrets(flightlog: Flightlog, tmp_path: Path) -> None:
    expected = {
        "s3://no-such-bucket/runs": "s3://no-such-bucket/runs does not exist (",
        "s3://key:a-hidden-word@lab/runs": "the address s3://…@lab/runs holds a password: take it out",
    }
    for address, sentence in expected.items():
        done = flightlog("list", "--runs-dir", address)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"flightlog: {sentence}")
        assert (done.stderr.count("\n"), "a-hidden-word" in done.stderr) == (1, False)
    none = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "HOME": str(tmp_path),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    done = flightlog("list", "--runs-dir", "s3://lab/other", **none)
    assert done.stderr.startswith("flightlog: s3://lab/other takes no credentials from here (")
    assert "no runs in s3://lab/nothing" in flightlog("list", "--runs-dir", "s3://lab/nothing").stderr


def test_out_of_reach_the_copies_answer_and_say_from_when_they_are(flightlog: Flightlog) -> None:
    before = flightlog("report", "--runs-dir", ADDRESS)
    nobody = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    after = flightlog("report", "--runs-dir", ADDRESS, **nobody)
    assert (after.returncode, after.stdout) == (0, before.stdout)
    assert after.stderr.startswith(f"flightlog: {ADDRESS} cannot be reached (")
    assert "what is shown was copied from there at 20" in after.stderr
    assert after.stderr.count("\n") == 1


def test_a_run_that_is_being_recorded_is_seen_in_s3_up_to_its_last_upload(
    server: S3Server, flightlog: Flightlog, folder: Path
) -> None:
    program = (
        "import flightlog, sys\n"
        "with flightlog.record('live', runs_dir='live-runs'):\n"
        "    for number in range(100):\n"
        "        with flightlog.span('step', number=number): pass\n"
        "    print('recorded', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    recorder = subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert recorder.stdout is not None
    assert recorder.stdout.readline() == "recorded\n"
    address = "s3://lab/live"
    counted = [
        "sql",
        "SELECT count(*) AS spans, count(DISTINCT span_id) AS once FROM spans",
        "--format",
        "csv",
    ]
    try:
        assert flightlog("sync", "--to", address, "--runs-dir", "live-runs").returncode == 0
        assert " running " in flightlog("list", "--runs-dir", address).stdout
        assert flightlog(*counted, "--runs-dir", address).stdout == "spans,once\n100,100\n"
    finally:
        recorder.communicate("")
    assert flightlog("sync", "--to", address, "--runs-dir", "live-runs").returncode == 0
    assert " completed " in flightlog("list", "--runs-dir", address).stdout
    assert flightlog(*counted, "--runs-dir", address).stdout == "spans,once\n100,100\n"
    assert flightlog("verify", "--runs-dir", address).returncode == 0
