"""The report of a run of very many tasks as `flightlog report` shows it, beside bare DuckDB aggregating the
same files, compacting it, and its report after that; listing very many runs, and closing one.

python -m bench.report 1000000

The bare statements count what the report counts, as somebody would by hand who knows that every line is there
once: attempts put together from their lines; times, use and metrics by task name; queueing; workers; how many
ran at once; what ran before on each worker; whether lines are missing; how much of the time between tasks
others were queued; the chain that set the wall time; the slowest tasks; spans by name with their own time and
time on the clock.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from bench.large_run import write_large_run
from bench.ways import medians, peak_megabytes, three_ways
from flightlog.store.run import Run

TASKS = 200_000
"""So many in the routine; a million takes minutes."""

_TASK = {
    "event": "VARCHAR",
    "timestamp": "TIMESTAMP",
    "writer": "VARCHAR",
    "seq": "BIGINT",
    "task": "VARCHAR",
    "task_id": "VARCHAR",
    "attempt": "INTEGER",
    "worker": "VARCHAR",
    "queue_s": "DOUBLE",
    "duration_s": "DOUBLE",
    "cpu_s": "DOUBLE",
    "peak_rss_bytes": "BIGINT",
    "result_bytes": "BIGINT",
    "args": "JSON",
    "metrics": "JSON",
    "error_type": "VARCHAR",
    "span_id": "VARCHAR",
}
_SPAN = {
    "event": "VARCHAR",
    "timestamp": "TIMESTAMP",
    "writer": "VARCHAR",
    "seq": "BIGINT",
    "name": "VARCHAR",
    "span_id": "VARCHAR",
    "parent_id": "VARCHAR",
    "duration_s": "DOUBLE",
    "status": "VARCHAR",
    "metrics": "JSON",
}
_BARE = (
    "CREATE TEMP TABLE lines AS SELECT * FROM {tasks}",
    """CREATE TEMP TABLE attempts AS SELECT task_id, coalesce(attempt, 1) AS attempt, max(task) AS task,
        max(worker) AS worker, max("timestamp") FILTER (event = 'task_submitted') AS submitted,
        max("timestamp") FILTER (event = 'task_queued') AS queued,
        max("timestamp") FILTER (event = 'task_started') AS started,
        max("timestamp") FILTER (event IN ('task_completed', 'task_failed', 'task_cancelled')) AS ended,
        max(queue_s) AS queue_s, max(duration_s) AS duration_s, max(span_id) AS span_id
    FROM lines GROUP BY task_id, attempt""",
    """SELECT task, event, count(*), avg(duration_s), min(duration_s),
        quantile_cont(duration_s, [0.5, 0.95, 0.99]),
        max(duration_s), sum(cpu_s), max(peak_rss_bytes), sum(result_bytes) FROM lines GROUP BY task,
            event""",
    "SELECT count(queue_s), avg(queue_s), quantile_cont(queue_s, [0.5, 0.95, 0.99]), max(queue_s) FROM "
    "attempts",
    "SELECT worker, count(*), sum(duration_s), min(started), max(ended) FROM attempts GROUP BY worker",
    """SELECT max(running) FROM (SELECT sum(step) OVER (ORDER BY moment, step) AS running FROM (
        SELECT started AS moment, 1 AS step FROM attempts UNION ALL SELECT ended, -1 FROM attempts))""",
    """SELECT max(waiting) FROM (SELECT sum(step) OVER (ORDER BY moment, step) AS waiting FROM (
        SELECT queued AS moment, 1 AS step FROM attempts UNION ALL SELECT started, -1 FROM attempts))""",
    """SELECT task, sum(epoch(started - before)) FROM (
        SELECT task, started, lag(ended) OVER (PARTITION BY worker ORDER BY started) AS before FROM attempts)
    GROUP BY task""",
    "SELECT writer, count(*), min(seq), max(seq) FROM lines GROUP BY writer",
    """CREATE TEMP TABLE queue AS SELECT since, until, sum(until - since) OVER (ORDER BY since) AS so_far
        FROM (
        SELECT min(since) AS since, max(until) AS until FROM (
            SELECT since, until, sum(apart) OVER (ORDER BY since, until) AS piece FROM (
                SELECT epoch_us(queued) AS since, epoch_us(started) AS until,
                    since > max(until) OVER (ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING
                        AND 1 PRECEDING) AS apart
                FROM attempts))
        GROUP BY piece)""",
    """SELECT gaps.worker, sum(gaps.until - gaps.since),
        sum(coalesce(b.so_far - greatest(0, b.until - gaps.until), 0)
            - coalesce(a.so_far - greatest(0, a.until - gaps.since), 0))
    FROM (SELECT worker, lag(epoch_us(ended)) OVER (PARTITION BY worker
        ORDER BY started) AS since, epoch_us(started) AS until
        FROM attempts) AS gaps
        ASOF LEFT JOIN queue AS a ON gaps.since >= a.since ASOF LEFT JOIN queue AS b ON gaps.until >= b.since
    WHERE gaps.since < gaps.until GROUP BY gaps.worker""",
    """CREATE TEMP TABLE chain AS
    WITH numbered AS (SELECT *, row_number() OVER (ORDER BY started, task_id) AS n FROM attempts)
    SELECT now.n, now.task, now.started, now.ended, now.submitted, before.n AS before,
        before.ended AS before_ended, base.n AS base
    FROM numbered AS now
        ASOF LEFT JOIN numbered AS before ON now.worker = before.worker AND now.started >= before.ended
        ASOF LEFT JOIN (SELECT n, ended FROM numbered) AS base ON now.submitted >= base.ended""",
    """SELECT list(CASE WHEN before_ended >= submitted THEN before ELSE base END ORDER BY n),
        list(task ORDER BY n), list(epoch_us(ended) - epoch_us(started) ORDER BY n), arg_max(n, ended)
            FROM chain""",
    """SELECT task, task_id, args, duration_s FROM lines WHERE event = 'task_completed'
    ORDER BY duration_s DESC, task_id LIMIT 10""",
    """SELECT task, entry.key, count(*), avg(entry.value::DOUBLE), min(entry.value::DOUBLE),
        max(entry.value::DOUBLE)
    FROM (SELECT task, unnest(map_entries(from_json(metrics, '"MAP(VARCHAR, JSON)"'))) AS entry FROM lines)
    GROUP BY ALL""",
    "CREATE TEMP TABLE spans AS SELECT * FROM {spans}",
    "SELECT writer, count(*), min(seq), max(seq) FROM spans GROUP BY writer",
    """SELECT name, count(*), count(*) FILTER (status = 'error'), sum(duration_s),
        quantile_cont(duration_s, [0.5, 0.95]), max(duration_s), sum(duration_s - coalesce(inside, 0))
    FROM spans LEFT JOIN (SELECT parent_id AS span_id, sum(duration_s) AS inside FROM spans GROUP BY ALL)
        USING (span_id) GROUP BY name""",
    """SELECT name, sum(greatest(0, until - greatest(since, coalesce(reached, since)))) FROM (
        SELECT *, max(until) OVER (PARTITION BY name ORDER BY since, until
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
        FROM (SELECT name, epoch("timestamp") AS since, epoch("timestamp") + duration_s AS until FROM spans))
    GROUP BY name""",
    """SELECT name, entry.key, count(*), avg(entry.value::DOUBLE), min(entry.value::DOUBLE),
        max(entry.value::DOUBLE)
    FROM (SELECT name, unnest(map_entries(from_json(metrics, '"MAP(VARCHAR, JSON)"'))) AS entry FROM spans)
    GROUP BY ALL""",
)


def measure(tasks: int = TASKS) -> dict[str, float]:
    """Seconds, CPU seconds and peak memory of each way; medians."""
    found = three_ways("bench.report", tasks, ("kept", "parquet"))
    assert {one["tasks"] for rounds in found.values() for one in rounds if "tasks" in one} == {tasks}
    return medians(found, "seconds", "cpu_seconds", "megabytes")


def listing(runs: int = 5_000) -> float:
    """Seconds of `flightlog list` in a folder of so many closed runs that was listed before."""
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as scratch:
        folder = f"{scratch}/runs"
        first = write_large_run(Path(folder), 1)
        for number in range(1, runs):
            run_id = f"run-20260520T035200Z-large-{number:08x}"
            shutil.copytree(first, Path(folder) / run_id)
            info = (Path(folder) / run_id / "run.json").read_text().replace(first.name, run_id)
            (Path(folder) / run_id / "run.json").write_text(info)
        return min(_listed(folder) for _ in range(4))


def _listed(folder: str) -> float:
    before = perf_counter()
    command = [sys.executable, "-m", "flightlog", "list", "--runs-dir", folder]
    # As where Flightlog is installed: modules are compiled once.
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}.pyc"}
    subprocess.run(command, capture_output=True, check=True, env=environ)
    return perf_counter() - before


def closing(tasks: int = 10_000) -> float:
    """CPU seconds that the end of a run of so many tasks takes in the program's own process."""
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", _CLOSING, folder, str(tasks)], capture_output=True, text=True, check=True
        )
    return float(done.stdout)


_CLOSING = """
import sys, time
import flightlog

recording = flightlog.record("closing", runs_dir=sys.argv[1])
run = recording.__enter__()
for number in range(int(sys.argv[2])):
    with run.task("simulate", args={"seed": number}):
        pass
before = time.process_time()
recording.__exit__(None, None, None)
print(time.process_time() - before)
"""


def _bare(run: Path) -> int:
    import duckdb

    def scan(stream: str, columns: dict[str, str]) -> str:
        named = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
        return f"read_json('{run}/{stream}.jsonl', format='newline_delimited', columns={{{named}}})"

    with duckdb.connect(config={"preserve_insertion_order": "false"}) as connection:  # type: ignore[arg-type]
        for statement in _BARE:
            connection.execute(
                statement.replace("{tasks}", scan("tasks", _TASK)).replace("{spans}", scan("spans", _SPAN))
            )
            rows = connection.fetchall()
            if "arg_max(n, ended)" in statement:
                _follow(*rows[0])
        [(tasks,)] = connection.execute("SELECT count(*) FROM attempts").fetchall()
    return int(tasks)


def _follow(
    previous: Sequence[int | None], tasks: Sequence[str], lasted: Sequence[int], last: int | None
) -> dict[str, int]:
    """How much of the chain that ends with the attempt `last` each task name took; attempts are numbered from
    1."""
    found: dict[str, int] = {}
    while last is not None:
        found[tasks[last - 1]] = found.get(tasks[last - 1], 0) + lasted[last - 1]
        last = previous[last - 1]
    return found


def _report(run: Path, *, kept: bool) -> int:
    """The report from the files of a run, or the one that compacting it has `kept`."""
    from flightlog.analyze.limits import ReportLimits
    from flightlog.analyze.report.report import report_on
    from flightlog.show.report import report_text

    if not kept:
        ReportLimits.min_kept_report_bytes = 1 << 62  # type: ignore[misc]
        (run / "parquet" / "report.json").unlink(missing_ok=True)
    report = report_on(Run(run), details=False)
    assert report_text(report)
    return report.tasks.completed


def _measured(way: str, run: Path) -> None:
    from time import perf_counter, process_time

    begun = perf_counter()
    tasks = _bare(run) if way == "bare" else _report(run, kept=way == "kept")
    figures = {
        "seconds": perf_counter() - begun,
        "cpu_seconds": process_time(),
        "megabytes": peak_megabytes(),
        "tasks": tasks,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _measured(sys.argv[1], Path(sys.argv[2]))
    else:
        for what, value in measure(*map(int, sys.argv[1:])).items():
            print(f"{what:<22} {value:,.2f}")
        print(f"list of 5,000 runs     {listing():,.2f}")
        print(f"closing, CPU           {closing():,.3f}")
