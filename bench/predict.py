"""How good predictions are where the truth is known: error, width and coverage on runs later than those
learnt from.

    python -m bench.predict                 every workload of bench/truth.py, five seeds each; Markdown
    python -m bench.predict growing 1 2     one of them, with these seeds
    python -m bench.predict --short         8 runs of 25 tasks to learn from in place of 20 of 60

Exits with 1 where predictions do not beat quantiles by name on a workload whose arguments tell something, or
where intervals of 90 % hold fewer than 85 % or more than 95 %. Attempts that were killed at their limit are
tested against what they really needed.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from pathlib import Path

from bench.truth import WORKLOADS, TrueAttempt, Workload, write_history
from flightlog.analyze.history.attempts import read_past
from flightlog.analyze.predict.baseline import Quantity
from flightlog.analyze.predict.eta import simulate
from flightlog.analyze.predict.features import Example, flatten
from flightlog.analyze.predict.predict import Model, PredictionOutcome, Score, estimate, score, train
from flightlog.session.forecast import UNSURE, calls_of_run
from flightlog.store.run import Run

RUNS, LATER, TASKS = 20, 4, 60
SHORT = 8, 2, 25
"""The same of a project that has just begun."""
SEEDS = (101, 102, 103, 104, 105)
SHORT_SEEDS = (201, 202, 203, 204, 205)
"""None of those that the methods were made with, which are 1 to 3, and 101 to 105 of short histories."""
UNTOLD = {"noisy"}
"""Workloads whose arguments tell nothing: there the plain quantiles are to be matched, not beaten."""
TITLES: dict[Quantity, str] = {"duration_s": "duration", "peak_memory_bytes": "peak memory"}
Z90 = 1.6449


def outcomes(
    model: Model, quantity: Quantity, load: Workload, later: list[TrueAttempt]
) -> list[PredictionOutcome]:
    """What was predicted of each later attempt, and what it really needed."""
    found = []
    of = model.quantity(quantity)
    for attempt in later:
        actual = math.log(attempt.duration_s if quantity == "duration_s" else attempt.memory_bytes)
        component = load.kind(attempt.task).component
        logs = of.logs(Example(attempt.task, component, attempt.host, flatten(attempt.args), 0, 0.0))
        name = of.names[attempt.task]
        assert logs is not None
        assert name.plain is not None
        found.append(PredictionOutcome(attempt.task, name.method, logs, name.plain, actual))
    return found


def least_width(quantity: Quantity, load: Workload, later: list[TrueAttempt]) -> float:
    """High over low of the narrowest interval that holds 90 % in truth; the median over the attempts."""
    kinds = [load.kind(attempt.task) for attempt in later]
    noises = sorted(kind.duration_noise if quantity == "duration_s" else kind.memory_noise for kind in kinds)
    return math.exp(2 * Z90 * noises[len(noises) // 2])


def whole_runs(model: Model, folder: Path, load: Workload) -> list[tuple[float, bool]]:
    """Of each later run: how far its expected wall time was off, and whether it lay in the interval."""
    found = []
    differ = model.duration_s.between_runs
    for path in sorted(folder.iterdir()):
        run = Run(path)
        work = calls_of_run(run)
        estimates = [estimate(model.duration_s, call.task, call.args) for call in work.calls]
        spread = simulate(
            [each for each in estimates if each is not None],
            load.workers,
            between_runs=UNSURE if differ is None else differ,
        )
        assert work.span_s is not None
        found.append((abs(spread.expected / work.span_s - 1), spread.low <= work.span_s <= spread.high))
    return found


def main(words: list[str]) -> int:
    names = [word for word in words if word in WORKLOADS] or list(WORKLOADS)
    short = "--short" in words
    seeds = [int(word) for word in words if word.isdigit()] or list(SHORT_SEEDS if short else SEEDS)
    runs, tests, tasks = SHORT if short else (RUNS, LATER, TASKS)
    print(
        "| workload | quantity | attempts | error | by name | loss | by name | in interval | width | by "
        "name | least |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    bad: list[str] = []
    whole: list[tuple[float, bool]] = []
    spent: list[float] = []
    for name in names:
        load = WORKLOADS[name]
        seen: dict[Quantity, list[PredictionOutcome]] = {quantity: [] for quantity in TITLES}
        tested: list[TrueAttempt] = []
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                before, after = Path(folder, "before"), Path(folder, "after")
                total = runs + tests
                write_history(before, load, runs=runs, tasks=tasks, seed=seed, of_runs=total)
                made = write_history(
                    after, load, runs=tests, tasks=tasks, seed=seed, first_run=runs, of_runs=total
                )
                later = [attempt for attempt in made if attempt.state != "failed"]
                began = time.process_time()
                model = train(read_past(before, project=name))
                spent.append(time.process_time() - began)
                for quantity, found in seen.items():
                    found.extend(outcomes(model, quantity, load, later))
                whole += whole_runs(model, after, load) if name != "failing" else []
                tested += later
        for quantity, title in TITLES.items():
            result = score(seen[quantity])
            assert result is not None
            least = least_width(quantity, load, tested)
            print(
                f"| {name} | {title} | {result.attempts:,} | {result.error:.1%} | "
                f"{result.baseline_error:.1%} "
                f"| {result.loss:.3f} | {result.baseline_loss:.3f} | {result.coverage:.1%} "
                f"| {result.ratio:.2f}x | {result.baseline_ratio:.2f}x | {least:.2f}x |",
                flush=True,
            )
            bad += problems(name, title, result)
    off = sorted(each for each, _ in whole)
    if off:
        inside = sum(within for _, within in whole) / len(whole)
        print(
            f"\nWhole runs: {len(off)}; the expected wall time was off by {off[len(off) // 2]:.1%} in the "
            "middle and "
            f"{off[-1]:.1%} at worst, and {inside:.0%} lay in their intervals."
        )
    print(
        f"Training took {sorted(spent)[len(spent) // 2]:.1f} s of CPU time in the middle, reading included."
    )
    for line in bad:
        print(f"missed: {line}", file=sys.stderr)
    return int(bool(bad))


def problems(name: str, title: str, result: Score) -> list[str]:
    """What is not as it should be."""
    found = []
    if not 0.85 <= result.coverage <= 0.95:
        found.append(f"{name}, {title}: {result.coverage:.1%} in intervals of 90%")
    if name in UNTOLD:
        if result.loss > 1.02 * result.baseline_loss:
            found.append(f"{name}, {title}: worse than quantiles by name")
    elif result.loss >= result.baseline_loss:
        found.append(f"{name}, {title}: no better than quantiles by name")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
