"""What the page on the bridge to OpenTelemetry says is so."""

from __future__ import annotations

import sys
from pathlib import Path

from builders.documents import ROOT, blocks, run_in

from flightlog.store.completing import open_run

PAGE = ROOT / "docs" / "otel-bridge.md"


def test_the_code_of_the_page_runs_and_records_what_it_says(tmp_path: Path) -> None:
    first, *more = blocks(PAGE, "python")
    (tmp_path / "first.py").write_text(first)
    assert run_in(tmp_path, sys.executable, "first.py") == ""
    _, query = blocks(PAGE, "bash")
    assert "GET /weights" in run_in(tmp_path, "sh", "-e", "-c", query)
    run = open_run("latest", runs_dir=tmp_path / ".flightlog" / "runs")
    spans = {event.name: event for event in run.events("spans")}
    assert spans["decode"].parent_id == spans["GET /weights"].span_id
    assert spans["GET /weights"].parent_id == spans["prepare"].span_id
    assert spans["GET /weights"].tags == {"http.response.status_code": 200, "otel.scope": "my.library"}
    assert spans["GET /weights"].metrics == {"http.response.body.size": 4096}
    (tmp_path / "more.py").write_text("\n".join([first, *more]))
    assert run_in(tmp_path, sys.executable, "more.py") == ""
