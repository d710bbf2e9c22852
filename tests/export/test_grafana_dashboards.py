"""Dashboards for Grafana ask for metrics that there are, and can be imported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flightlog.cli.main import main
from flightlog.export.prometheus import DASHBOARDS
from flightlog.export.prometheus.run_metrics import _OF_PLACES, _OF_RUNS

FILES = sorted(DASHBOARDS.glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_dashboard_is_one(file: Path) -> None:
    dashboard = json.loads(file.read_text())
    assert dashboard["schemaVersion"] >= 41
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    cells = [(x + dx, y + dy) for x, y, w, h in places for dx in range(w) for dy in range(h)]
    assert len(set(cells)) == len(cells)  # none lies on another
    assert all(0 <= x < 24 for x, _ in cells)
    for panel in panels:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert all(target["expr"] for target in panel["targets"])


def test_every_metric_of_a_run_that_is_asked_for_is_declared() -> None:
    text = (DASHBOARDS / "flightlog.json").read_text()
    asked = {re.sub(r"_(total|bucket)$", "", name) for name in re.findall(r"\bflightlog_(\w+)", text)}
    own = {"run_info", "task_duration_seconds", "scrape_duration_seconds"}
    assert asked - own <= {*_OF_RUNS, *_OF_PLACES}
    assert len(asked) > 30


def test_the_command_writes_them_without_serving_anything(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "new" / "dashboards"
    assert main(["serve-metrics", "--grafana", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}/flightlog.json\n{folder}/rhapsody.json\n"
    assert [(folder / file.name).read_bytes() for file in FILES] == [file.read_bytes() for file in FILES]
    (tmp_path / "file").touch()
    assert main(["serve-metrics", "--grafana", str(tmp_path / "file")]) == 2
    assert "cannot write into" in capsys.readouterr().err
