"""A report on a damaged run is that on the lines which are left of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from builders.examples import FEW
from builders.random_runs import Shape
from builders.runs import at, make_run
from hypothesis import example, given
from hypothesis import strategies as st

from flightlog.analyze.report.report import report_bytes, report_on
from flightlog.demo.sweep import sweep
from flightlog.store.integrity import write_checksums
from flightlog.store.run import Run

STREAMS = ("tasks", "workers", "spans", "failures", "cache", "resources")
FOREIGN = [b"\xff\xfe\n", b'{"no": "event"}\n', b"[1, 2]\n", b"\n", b'{"event": "of_tomorrow", "x": {}}\n']


def damage(path: Path, whole: Path, seed: int) -> None:
    """Some lines are lost in both runs; in the first one some stand twice, all stand anywhere, some are
    foreign, and the last is torn.
    """
    dice = Random(seed)
    for stream in STREAMS:
        file = path / f"{stream}.jsonl"
        if file.exists():
            left = [line for line in file.read_bytes().splitlines(keepends=True) if dice.random() > 0.15]
            (whole / file.name).write_bytes(b"".join(left))
            lines = [*left, *dice.sample(left, len(left) // 4), *FOREIGN]
            dice.shuffle(lines)
            file.write_bytes(b"".join(lines) + b"".join(lines)[: dice.randrange(1, 40)])


def said(path: Path) -> dict[str, Any]:
    """A report without what it says of the files themselves."""
    found: dict[str, Any] = msgspec.json.decode(report_bytes(report_on(Run(path))))
    del found["completeness"]
    return found


def check(path: Path, other: Path, seed: int) -> None:
    shutil.copytree(path, other)
    damage(path, other, seed)
    write_checksums(other)
    assert said(path) == said(other)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = sweep(tmp_path_factory.mktemp("demo") / "runs", 12, workers=2).path
    assert path is not None
    return path


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_demo_says_what_is_left_of_it(demo: Path, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "damaged" / demo.name
    shutil.copytree(demo, path)
    check(path, tmp_path / "left" / demo.name, seed)


@FEW
@given(st.integers(0, 2**32), st.booleans())
@example(43020, True)  # nothing ran, and the quota held it back
def test_so_do_runs_of_any_shape(seed: int, closed: bool) -> None:
    facts: dict[str, Any] = {"end_time": at(50), "duration_s": 50.0}
    if not closed:
        facts = {"status": "crashed", "end_time": None, "duration_s": None, "heartbeat": at(55)}
    with TemporaryDirectory(prefix="flightlog-test-") as folder:
        path = make_run(Path(folder) / "damaged", Shape(seed).events(), **facts)
        check(path, Path(folder) / "left" / path.name, seed)
