"""What the page on Prometheus says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders.documents import ROOT
from builders.event_samples import a_bit_of_everything
from builders.runs import START, make_run

from flightlog.export.prometheus.run_metrics import GPU, NODE, RunWatch, families
from flightlog.export.prometheus.server import RunsCollector
from flightlog.store.liveness import here
from flightlog.store.runs_folder import RunsPlace

PAGE = (ROOT / "docs" / "prometheus.md").read_text()


def documented() -> set[str]:
    named = set(re.findall(r"`(flightlog_[a-z0-9_]+)`", PAGE))
    return {name.removesuffix("_total") for name in named}


def given_out(folder: Path) -> set[str]:
    """Every name that a run with everything in it has, without the endings that its kind adds."""
    metrics = RunWatch(make_run(folder, a_bit_of_everything(), heartbeat=START)).look(here())
    families_of_run = families([metrics], now_of_ended=True)
    names = {
        f"{one.name}_info" if one.type == "info" else one.name
        for one in (*families_of_run, *RunsCollector(RunsPlace(folder.as_uri())).collect())
    }
    return names | {f"flightlog_node_{name}" for name in NODE} | {f"flightlog_gpu_{name}" for name in GPU}


def test_every_metric_is_on_the_page_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTLOG_REMOTE_CACHE", str(tmp_path / "copies"))
    assert documented() == given_out(tmp_path / "runs")
