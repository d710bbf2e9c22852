"""Whatever stands in a run's documents and lines, commands answer or say what is wrong; they never end with a
traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders.small_run import small_run
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.cli.main import main

ODD = [
    "null",
    "true",
    "-1",
    "0",
    "0.5",
    '""',
    '"x"',
    "[]",
    "{}",
    "[1]",
    "[null]",
    '{"a":[{}]}',
    '{"":{"":1}}',
    '{"\\ud800":1}',
    str(1 << 63),
    str(1 << 64),
    str(-(1 << 63) - 1),
    "1" + "0" * 400,
    "1" + "0" * 5000,
    "1e308",
    "-1e308",
    "1e400",
    "1e-320",
    "NaN",
    "Infinity",
    '"\\ud800"',
    '"\\u0000"',
    '"' + "x" * 100_000 + '"',
    "[" * 400 + "]" * 400,
    "[" * 900 + "]" * 900,
    "[" * 3000 + "]" * 3000,
    '{"a":' * 700 + "1" + "}" * 700,
    '"2026-99-99T99:99:99Z"',
    '"0000-01-01T00:00:00.000000Z"',
    '"9999-12-31T23:59:59.999999Z"',
]
"""JSON texts, as no recorder writes them."""
HERE = "the odd value stands here"
COMMANDS = [
    ["report", "RUN"],
    ["list", "--format", "json"],
    ["verify", "RUN"],
    ["diagnose", "RUN"],
    ["timeline", "RUN"],
    ["export", "RUN", "--to", "perfetto", "--output", "OUT"],
    ["devices", "RUN"],
    ["compare", "OTHER", "RUN"],
    ["sql", "FROM runs", "--all"],
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one that is changed, and one to compare it with."""
    runs = tmp_path_factory.mktemp("odd")
    small_run(runs, "a0000000")
    small_run(runs, "b0000000")
    return runs


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in a document, by the keys that lead there."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*at, key))


def put(value: Any, at: tuple[Any, ...], odd: Any) -> Any:
    """The document with another value at a place."""
    if not at:
        return odd
    copy = value.copy()
    copy[at[0]] = put(value[at[0]], at[1:], odd)
    return copy


def changed(text: str, data: st.DataObject) -> str:
    """A JSON text with an odd value somewhere."""
    document = json.loads(text)
    at = data.draw(st.sampled_from(list(places(document))), label="where")
    odd = data.draw(st.sampled_from(ODD), label="odd value")
    return json.dumps(put(document, at, HERE)).replace(json.dumps(HERE), odd)


@settings(max_examples=3)
@given(data=st.data())
def test_no_value_in_a_run_ends_a_command_with_a_traceback(made: Path, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        shutil.copytree(made, runs)
        run, other = sorted(runs.glob("run-*"))
        files = sorted(file for file in run.rglob("*") if file.is_file())
        for file in data.draw(
            st.lists(st.sampled_from(files), min_size=4, max_size=12, unique=True), label="files"
        ):
            if file.suffix == ".jsonl":
                lines = file.read_text().splitlines()
                number = data.draw(st.integers(0, len(lines) - 1), label="line")
                lines[number] = changed(lines[number], data)
                file.write_text("\n".join(lines) + "\n")
            else:
                file.write_text(changed(file.read_text(), data))
        stand_for = {"RUN": str(run), "OTHER": str(other), "OUT": f"{folder}/trace.json"}
        for command in COMMANDS:
            words = [stand_for.get(word, word) for word in command]
            over_all = words[0] in {"list", "compare"} or "--all" in words
            assert main([*words, *(["--runs-dir", str(runs)] if over_all else [])]) in {0, 1, 2}, words
