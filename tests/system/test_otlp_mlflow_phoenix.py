"""Real servers take a recorded run by OTLP, and give it back with the same parents and times."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from otlp_server import mlflow, phoenix

from flightlog.export.otlp.json_file import otlp_json
from flightlog.store.completing import open_run
from flightlog.store.run import Run

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

PROGRAM = """
import flightlog
from flightlog import Session

def simulate(seed):
    with flightlog.span("setup", seed=seed):
        with flightlog.span("read"):
            pass
    if seed == 2:
        raise ValueError("two does not converge")
    return seed

def total(first, second):
    return first + second

if __name__ == "__main__":
    with Session("flightlog.yaml") as session:
        runs = session.client.map(simulate, range(4))
        print(session.client.submit(total, runs[0], runs[1]).result())
        for one in runs:
            one.exception()
"""
MANIFEST = "version: 1\nproject: {name: served}\ntasks: {simulate: {retries: 1}}\n"


class Seen(NamedTuple):
    """What a server must not change of a span."""

    name: str
    parent: str | None
    start: Any
    end: Any
    status: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A session of four tasks on worker processes, spans inside them, one that fails twice, one that depends
    on two."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "flightlog.yaml").write_text(MANIFEST)
    subprocess.run([sys.executable, "program.py"], cwd=folder, env=quiet(), check=True)
    return open_run(runs_dir=folder / ".flightlog" / "runs")


def quiet(**more: str) -> dict[str, str]:
    return {**{name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}, **more}


def export(run: Run, address: str, **environ: str) -> str:
    command = [
        sys.executable,
        "-m",
        "flightlog",
        "export",
        str(run.path),
        "--to",
        "otlp",
        "--endpoint",
        address,
    ]
    done = subprocess.run(command, env=quiet(**environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected(run: Run) -> dict[str, Seen]:
    """The spans of the run in nanoseconds, as the file has them."""
    codes = {0: "UNSET", 1: "OK", 2: "ERROR"}
    return {
        span["spanId"]: Seen(
            span["name"],
            span.get("parentSpanId"),
            int(span["startTimeUnixNano"]),
            int(span["endTimeUnixNano"]),
            codes[span["status"].get("code", 0)],
        )
        for form in otlp_json(run)
        for group in form.get("resourceSpans", ())
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    }


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def test_the_run_is_worth_sending(run: Run):
    spans = expected(run)
    assert sorted(span.name for span in spans.values()) == sorted(
        ["served", "total", *["simulate"] * 5, *["setup"] * 5, *["read"] * 5]
    )
    assert sum(span.status == "ERROR" for span in spans.values()) == 2


def test_mlflow_gives_back_the_same_parents_and_times(run: Run, tmp_path: Path):
    with mlflow(tmp_path) as address:
        said = export(run, address, OTEL_EXPORTER_OTLP_HEADERS="x-mlflow-experiment-id=0")
        assert "17 spans" in said
        assert "takes no metrics" in said
        nothing = export(run, address, OTEL_EXPORTER_OTLP_HEADERS="x-mlflow-experiment-id=0")
        assert "0 spans" in nothing
        trace = get(f"{address}/api/3.0/mlflow/traces/get?trace_id=tr-{run.info.trace_id}")["trace"]
    codes = {"STATUS_CODE_UNSET": "UNSET", "STATUS_CODE_OK": "OK", "STATUS_CODE_ERROR": "ERROR"}
    assert {
        _hex(span["span_id"]): Seen(
            span["name"],
            _hex(span["parent_span_id"]) if span.get("parent_span_id") else None,
            int(span["start_time_unix_nano"]),
            int(span["end_time_unix_nano"]),
            codes[span["status"].get("code", "STATUS_CODE_UNSET")],
        )
        for span in trace["spans"]
    } == expected(run)


def test_phoenix_gives_back_the_same_parents_and_times(run: Run, tmp_path: Path):
    with phoenix(tmp_path) as address:
        assert "17 spans" in export(run, address)
        spans = _when_all_are_there(f"{address}/v1/projects/default/spans?limit=100", 17)
    found = {
        span["context"]["span_id"]: Seen(
            span["name"],
            span["parent_id"],
            _nanoseconds(span["start_time"]),
            _nanoseconds(span["end_time"]),
            span["status_code"],
        )
        for span in spans
    }
    sent = expected(run)
    assert {key: span._replace(start=0, end=0) for key, span in found.items()} == {
        key: span._replace(start=0, end=0) for key, span in sent.items()
    }
    off = [abs(found[key].start - span.start) + abs(found[key].end - span.end) for key, span in sent.items()]
    assert max(off) <= 2 * 1000  # it keeps whole microseconds


def _when_all_are_there(url: str, number: int) -> list[Any]:
    """Phoenix answers before it has written: ask until all spans are there, or nothing more comes for
    long."""
    import time

    deadline = time.monotonic() + 30
    while len(spans := get(url)["data"]) < number and time.monotonic() < deadline:
        time.sleep(0.2)
    return list(spans)


def _hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _nanoseconds(text: str) -> int:
    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
