"""Two runs of the same thing show no change, and real changes are found: measured over many generated
pairs."""

from __future__ import annotations

import math
import random

from builders.compared_durations import noisy, tables

from flightlog.analyze.compare.durations import judge, match

DRIFT = 0.0075
"""How far a whole run is off, as a standard deviation of the logarithm."""
DRAWS = 500


def changed(
    pairs, names, *, seed, factor=1.0, count=None, noise=None, drift=DRIFT, runs=(1, 1), by_arguments=False
):
    """Of so many generated pairs of runs (or groups), the set of changed names of each; `factor` slows the
    name n0."""
    chance = random.Random(seed)
    rows = []
    for pair in range(pairs):
        tasks = [
            (
                count or chance.choice([20, 50, 100, 200, 400]),
                math.exp(chance.uniform(-3, 2)),
                noise or chance.uniform(0.05, 0.3),
            )
            for _ in range(names)
        ]
        for side, many in enumerate(runs):
            for run in range(many):
                off = math.exp(chance.gauss(0, drift))
                for name, (n, typical, spread) in enumerate(tasks):
                    slowed = typical * off * (factor if side == 1 and name == 0 else 1.0)
                    sizes = [math.exp((i % 13) / 6) if by_arguments else 1.0 for i in range(n)]
                    for i, took in enumerate(noisy(chance, n, slowed, spread)):
                        digest = f"{i}" if by_arguments else None
                        rows.append((side, run, f"{pair} n{name}", digest, took * sizes[i]))
    with tables(rows) as connection:
        matched = match(connection, runs)
    found = []
    for pair in range(pairs):
        of_pair = {key: value for key, value in matched.items() if key.name.startswith(f"{pair} ")}
        assert len(of_pair) == names
        verdicts = judge(of_pair, draws=DRAWS)
        found.append(
            {change.name.split()[1] for change in verdicts if change.verdict in {"slower", "faster"}}
        )
    return found


def rate(found):
    return sum(map(bool, found)) / len(found)


def test_in_at_most_one_of_twenty_pairs_of_runs_of_one_task_anything_is_called_a_change():
    assert rate(changed(300, 1, seed=1)) <= 0.05


def test_nor_in_more_pairs_of_runs_of_five_tasks():
    assert rate(changed(100, 5, seed=2)) <= 0.05


def test_nor_where_tasks_are_matched_by_arguments():
    assert rate(changed(100, 3, seed=3, by_arguments=True)) <= 0.05


def test_nor_between_groups_of_runs_that_differ_by_more_than_is_assumed():
    assert rate(changed(100, 2, seed=4, drift=0.04, runs=(5, 5))) <= 0.05


def test_a_tenth_more_in_two_hundred_repetitions_with_a_fifth_of_noise_is_found():
    found = changed(300, 1, seed=5, factor=1.1, count=200, noise=0.2, drift=0.0)
    assert sum("n0" in names for names in found) / 300 >= 0.95


def test_so_it_is_where_tasks_differ_by_their_arguments_and_are_matched_by_them():
    found = changed(100, 1, seed=6, factor=1.1, count=200, noise=0.2, drift=0.0, by_arguments=True)
    assert sum("n0" in names for names in found) / 100 >= 0.95


def test_groups_of_five_find_what_single_runs_on_a_restless_machine_cannot_tell():
    found = changed(60, 1, seed=7, factor=1.1, count=200, noise=0.2, drift=0.02, runs=(5, 5))
    assert sum("n0" in names for names in found) / 60 >= 0.95
