"""How often `compare` calls noise a change, and how often it finds a real one: over generated pairs, seeds of
its own.

    python -m bench.false_alarms [PAIRS] [SEED]

Each pair has two runs of one task, 200 repetitions a side, noise of 20 % as a standard deviation of the
logarithm.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable

from flightlog.analyze.compare.durations import judge, match

REPETITIONS, NOISE, CHANGE = 200, 0.2, 1.1
PAIRS, SEED = 1_000, 20_261
Noise = Callable[[random.Random], float]


def normal(chance: random.Random) -> float:
    """Logarithms of a normal distribution."""
    return chance.gauss(0, NOISE)


def outliers(chance: random.Random) -> float:
    """As `normal`, and one in a hundred is three to thirty times as long."""
    return chance.gauss(0, NOISE) + (math.log(chance.uniform(3, 30)) if chance.random() < 0.01 else 0.0)


def heavy(chance: random.Random) -> float:
    """Student's t with two degrees of freedom: its variance is infinite. As wide as `normal` in its middle
    half."""
    return NOISE * 0.826 * chance.gauss(0, 1) / math.sqrt(chance.expovariate(1.0))


def pareto(chance: random.Random) -> float:
    """Never much shorter, at times far longer: a Pareto tail of exponent 1.5, for durations without a
    variance."""
    return math.log(chance.paretovariate(1.5)) * NOISE / 0.4


class Spells:
    """Busy spells of some twenty tasks that are all slower together: neighbours resemble each other."""

    def __init__(self) -> None:
        self.busy = False

    def __call__(self, chance: random.Random) -> float:
        if chance.random() < 0.05:
            self.busy = chance.random() < 0.3
        return chance.gauss(0, NOISE) + (0.2 if self.busy else 0.0)


SHAPES: dict[str, Callable[[], Noise]] = {
    "normal noise": lambda: normal,
    "with outliers": lambda: outliers,
    "heavy tails (t, 2 degrees)": lambda: heavy,
    "heavy tails (Pareto)": lambda: pareto,
    "busy spells": Spells,
}


def called(
    shape: str, pairs: int, seed: int, *, factor: float = 1.0, drift: float = 0.0, names: int = 1
) -> int:
    """In how many of so many pairs anything was called slower or faster; `drift` is how far whole runs are
    off."""
    import duckdb

    chance = random.Random(f"{shape} {seed} {factor} {drift}")
    rows: tuple[list[str], list[str], list[float]] = ([], [], [])
    for pair in range(pairs):
        for side in (0, 1):
            off = chance.gauss(0, drift) + (math.log(factor) if side else 0.0)
            for name in range(names):
                noise = SHAPES[shape]()
                rows[0].extend([f"run-{side}"] * REPETITIONS)
                rows[1].extend([f"{pair} {name}"] * REPETITIONS)
                rows[2].extend(math.exp(off + noise(chance)) for _ in range(REPETITIONS))
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE sides AS SELECT * FROM (VALUES ('run-0', 0, 0), ('run-1', 1, 0)) AS t(run_id, "
            "side, run)"
        )
        connection.execute(
            """
            CREATE TABLE compared AS SELECT *, 'completed' AS state, nth::VARCHAR AS task_id, 1 AS attempt,
                NULL::VARCHAR AS span_id, NULL::VARCHAR AS args_digest, NULL::TIMESTAMP AS ended_at,
                TIMESTAMP '2026-05-20 03:52:00' + to_milliseconds(nth) AS started_at
            FROM (SELECT unnest($1::VARCHAR[]) AS run_id, unnest($2::VARCHAR[]) AS task, unnest($3::DOUBLE[])
                AS duration_s,
                unnest($4::BIGINT[]) AS nth)
            """,
            [*rows, list(range(len(rows[0])))],
        )
        connection.execute(
            "CREATE TABLE lookups (run_id VARCHAR, task_id VARCHAR, hits INT, misses INT, saved_ns BIGINT)"
        )
        connection.execute(
            "CREATE TABLE compared_spans (run_id VARCHAR, name VARCHAR, span_id VARCHAR, parent_id VARCHAR, "
            "started_at TIMESTAMP, duration_s DOUBLE)"
        )
        matched = match(connection, (1, 1))
    found = 0
    by_pair: dict[str, dict[object, object]] = {}
    for key, value in matched.items():
        by_pair.setdefault(key.name.split()[0], {})[key] = value
    for of_pair in by_pair.values():
        found += any(change.verdict in {"slower", "faster"} for change in judge(of_pair))  # type: ignore[arg-type]
    return found


def interval(count: int, of: int) -> tuple[float, float]:
    """Between which bounds the true rate lies, 19 times in 20 (Wilson)."""
    z, rate = 1.96, count / of
    middle, reach = rate + z * z / (2 * of), z * math.sqrt(rate * (1 - rate) / of + z * z / (4 * of * of))
    return max(0.0, (middle - reach) / (1 + z * z / of)), (middle + reach) / (1 + z * z / of)


def main(pairs: int = PAIRS, seed: int = SEED) -> None:
    """Print the rates of every shape of noise."""
    print(f"{pairs} pairs each, {REPETITIONS} repetitions a side, noise {NOISE:.0%}, seed {seed}")
    for shape in SHAPES:
        for what, options in (
            ("false alarms", {}),
            ("false alarms, runs 0.75% off", {"drift": 0.0075}),
            ("false alarms, any of 5 names", {"names": 5}),
            ("found, 10% slower", {"factor": CHANGE}),
        ):
            many = pairs // 4 if "names" in options else pairs
            count = called(shape, many, seed, **options)  # type: ignore[arg-type]
            low, high = interval(count, many)
            print(f"{shape:28} {what:30} {count / many:6.1%} ({low:.1%} to {high:.1%})", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
