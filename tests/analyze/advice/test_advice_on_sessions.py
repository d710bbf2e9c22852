"""What advice looks at, read from what real sessions recorded."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier

from flightlog.analyze.advice.caching import find_duplicate_calls
from flightlog.analyze.advice.statistics import gather
from flightlog.session.session import Session
from flightlog.store.run import Run

MANIFEST = """
version: 1
project: {name: trial}
targets:
  here: {provider: local, max_workers: 2, processes: false}
tasks:
  check: {retries: 2}
  twice: {cache: true}
"""
together = Barrier(2)


def meet(n):
    """Returns when another one runs beside it."""
    together.wait(60)
    return n


def check(n):
    raise ValueError(f"seed {n} is odd")


def twice(n):
    return 2 * n


def session_run(folder: Path) -> Run:
    folder.mkdir(exist_ok=True)
    (folder / "flightlog.yaml").write_text(MANIFEST)
    with Session(
        folder / "flightlog.yaml",
        target="here",
        runs_dir=folder / "runs",
        sample_interval_s=None,
        progress=False,
    ) as session:
        client = session.client
        client.gather(client.map(meet, [1, 2, 1, 2]))
        client.gather([*client.map(check, [3, 5]), *client.map(twice, [1, 2, 1])], errors="return")
    return Run(session.path)


def test_a_session_tells_its_threads_its_retries_its_cache_and_its_waves(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_CACHE_DIR", str(tmp_path / "cache"))
    run = session_run(tmp_path)
    shape = gather(run)
    assert {name: (task.attempts, task.completed) for name, task in shape.tasks.items()} == {
        "meet": (4, 4),
        "check": (6, 0),
        "twice": (3, 3),
    }
    assert (shape.workers, shape.side_by_side.processes) == (2, 1)
    assert shape.side_by_side.held_s > shape.side_by_side.covered_s
    [row] = shape.retried
    assert (row.name, row.error_type, row.tasks, row.tried_again, row.rescued, row.same_again) == (
        "check",
        "ValueError",
        2,
        2,
        0,
        2,
    )
    use = shape.cache["twice"]
    assert use.hits + use.misses == 3
    assert use.hits <= 1
    assert shape.cached_tasks == {"twice"}
    assert (shape.planned.target, shape.planned.tasks["check"].retries) == ("here", 2)
    assert sum(len(wave.releases) for wave in shape.waves) == 13


def test_calls_are_the_same_in_another_session_of_the_same_functions(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_CACHE_DIR", str(tmp_path / "cache"))
    runs = [session_run(tmp_path) for _ in range(2)]
    found = {one.name: (one.calls, one.different) for one in find_duplicate_calls(runs)[0]}
    assert found == {"meet": (8, 2), "twice": (6, 2)}
