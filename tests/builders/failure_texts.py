"""Failure texts in the shape that programs print, by the class that each stands for: one JSON pair a line
beside this."""

from __future__ import annotations

import json
from pathlib import Path

TEXTS: dict[str, list[str]] = {}
for line in Path(__file__).with_suffix(".jsonl").read_text("utf-8").splitlines():
    failure_class, text = json.loads(line)
    TEXTS.setdefault(failure_class, []).append(text)
