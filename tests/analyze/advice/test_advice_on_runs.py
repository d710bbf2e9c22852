"""Advice from a folder of runs: what to ask for, why, what it saves; and what a damaged history does to
it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest
from builders.project_history import GB, completed, killed, request, run_id, write_run
from builders.runs import make_run

from flightlog.analyze.advice.advise import Advised, advice_schema, advise, advise_on, advised_json
from flightlog.analyze.advice.resources import (
    Headroom,
    component_needs,
    gain,
    notes,
    reason,
    sentence,
    unadvised,
)
from flightlog.analyze.history.attempts import Requested, read_past
from flightlog.core.errors import RunNotFound, UsageError
from flightlog.events import CostRates, Event, ResourceSample
from flightlog.show.advice import advice_text


def history(folder: Path, runs: int = 4, tasks: int = 20, **fields: object) -> None:
    """Runs of `sim`: 1.8 CPUs and about 6 GB of the 4 CPUs and 16 GB that are asked for."""
    draw = Random(1)
    for number in range(runs):
        events: list[Event] = [request()]
        events += [
            completed(
                n, gb=6 * draw.lognormvariate(0, 0.02), cpu_s=18 * draw.lognormvariate(0, 0.01), **fields
            )
            for n in range(tasks)
        ]
        write_run(folder, number, events)


def found(folder: Path, confidence: float = 0.95) -> Advised:
    """The advice on requests alone, which is read faster."""
    return advise_on(read_past(folder, project=None), confidence=confidence, shape=False)


def test_a_task_that_asks_for_too_much_gets_what_it_used(tmp_path: Path) -> None:
    history(tmp_path)
    advised = found(tmp_path)
    (one,) = advised.recommendations
    assert one.current == Requested(cpus=4.0, memory_bytes=16 * GB)
    assert one.recommended == Requested(cpus=2.0, memory_bytes=round(6.3 * GB))
    assert reason(one) == "95th percentile usage is 1.8 CPUs and 6.2 GB memory, in 80 attempts of 4 runs"
    assert gain(one) == "50% of the CPUs and 61% of the memory: 0.111 CPU-hours and 0.539 GB-hours a run"
    assert sentence(one) == (
        "sim: ask for 2 CPUs, 6.3GB memory instead of 4 CPUs, 16GB memory; 95th percentile usage is 1.8 "
        "CPUs and 6.2 GB memory, in 80 attempts of 4 runs"
    )
    assert advised.changes == {"components.model.cpus": "2", "components.model.memory": "6.3GB"}
    (advice,) = [each for each in advised.advice if each.kind == "resources"]
    assert (advice.about, advice.changes, advice.gain) == ("sim", advised.changes, gain(one))
    assert {"attempts", "runs", "memory_bound_bytes", "cpus_usual_most", "share"} <= advice.evidence.keys()


def test_indexed_tasks_count_as_one(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [request(), *(completed(n, f"sim[{n}]") for n in range(40))])
    assert [(one.task, one.attempts) for one in found(tmp_path).recommendations] == [("sim", 40)]


def test_a_request_that_fits_is_left_alone(tmp_path: Path) -> None:
    draw = Random(2)
    tasks = [completed(n, gb=15 * draw.lognormvariate(0, 0.01), cpu_s=39.0) for n in range(40)]
    write_run(tmp_path, 0, [request(), *tasks])
    advised = found(tmp_path)
    assert [one.is_to_change for one in advised.recommendations] == [False]
    assert (advised.changes, [each for each in advised.advice if each.kind == "resources"]) == ({}, [])


def test_killed_tasks_raise_the_request_and_come_first(tmp_path: Path) -> None:
    for number in range(4):
        large = [killed(n) if n % 5 == 0 else completed(n, gb=7 + n / 100) for n in range(20)]
        small = [
            completed(n, "plot", gb=0.1, component="tiny", duration_s=900.0, cpu_s=900.0) for n in range(10)
        ]
        tiny = request(component="tiny", cpus=1, memory_bytes=GB)
        write_run(tmp_path, number, [request(memory_bytes=8 * GB), tiny, *large, *small])
    advised = found(tmp_path)
    first = next(each for each in advised.advice if each.kind == "resources")
    sim = next(one for one in advised.recommendations if one.task == "sim")
    assert (first.about, sim.killed) == ("sim", 16)
    assert sim.recommended.memory_bytes is not None
    assert sim.recommended.memory_bytes > 8 * GB
    assert "it takes" in (gain(sim) or "")
    assert "so that tasks are not killed as 16 were" in (gain(sim) or "")
    assert notes(sim)[0] == (
        "16 tasks were killed with 8.0 GB: they count as needing more, and the advice is not below that."
    )


def test_where_nearly_all_were_killed_that_is_what_is_said(tmp_path: Path) -> None:
    tasks = [completed(n, cpu_s=None) for n in range(2)] + [killed(n) for n in range(2, 20)]
    write_run(tmp_path, 0, [request(memory_bytes=8 * GB), *tasks])
    (one,) = found(tmp_path).recommendations
    assert unadvised(one).endswith("; 18 were killed with 8.0 GB, so ask for more than that")


def test_killed_attempts_without_any_figure_are_a_warning(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [*(completed(n) for n in range(40)), killed(41), killed(42)])
    (one,) = found(tmp_path).recommendations
    assert notes(one)[0] == (
        "2 attempts were killed for memory, and nobody knows with how much: the advice on memory may be "
        "too low."
    )


def test_a_memory_error_is_no_kill_and_keeps_no_advice_back(tmp_path: Path) -> None:
    history(tmp_path)
    refused = killed(99, error_type="MemoryError", error_message="", peak_rss_bytes=47 * 2**20)
    write_run(tmp_path, 5, [request(), refused])
    (one,) = found(tmp_path).recommendations
    assert one.recommended.memory_bytes == round(6.3 * GB)
    assert (one.killed, one.killed_unseen) == (0, 0)
    assert not any("killed" in note for note in notes(one))


def test_tasks_that_would_not_have_fitted_are_counted_with_what_room_for_all_costs(tmp_path: Path) -> None:
    large = [completed(n, gb=7.9, duration_s=3600.0) for n in (30, 60, 90)]
    small = [completed(n, gb=6.0, duration_s=3600.0) for n in range(200) if n not in (30, 60, 90)]
    write_run(tmp_path, 0, [request(), *small, *large])
    (one,) = found(tmp_path).recommendations
    assert one.recommended.memory_bytes == 6 * GB
    assert one.headroom == Headroom(tasks=3, of=200, memory_bytes=8 * GB, gb_hours=400.0)
    assert (
        "3 of 200 past tasks needed more than 6GB; room for all of them is 8GB, 33% more memory "
        "(400 GB-hours a run)." in notes(one)
    )
    write_run(tmp_path, 1, [request(), *(completed(n, gb=6.0) for n in range(9))], project="steady")
    (one,) = advise_on(read_past(tmp_path, project="steady"), shape=False).recommendations
    assert one.headroom is None


def test_memory_that_grows_with_an_argument_is_said_with_what_each_size_takes(tmp_path: Path) -> None:
    draw = Random(3)
    for number in range(3):
        sizes = [draw.choice([1000, 2000, 4000]) for _ in range(30)]
        tasks = [
            completed(n, gb=0.2 + 0.001 * size, args={"n": size, "seed": n}) for n, size in enumerate(sizes)
        ]
        write_run(tmp_path, number, [request(), *tasks])
    (one,) = found(tmp_path).recommendations
    assert "Memory grows with n: 1.2GB at n=1,000, 2.2GB at n=2,000, 4.2GB at n=4,000." in notes(one)


def test_too_little_history_gives_no_advice_and_says_how_much_is_missing(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [request(), completed(1), completed(2)])
    advised = found(tmp_path)
    (one,) = advised.recommendations
    assert (one.recommended, advised.changes) == (Requested(), {})
    assert reason(one) == (
        "CPUs and memory: only 2 attempts were measured to the end: 3 more are needed to say anything, 30 "
        "more for a bound without assumptions"
    )


def test_attempts_none_of_which_was_measured_to_its_end_are_counted(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [killed(n, peak_rss_bytes=GB) for n in range(7)])
    (one,) = found(tmp_path).recommendations
    assert one.problems["memory"] == (
        "none of 7 attempts was measured to the end: 5 are needed to say anything, 32 for a bound without "
        "assumptions"
    )


def test_cpus_of_a_thread_or_of_a_busy_host_are_no_ground_to_ask_for_fewer(tmp_path: Path) -> None:
    history(tmp_path / "threads", cpu_scope="thread")
    (one,) = found(tmp_path / "threads").recommendations
    assert (one.recommended.cpus, "shared their process" in one.problems["cpus"]) == (None, True)
    assert (
        notes(one)[0]
        == "Memory is that of whole processes, in which tasks ran side by side: one alone may need less."
    )
    busy = ResourceSample(scope="node", host="n", cpu_percent=97.0)
    write_run(tmp_path / "busy", 0, [request(), busy, *(completed(n, cpu_s=8.0) for n in range(40))])
    (one,) = found(tmp_path / "busy").recommendations
    assert (one.recommended.cpus, "were busy (97 % on average)" in one.problems["cpus"]) == (None, True)


def test_a_component_gets_what_its_most_demanding_task_needs_and_is_not_lowered_on_half_the_evidence(
    tmp_path: Path,
) -> None:
    tasks = [completed(n, gb=2.0) for n in range(40)] + [completed(n, "big", gb=9.0) for n in range(40)]
    write_run(tmp_path / "known", 0, [request(), *tasks])
    advised = found(tmp_path / "known")
    assert advised.changes["components.model.memory"] == "9GB"
    write_run(tmp_path / "half", 0, [request(), *tasks, *(completed(n, "rare", gb=1.0) for n in range(3))])
    advised = found(tmp_path / "half")
    memory = component_needs(advised.recommendations)["model"].memory
    assert memory is not None
    assert (memory.task, memory.whole, memory.is_news) == ("big", False, False)
    assert "components.model.memory" not in advised.changes


def test_a_saving_is_told_in_money_where_the_newest_run_has_rates(tmp_path: Path) -> None:
    history(tmp_path, runs=1)
    rates = CostRates(currency="USD", source="manifest", per_cpu_hour=3.6, per_gb_hour=0.36)
    write_run(tmp_path, 5, [request(), rates, *(completed(n, gb=6.0, cpu_s=18.0) for n in range(20))])
    (one,) = found(tmp_path).recommendations
    assert one.saving is not None
    assert (one.saving.cost, one.saving.currency) == (pytest.approx(0.2 * 2 + 0.02 * 10, rel=0.1), "USD")


def test_a_higher_confidence_asks_for_more(tmp_path: Path) -> None:
    history(tmp_path, runs=10, tasks=40)
    asked = [
        found(tmp_path, confidence=share).recommendations[0].recommended.memory_bytes or 0
        for share in (0.5, 0.9, 0.99)
    ]
    assert asked == sorted(set(asked))


@pytest.mark.parametrize("confidence", [0.0, 0.3, 1.0, 2.0, float("nan")])
def test_a_confidence_that_makes_no_sense_is_refused(tmp_path: Path, confidence: float) -> None:
    with pytest.raises(UsageError, match="makes no sense: give the share of attempts"):
        advise(runs_dir=tmp_path, confidence=confidence)


def test_nothing_to_learn_from_is_one_clear_message(tmp_path: Path) -> None:
    def message(**options: object) -> str:
        with pytest.raises(RunNotFound) as caught:
            advise(runs_dir=tmp_path, **options)  # type: ignore[arg-type]
        return str(caught.value).replace(str(tmp_path), "RUNS")

    assert message() == "there are no runs in RUNS; record one, or name another folder of runs"
    make_run(tmp_path, [])
    assert message() == "1 run of 'demo' in RUNS has no task that began: there is nothing to learn from"
    history(tmp_path)
    assert message(project="other") == "no run in RUNS is of project 'other'; there are runs of demo"
    assert message(task="sin") == "no attempt of 'sin' in 5 runs of 'demo' in RUNS; there are sim"
    assert message(target="moon") == "no run of 'demo' in RUNS was on target 'moon'"


def test_a_task_of_another_project_than_the_latest_runs_is_found_there_and_that_is_said(
    tmp_path: Path,
) -> None:
    history(tmp_path)
    write_run(tmp_path, 20, [completed(n, "plot") for n in range(3)], project="other")
    advised = advise(runs_dir=tmp_path, task="sim[3]")
    assert (advised.project, advised.instead_of) == ("demo", "other")
    assert [one.task for one in advised.recommendations] == ["sim"]
    assert "; not of other, which has no such task)" in " ".join(advice_text(advised).split())
    assert (
        advise(runs_dir=tmp_path, task="plot").project,
        advise(runs_dir=tmp_path, task="plot").instead_of,
    ) == (
        "other",
        None,
    )
    with pytest.raises(RunNotFound, match="no attempt of 'sim' in 1 run of 'other'"):
        advise(runs_dir=tmp_path, task="sim", project="other")
    with pytest.raises(RunNotFound, match=r"no attempt of 'sin' in 1 run of 'other' in .*; there are plot"):
        advise(runs_dir=tmp_path, task="sin")


def test_few_attempts_on_one_core_are_no_sign_of_a_second_one(tmp_path: Path) -> None:
    draw = Random(3)
    write_run(tmp_path, 0, [request(), *(completed(n, cpu_s=10 * draw.uniform(0.55, 1.0)) for n in range(6))])
    assert advise(runs_dir=tmp_path).recommendations[0].recommended.cpus == 1.0


def test_figures_that_cannot_be_are_passed_over(tmp_path: Path) -> None:
    """Sizes, times and arguments of damaged lines: what else there is counts, and nothing overflows."""
    good = [completed(n, args={"n": n}) for n in range(40)]
    odd: list[Event] = [
        completed(
            100 + n,
            args={"n": 10.0 ** (n * 15 - 300)},
            peak_rss_bytes=2**63 - 1,
            duration_s=1e300,
            cpu_s=1e-300,
        )
        for n in range(40)
    ]
    dead = [killed(200 + n, args={"n": 1e300}, peak_rss_bytes=2**62) for n in range(5)]
    write_run(tmp_path, 0, [request(), *good, *odd, *dead])
    write_run(tmp_path / "sane", 0, [request(), *good])
    (one,), (sane,) = (
        advise(runs_dir=tmp_path).recommendations,
        advise(runs_dir=tmp_path / "sane").recommendations,
    )
    assert one.recommended == sane.recommended == Requested(cpus=1.0, memory_bytes=2 * GB)
    assert msgspec.json.decode(advised_json(advise(runs_dir=tmp_path)))["attempts"] == 85


def test_wild_figures_give_a_bound_that_can_be_written(tmp_path: Path) -> None:
    wild = [completed(n, peak_rss_bytes=100**n + 1, duration_s=10.0 ** (n - 3)) for n in range(9)]
    write_run(tmp_path, 0, [*wild, *(killed(100 + n, peak_rss_bytes=10**17) for n in range(20))])
    (one,) = advise(runs_dir=tmp_path).recommendations
    assert 10**17 <= (one.recommended.memory_bytes or 0) <= 10**19


def test_a_damaged_history_advises_on_what_is_left_and_says_what_is_not(tmp_path: Path) -> None:
    history(tmp_path)
    torn = tmp_path / run_id(1)
    data = (torn / "tasks.jsonl").read_bytes()
    (torn / "tasks.jsonl").write_bytes(
        data[: len(data) // 2] + b'\xff{"event": "task_completed", "task": 7}\n'
    )
    (tmp_path / run_id(2) / "run.json").write_bytes(b"\0" * 50)
    (tmp_path / run_id(2) / "resources.jsonl").write_bytes(b"no\n")
    (tmp_path / run_id(3) / "plan.json").write_text("[]")
    (tmp_path / run_id(8)).mkdir()
    make_run(tmp_path, [], token="00000009")
    (tmp_path / "photos").mkdir()
    advised = advise(runs_dir=tmp_path)
    (one,) = advised.recommendations
    assert one.recommended == Requested(cpus=2.0, memory_bytes=round(6.2 * GB))
    assert 60 <= one.attempts < 80
    assert [problem for problem in advised.problems if run_id(8) in problem] != []


def test_the_json_is_of_its_schema(tmp_path: Path) -> None:
    history(tmp_path)
    document = msgspec.json.decode(advised_json(found(tmp_path)))
    schema = advice_schema()
    assert document.keys() == schema["$defs"]["AdviceDocument"]["properties"].keys()
    (one,) = document["recommendations"]
    assert one.keys() == schema["$defs"]["WordedRecommendation"]["properties"].keys()


def test_the_json_holds_the_words_and_the_numbers(tmp_path: Path) -> None:
    history(tmp_path)
    document = msgspec.json.decode(advised_json(found(tmp_path)))
    (one,) = document["recommendations"]
    assert (one["task"], one["change"], one["reason"][:15]) == ("sim", True, "95th percentile")
    assert one["needs"]["memory"]["method"] == "order statistic"
    assert one["recommended"] == {"cpus": 2.0, "memory_bytes": 6300000000, "gpus": None, "walltime_s": None}
    assert document["changes"] == {"components.model.cpus": "2", "components.model.memory": "6.3GB"}
