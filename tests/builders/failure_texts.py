"""Failure texts in the shape that programs print, in two files beside this.

`failure_texts.jsonl` holds one JSON pair a line, a class and a short text of our own that stands for it.
`failure_reports.jsonl` holds whole reports with launchers' and schedulers' noise around the cause, one object
a line as `bench.diagnose` reads them: `label`, `also` (classes that an expert would accept, too), `text`,
`exception_type` and `source`. They were written after public issue threads, with names, paths and figures
invented, and were labelled without looking at what `diagnose` says; `source` names the project whose users
reported the like.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def _read(name: str) -> list[Any]:
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text("utf-8").splitlines()]


TEXTS: dict[str, list[str]] = {}
for failure_class, text in _read("failure_texts.jsonl"):
    TEXTS.setdefault(failure_class, []).append(text)
REPORTS: list[dict[str, Any]] = _read("failure_reports.jsonl")
