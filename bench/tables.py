"""Questions to a run of very many tasks: the table `attempts` beside bare DuckDB on the same lines, and
Parquet.

python -m bench.tables 1000000
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from bench.ways import medians, peak_megabytes, three_ways
from flightlog.store.run import Run

TASKS = 200_000
"""So many in the routine; a million takes minutes."""
QUESTIONS = (
    "SELECT task, count(*), avg(duration_s), quantile_cont(duration_s, [0.5, 0.95, 0.99]), max(duration_s) "
    "FROM {attempts} WHERE {completed} GROUP BY task",
    "SELECT count(queue_s), avg(queue_s), quantile_cont(queue_s, [0.5, 0.95, 0.99]), max(queue_s) "
    "FROM {attempts} WHERE {completed}",
    "SELECT worker, count(*), sum(duration_s) FROM {attempts} WHERE {completed} GROUP BY worker",
)
_COLUMNS = "{event: 'VARCHAR', task: 'VARCHAR', worker: 'VARCHAR', duration_s: 'DOUBLE', queue_s: 'DOUBLE'}"


def measure(tasks: int = TASKS) -> dict[str, float]:
    """Seconds of three aggregations and the peak memory of each way; medians."""
    found = three_ways("bench.tables", tasks)
    first, *others = (one["answer"] for rounds in found.values() for one in rounds if "answer" in one)
    assert all(_is_like(first, other) for other in others), "the ways give different answers"
    return medians(found, "seconds", "megabytes")


def _ask(way: str, run: Path) -> None:
    """Answer the questions one way, and print how long that took and what came out."""
    from time import perf_counter

    import duckdb

    from flightlog.store.tables.run_tables import open_tables

    begun = perf_counter()
    if way == "bare":
        scan = f"read_json('{run}/tasks.jsonl', format='newline_delimited', columns={_COLUMNS})"
        with duckdb.connect() as connection:
            rows = _answers(connection, scan, "event = 'task_completed'")
    else:
        with open_tables([Run(run)]) as connection:
            rows = _answers(connection, "attempts", "state = 'completed'")
    seconds = perf_counter() - begun
    peak = peak_megabytes()
    print(json.dumps({"seconds": seconds, "megabytes": peak, "answer": rows}))


def _answers(connection: object, attempts: str, completed: str) -> list[object]:
    found = []
    for question in QUESTIONS:
        asked = question.format(attempts=attempts, completed=completed)
        rows = connection.execute(asked).fetchall()  # type: ignore[attr-defined]
        found.append(sorted(rows))
    return found


def _is_like(one: object, other: object) -> bool:
    """Whether both say the same; sums in another order differ in their last digits."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_like, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _ask(sys.argv[1], Path(sys.argv[2]))
    else:
        for what, value in measure(*map(int, sys.argv[1:])).items():
            print(f"{what:<20} {value:,.2f}")
