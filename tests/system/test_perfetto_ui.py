"""Perfetto itself loads the trace: its UI in a browser, and its trace processor agrees with the run."""

from __future__ import annotations

from pathlib import Path

import debian
import pytest
from perfetto_server import OpenTrace, perfetto

import flightlog
from flightlog.export.base import Exported, ExportOptions
from flightlog.export.perfetto.exporter import exporter
from flightlog.session.session import Session
from flightlog.store.completing import open_run
from flightlog.store.run import Run

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

TASKS = 200


def load(n: int) -> int:
    with flightlog.span("read", n=n), flightlog.span("parse"):
        return n


def fit(loaded: int) -> int:
    if loaded == 7:
        raise ValueError("seven")
    return loaded


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of a session with tasks that depend on others, spans inside them, a failure and samples."""
    folder = tmp_path_factory.mktemp("runs")
    manifest = folder / "flightlog.yaml"
    manifest.write_text(
        "version: 1\nproject:\n  name: picture\ntargets:\n  local:\n    provider: local\n    max_workers: 2\n"
    )
    with Session.from_yaml(manifest, target="local", runs_dir=folder / "runs") as session:
        loaded = [session.client.submit(load, n) for n in range(TASKS // 2)]
        fitted = [session.client.submit(fit, future) for future in loaded]
        for future in fitted:
            future.exception()
    return open_run("latest", runs_dir=folder / "runs")


def test_perfetto_shows_what_was_recorded(recorded: Run, tmp_path: Path) -> None:
    debian.install({"chromium": "chromium"})
    output = tmp_path / "run.trace.json.gz"
    exported = exporter.export(recorded, output, ExportOptions())
    assert exported.counts["tasks"] == TASKS
    with perfetto(output) as trace:
        assert trace.dialog() is None
        assert_same(trace, recorded, exported)
        trace.page.screenshot(path=tmp_path / "perfetto.png")


def assert_same(trace: OpenTrace, run: Run, exported: Exported) -> None:
    """Slices, nesting, times, arrows and curves are in Perfetto as they are in the run, and it has nothing to
    complain of."""
    wrong = "SELECT name, value FROM stats WHERE value > 0 AND severity IN ('error', 'data_loss')"
    assert trace.ask(wrong) == []
    counted = dict(trace.ask("SELECT category, count(*) FROM slice GROUP BY 1"))
    assert (counted["task"], counted["span"]) == (exported.counts["tasks"], exported.counts["spans"])
    assert trace.ask("SELECT count(*) FROM flow") == [(exported.counts["arrows"],)]
    assert trace.ask("SELECT count(*) FROM counter") == [(exported.counts["counter values"],)]
    shown = trace.ask("SELECT name, sum(dur) FROM slice WHERE category = 'task' GROUP BY 1 ORDER BY 1")
    known = run.sql("SELECT task, sum(duration_s) FROM attempts GROUP BY 1 ORDER BY 1").rows()
    assert [name for name, _ in shown] == [name for name, _ in known]
    for (_, dur_ns), (_, seconds) in zip(shown, known, strict=True):
        assert abs(dur_ns / 1e9 - seconds) < 2e-6 * TASKS  # each is rounded to a microsecond
    inside = (
        "SELECT p.name, s.name, count(*) FROM slice s JOIN slice p ON p.id = s.parent_id GROUP BY 1, 2 "
        "ORDER BY 1"
    )
    assert trace.ask(inside) == [(known[1][0], "read", TASKS // 2), ("read", "parse", TASKS // 2)]
    tied = """
        SELECT o.category, o.name, i.category, i.name, count(*) FROM flow f
        JOIN slice o ON o.id = f.slice_out JOIN slice i ON i.id = f.slice_in
        WHERE o.category = 'task' GROUP BY 1, 2, 3, 4
    """
    assert trace.ask(tied) == [("task", known[1][0], "task", known[0][0], TASKS // 2)]
