"""A run is sent while it runs, by a process beside it: to its end, whatever is killed and whatever fails
meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders.otlp_receiver import Receiver, attributes, listening

from flightlog.export.otlp.json_file import otlp_json
from flightlog.store.run import Run

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

SESSION = """
import sys, time
from flightlog import Session

def simulate(seed):
    time.sleep(0.02)
    if seed == 5:
        raise ValueError("five does not converge")
    return seed

if __name__ == "__main__":
    with Session("flightlog.yaml") as session:
        runs = session.client.map(simulate, range(int(sys.argv[1])))
        for one in runs:
            one.exception()
        session.telemetry.event("converged", level="warning", steps=3)
"""
ENDLESS = """
import flightlog, time
with flightlog.record("endless"):
    number = 0
    while True:
        with flightlog.span("step", number=number):
            time.sleep(0.005)
        number += 1
"""


def quiet(**more: str) -> dict[str, str]:
    return {**{name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}, **more}


@contextmanager
def running(folder: Path, text: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program, which is killed when the context ends, if it has not ended by then."""
    child = program(folder, text, **environ)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def program(
    folder: Path, text: str, *arguments: str, manifest: str = "", **environ: str
) -> subprocess.Popen[bytes]:
    (folder / "program.py").write_text(text)
    (folder / "flightlog.yaml").write_text(f"version: 1\nproject: {{name: live}}\n{manifest}")
    command = [sys.executable, "program.py", *arguments]
    return subprocess.Popen(command, cwd=folder, env=quiet(**environ))


def until(what: Callable[[], Any], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


def the_run(folder: Path) -> Path:
    until(lambda: list((folder / ".flightlog" / "runs").glob("run-*/run.json")))
    (found,) = (folder / ".flightlog" / "runs").glob("run-*")
    return found


def followers(run: Path) -> list[int]:
    """Processes that send this run."""
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = (proc / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(run).encode() in words and b"--follow" in words and b"flightlog" in words:
            found.append(int(proc.name))
    return found


def export(run: Path, address: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flightlog", "export", str(run), "--to", "otlp", "--endpoint", address]
    return subprocess.run(command, env=quiet(), capture_output=True, text=True)


def spans_in(run: Path) -> Counter[str]:
    """The ids that a run gives, as the file has them."""
    return Counter(
        span["spanId"]
        for form in otlp_json(Run(run))
        for group in form.get("resourceSpans", ())
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    )


def test_a_session_whose_manifest_says_so_is_sent_while_it_runs(tmp_path: Path):
    receiver = Receiver()
    with listening(receiver) as address:
        manifest = f"otel: {{endpoint: '{address}', headers: {{authorization: 'Bearer ${{TOKEN}}'}}}}\n"
        done = program(tmp_path, SESSION, "100", manifest=manifest, TOKEN="s3cret").wait()
        assert done == 0
        run = the_run(tmp_path)
        until(lambda: not followers(run))
    assert Counter(receiver.span_ids()) == spans_in(run)
    assert {headers["authorization"] for _, headers in receiver.requests} == {"Bearer s3cret"}
    assert not [file for file in run.rglob("*") if file.is_file() and b"s3cret" in file.read_bytes()]
    last = {
        name: receiver.series(f"flightlog.tasks.{name}")[-1][1]
        for name in ("submitted", "completed", "failed", "running")
    }
    assert last == {"submitted": 100, "completed": 99, "failed": 1, "running": 0}
    assert min(count for _, count in receiver.series("flightlog.tasks.running")) >= 0
    assert receiver.series("system.cpu.utilization")
    records = {record.event_name: record for record in receiver.records}
    assert attributes(records["flightlog.failure"])["exception.type"] == "ValueError"
    assert (records["converged"].severity_text, attributes(records["converged"])["steps"]) == ("WARN", 3)
    labels = {str(label) for _, _, point in receiver.points for label in attributes(point).values()}
    assert not labels & {span.span_id.hex() for span in receiver.spans}


def test_a_run_that_is_killed_is_still_sent_to_its_end(tmp_path: Path):
    receiver = Receiver()
    with (
        listening(receiver) as address,
        running(tmp_path, ENDLESS, OTEL_EXPORTER_OTLP_ENDPOINT=address) as child,
    ):
        run = the_run(tmp_path)
        until(lambda: len(receiver.spans) > 100)
        until(lambda: receiver.series("system.cpu.utilization"))
        child.send_signal(signal.SIGKILL)
        child.wait()
        until(lambda: not followers(run))
    assert Counter(receiver.span_ids()) == spans_in(run)
    root = next(span for span in receiver.spans if span.name == "endless")
    assert attributes(root)["flightlog.run.status"] == "crashed"
    assert root.status.code == 2


def test_a_follower_that_is_killed_while_it_sends_leaves_the_rest_to_the_next_export(tmp_path: Path):
    receiver = Receiver()
    with (
        listening(receiver) as address,
        running(tmp_path, ENDLESS, OTEL_EXPORTER_OTLP_ENDPOINT=address) as child,
    ):
        run = the_run(tmp_path)
        until(lambda: len(receiver.spans) > 100)
        receiver.delay_s = 2.0
        until(lambda: receiver.busy)
        for pid in followers(run):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not followers(run))
        receiver.delay_s = 0.0
        child.send_signal(signal.SIGINT)
        child.wait()
        until(lambda: not receiver.busy)  # with the request of the dead
        assert export(run, address).returncode == 0
        again = export(run, address)
        assert "nothing new" in again.stdout
    whole, sent = spans_in(run), Counter(receiver.span_ids())
    assert sent.keys() == whole.keys()
    assert sum(sent.values()) - sum(whole.values()) <= 500  # the one request whose answer nobody waited for


def test_a_server_that_refuses_breaks_and_asks_to_wait_gets_everything_in_the_end(tmp_path: Path):
    receiver = Receiver()
    receiver.faults.extend(
        [(500, {}, b"broken"), (503, {}, b""), (429, {"Retry-After": "1"}, b""), (502, {}, b"")]
    )
    with listening(receiver) as address:
        done = program(tmp_path, SESSION, "20", OTEL_EXPORTER_OTLP_ENDPOINT=address).wait()
        assert done == 0
        run = the_run(tmp_path)
        until(lambda: not followers(run))
    assert Counter(receiver.span_ids()) == spans_in(run)


def test_a_server_that_is_not_there_costs_the_run_nothing_and_one_line(tmp_path: Path):
    with listening(Receiver()) as address:
        pass
    (tmp_path / "program.py").write_text(SESSION)
    (tmp_path / "flightlog.yaml").write_text("version: 1\nproject: {name: live}\n")
    done = subprocess.run(
        [sys.executable, "program.py", "5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=quiet(OTEL_EXPORTER_OTLP_ENDPOINT=address, FLIGHTLOG_FOLLOWERS_WAIT="1"),
    )
    run = the_run(tmp_path)
    assert done.returncode == 0
    assert "flightlog export" in done.stderr
    for pid in followers(run):
        os.kill(pid, signal.SIGTERM)
    until(lambda: not followers(run))
    failed = export(run, address)
    assert failed.returncode != 0
    assert "does not answer (Connection refused)" in failed.stderr
