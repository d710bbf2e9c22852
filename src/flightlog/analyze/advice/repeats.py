"""The same call made several times, in one run or in many: by the digest of its arguments and its code.

Calls whose arguments were recorded in part only (arrays by their shape, long texts cut, secrets hidden) are
passed over: two of them may look alike and differ. So are calls without arguments, and commands.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.tables import open_tables

if TYPE_CHECKING:
    import duckdb

    from flightlog.store.run import Run

MEMORY = "512MB"


class Repeats(Struct, frozen=True, kw_only=True):
    """Completed calls of one function over several runs. Calls are the same if name, arguments and code
    are.
    """

    name: str
    runs: int
    """In which it was called."""
    calls: int
    different: int
    total_s: float
    repeated_s: float
    """Time of all but the first of the calls that were the same."""
    unlike: int
    """Calls that were the same and gave results of different sizes: not of their arguments alone."""
    results_known: bool
    """Whether the sizes of all results are known."""
    write_bytes: float
    """Written to storage by a call, the mean; 0 where that is unknown."""


class Mended(Struct, frozen=True, kw_only=True):
    """Calls of one task that failed of one kind of error, and those of them that completed at another
    time.
    """

    name: str
    error_type: str
    calls: int
    completed: int


class _Function(Struct, frozen=True):
    sha256: str | None = None


class _Lock(Struct, frozen=True):
    functions: dict[str, _Function] = {}


_CALLS = r"""
CREATE OR REPLACE TEMP VIEW calls AS
SELECT run_id, name, hash(coalesce(own.code, whole.code), name, args_digest) AS call, event, duration_s,
    result_bytes,
    write_bytes, error_type
FROM (
    SELECT run_id, event, regexp_replace(task, '(.)\[[^\[\]]*\]$', '\1') AS name, args_digest, duration_s,
        result_bytes,
        write_bytes, error_type
    FROM task_events
    WHERE event IN ('task_completed', 'task_failed') AND args_digest IS NOT NULL AND task IS NOT NULL
        AND NOT regexp_matches(CAST(args AS VARCHAR), '"<|… \[\+|\[redacted\]|^\{"command":')
) JOIN whole USING (run_id) LEFT JOIN own USING (run_id, name)
"""
_REPEATS = """
WITH same AS (
    SELECT name, call, count(*) AS times, sum(duration_s) AS total,
        max(result_bytes) - min(result_bytes) AS apart,
        count(result_bytes) AS known, sum(coalesce(write_bytes, 0)) AS written
    FROM calls WHERE event = 'task_completed' AND duration_s BETWEEN 0 AND 2e9 GROUP BY name, call
), seen AS (
    SELECT name, count(DISTINCT run_id) AS runs FROM calls WHERE event = 'task_completed' GROUP BY name
)
SELECT name, any_value(seen.runs), sum(times), count(*), sum(total),
    coalesce(sum(total - total / times), 0) AS again,
    count(*) FILTER (times > 1 AND apart > 0), sum(known) = sum(times), sum(written) / sum(times)
FROM same JOIN seen USING (name) GROUP BY name HAVING max(times) > 1 ORDER BY again DESC, name
"""
_MENDED = """
WITH failing AS (
    SELECT DISTINCT name, error_type, call FROM calls
    WHERE event = 'task_failed' AND regexp_extract(error_type, '[^.]*$') IN (SELECT unnest($kinds::VARCHAR[]))
), done AS (
    SELECT DISTINCT call FROM calls WHERE event = 'task_completed' AND call IN (SELECT call FROM failing)
)
SELECT name, error_type, count(*), count(done.call) FROM failing LEFT JOIN done USING (call)
GROUP BY name, error_type ORDER BY name, error_type
"""


def find_repeats(runs: Sequence[Run], transient: Collection[str] = ()) -> tuple[list[Repeats], list[Mended]]:
    """Functions of which calls were made again, and failed calls that completed at another time.

    The latter for the kinds of errors in `transient` alone. Takes some 50 bytes of memory for each different
    call. Raises `OSError` or `duckdb.Error` where files cannot be read.
    """
    if not runs:
        return [], []
    with open_tables(runs, only={"task_events"}) as connection:
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        _note_code(connection, runs)
        connection.execute(_CALLS)
        repeats = [
            Repeats(
                name=name,
                runs=in_runs,
                calls=int(calls),
                different=different,
                total_s=total,
                repeated_s=again,
                unlike=unlike,
                results_known=known,
                write_bytes=float(written),
            )
            for name, in_runs, calls, different, total, again, unlike, known, written in connection.execute(
                _REPEATS
            ).fetchall()
        ]
        rows = connection.execute(_MENDED, {"kinds": list(transient)}).fetchall() if transient else []
    return repeats, [
        Mended(name=name, error_type=kind, calls=calls, completed=done) for name, kind, calls, done in rows
    ]


def _note_code(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """What stands for the code of each run, and of those of its functions whose source the lock knows.

    A run whose code nobody can name is like itself alone.
    """
    whole: list[tuple[str, str]] = []
    own: list[tuple[str, str, str]] = []
    for run in runs:
        clean = run.info.git_commit if run.info.git_dirty is False else None
        whole.append((run.run_id, clean or run.run_id))
        lock = read_document(run.path / layout.LOCK, _Lock).value or _Lock()
        found = {
            name.rpartition(".")[2]: it.sha256 for name, it in lock.functions.items() if it.sha256 is not None
        }
        own += [(run.run_id, name, sha256) for name, sha256 in found.items()]
    for table, names, rows in (
        ("whole", ("run_id", "code"), whole),
        ("own", ("run_id", "name", "code"), own),
    ):
        columns = [[row[number] for row in rows] for number in range(len(names))]
        made = ", ".join(f"unnest(${number + 1}::VARCHAR[]) AS {name}" for number, name in enumerate(names))
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {made}", columns)
