from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flightlog
from flightlog.store.run import Run


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Any]:
    """Record a run in a temporary folder, without sampling."""

    def start(project: str = "demo", **options: Any) -> Any:
        return flightlog.record(
            project, **{"runs_dir": tmp_path / "runs", "sample_interval_s": None, **options}
        )

    return start


@pytest.fixture
def spans_of() -> Callable[..., dict[str, Any]]:
    """The finished spans of a live or closed run, by name."""

    def read(run: Any) -> dict[str, Any]:
        return {e.name: e for e in Run(run.path).events("spans") if type(e).__name__ == "SpanEvent"}

    return read
