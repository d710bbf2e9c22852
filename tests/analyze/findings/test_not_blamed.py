"""What a report does not say, or not for sure: runs that look like something they are not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from builders.runs import at, make_run
from builders.task_events import span

from flightlog.analyze.report.report import Report, report_bytes, report_on
from flightlog.events import Event
from flightlog.store.run import Run


def reported(tmp_path: Path, events: Iterable[Event], lasts: float = 10.0, **facts: Any) -> Report:
    path = make_run(tmp_path, events, **{"end_time": at(lasts), "duration_s": lasts, **facts})
    return report_on(Run(path), details=False)


def test_names_that_were_not_recorded_do_not_keep_a_report_from_being_written(tmp_path: Path) -> None:
    path = make_run(tmp_path, [span("fit", 0, 10, "s")])
    line = {"timestamp": at(1), "writer": "w0000001"}
    for stream, event in (
        ("metrics", {"event": "metric", "value": 1.0, "step": 1}),
        ("cache", {"event": "cache_lookup", "key": "k", "result": "hit"}),
    ):
        field = "name" if stream == "metrics" else "task"
        (path / f"{stream}.jsonl").write_text(
            "".join(
                json.dumps({**line, **event, "seq": n, field: name}) + "\n"
                for n, name in enumerate((None, "known"))
            )
        )
    written = json.loads(report_bytes(report_on(Run(path))))
    assert list(written["run"]["metrics"]) == ["known"]
    assert (written["cache"]["hits"], list(written["cache"]["by_name"])) == (2, ["known"])
