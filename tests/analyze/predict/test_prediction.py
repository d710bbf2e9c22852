"""Predictions of durations and memory: what they are learnt from, how they are kept, and how they fare."""

from __future__ import annotations

import math
import random
from pathlib import Path

import msgspec
import pytest
from builders.histories import make_history

import flightlog
from flightlog.analyze.history.attempts import PastAttempt, Requested, read_past
from flightlog.analyze.predict.baseline import QUANTITIES, Logs
from flightlog.analyze.predict.features import (
    Example,
    Examples,
    examples_of,
    flatten,
)
from flightlog.analyze.predict.predict import (
    FORMAT,
    Model,
    Opened,
    PredictionOutcome,
    estimate,
    evaluate,
    load_model,
    model_file,
    open_model,
    predict_with,
    save_model,
    score,
    staleness,
    train,
)
from flightlog.analyze.predict.training import (
    LEAF,
    Boosting,
    BoostingFailed,
    Trees,
    TreeShape,
    fit_quantile,
    train_quantity,
)
from flightlog.core.errors import MissingExtra, UsageError
from flightlog.store.catalogue import list_runs
from flightlog.version import __version__


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten runs of twenty tasks that take n / 100 seconds and n megabytes, two of which fail."""
    folder = tmp_path_factory.mktemp("history")
    make_history(folder, failed=2)
    return folder


def not_installed() -> Boosting:
    raise MissingExtra("no scikit-learn here")


# --- what is learnt from


def attempt(**changes: object) -> PastAttempt:
    plain: dict[str, object] = dict.fromkeys(PastAttempt.__struct_fields__)
    plain |= {
        "run_id": "r",
        "name": "sim",
        "task_id": "t",
        "attempt": 1,
        "requested": Requested(),
        "args": {},
        "state": "completed",
    }
    plain |= {"memory_killed": False, "gpu_memory_killed": False, "timed_out": False}
    return PastAttempt(**{**plain, **changes})


@pytest.mark.parametrize(
    ("changes", "duration", "memory"),
    [
        ({"duration_s": 2.0, "peak_rss_bytes": 8}, (2.0, False), (8.0, False)),
        ({"duration_s": 2.0}, (2.0, False), "completed, and nobody measured memory"),
        ({"peak_rss_bytes": 8}, "completed, and nobody measured how long it took", (8.0, False)),
        (
            {"duration_s": 0.0, "peak_rss_bytes": 8},
            "completed, with a duration that is 0 or cannot be",
            (8.0, False),
        ),
        (
            {"duration_s": -5.0, "peak_rss_bytes": 8},
            "completed, with a duration that is 0 or cannot be",
            (8.0, False),
        ),
        (
            {"duration_s": 2.0, "peak_rss_bytes": 2**63},
            (2.0, False),
            "completed, with a peak that is 0 or cannot be",
        ),
        (
            {"state": "failed", "timed_out": True, "timeout_s": 1e300},
            "ended at an unknown time limit",
            "ended at its time limit",
        ),
        ({"state": "failed", "duration_s": 2.0, "peak_rss_bytes": 8}, "failed", "failed"),
        ({"state": "cancelled", "duration_s": 2.0}, "cancelled", "cancelled"),
        ({"state": "running"}, "never ended", "never ended"),
        (
            {
                "state": "failed",
                "memory_killed": True,
                "requested": Requested(memory_bytes=64),
                "duration_s": 2.0,
            },
            "killed for memory",
            (64.0, True),
        ),
        (
            {"state": "failed", "memory_killed": True},
            "killed for memory",
            "killed at an unknown memory limit",
        ),
        ({"state": "failed", "timed_out": True, "timeout_s": 30.0}, (30.0, True), "ended at its time limit"),
        ({"state": "failed", "timed_out": True}, "ended at an unknown time limit", "ended at its time limit"),
    ],
)
def test_only_complete_attempts_are_learnt_as_such_and_limits_as_more(history, changes, duration, memory):
    past = msgspec.structs.replace(read_past(history, project="demo"), runs=[], attempts=[attempt(**changes)])
    for quantity, expected in zip(QUANTITIES, (duration, memory), strict=True):
        examples = examples_of(past, quantity)
        if isinstance(expected, str):
            assert (examples.found, examples.left_out) == ([], {expected: 1})
        else:
            [one] = examples.found
            assert (math.exp(one.log), one.above) == (pytest.approx(expected[0]), expected[1])


def test_failed_attempts_are_left_out_and_counted(history):
    examples = examples_of(read_past(history, project="demo"), "duration_s")
    assert (len(examples.found), examples.left_out) == (180, {"failed": 20})
    assert [example.run for example in examples.found] == sorted(example.run for example in examples.found)


def test_attempts_that_a_cache_spared_their_work_are_no_examples(tmp_path):
    [run] = make_history(tmp_path, runs=1, seconds=lambda args: 2.0)
    lookups = [
        ("t0", 9.0, "hit"),
        ("t1", 9.0, "miss"),
        ("t2", 0.5, "hit"),
        ("t3", 1.5, "hit"),
        ("t3", 1.5, "hit"),
    ]
    (tmp_path / run / "cache.jsonl").write_text(
        "".join(
            f'{{"event":"cache_lookup","timestamp":"2026-05-01T06:00:00.000000Z","writer":"w1","seq":{number},'
            f'"task":"solve","result":"{result}","key":"k","saved_s":{saved_s},"task_id":"{task_id}"}}\n'
            for number, (task_id, saved_s, result) in enumerate(lookups)
        )
    )
    past = read_past(tmp_path, project="demo")
    saved = {one.task_id: one.saved_s for one in past.attempts if one.saved_s is not None}
    assert saved == {"t0": 9.0, "t2": 0.5, "t3": 3.0}
    for quantity in QUANTITIES:
        assert examples_of(past, quantity).left_out == {"spared by the cache": 2}
    found = flightlog.predict("sim", {"n": 300}, runs_dir=tmp_path)
    assert (found.duration_s.examples, "as if nothing were found in the cache" in found.notes[-1]) == (
        18,
        True,
    )


# --- the answers


def test_what_the_arguments_say_is_learnt_and_a_seed_is_not(history):
    found = flightlog.predict("sim", {"n": 300, "seed": 1}, runs_dir=history)
    assert found.duration_s.method == found.peak_memory_bytes.method == "boosting"
    assert found.duration_s.expected == pytest.approx(3.0, rel=0.1)
    assert 2.5 < found.duration_s.low < found.duration_s.expected < found.duration_s.high < 3.6
    assert found.peak_memory_bytes.expected == pytest.approx(3e8, rel=0.05)
    assert found.notes == []
    assert (found.duration_s.examples, found.duration_s.runs, found.training_runs) == (180, 10, 10)
    [column] = load_model(history, "demo").duration_s.boosted.columns
    assert column.key == "args.n"


def test_one_of_many_is_asked_for_by_any_of_their_names(history):
    assert flightlog.predict("sim[3]", {"n": 300}, runs_dir=history).task == "sim"


def test_an_argument_beyond_those_seen_and_one_that_is_missing_are_said(history):
    beyond = flightlog.predict("sim", {"n": 5000}, runs_dir=history)
    assert beyond.notes == [
        "n=5000 is outside what was seen (100 to 1000): what is said is that of the nearest seen, and the "
        "interval may not hold"
    ]
    assert flightlog.predict("sim", {}, runs_dir=history).notes == ["not given, though it matters: n"]


def test_a_task_that_nobody_knows_is_one_message_with_what_there_is(history):
    with pytest.raises(
        UsageError,
        match=r"no task 'simm' has completed in the 10 runs of project 'demo' looked at. Did you mean 'sim'",
    ):
        flightlog.predict("simm", runs_dir=history)
    with pytest.raises(
        UsageError, match=r"there are no runs of project 'other' in .*; there are runs of demo"
    ):
        flightlog.predict("sim", runs_dir=history, project="other")


def test_where_there_are_no_runs_it_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match=r"there are no runs in .* to learn from: record some"):
        flightlog.predict("sim", runs_dir=tmp_path)


def test_too_little_history_gives_no_figure_and_little_a_wide_one(tmp_path):
    make_history(tmp_path, runs=1, tasks=4)
    few = flightlog.predict("sim", {"n": 300}, runs_dir=tmp_path)
    assert (few.duration_s, few.peak_memory_bytes) == (None, None)
    assert few.notes[0] == "duration: too little history, 4 completed attempts of sim; 5 are the least"
    make_history(tmp_path, runs=1, tasks=8, first=1)
    more = flightlog.predict("sim", {"n": 300}, runs_dir=tmp_path)
    assert more.duration_s.method == "baseline"
    assert more.duration_s.low < 1.0
    assert more.duration_s.high > 10.0
    assert more.notes[0] == "duration: only 12 completed attempts of sim, so the interval is wide"


def test_where_nobody_measured_memory_there_is_none_and_it_is_said(tmp_path):
    make_history(tmp_path, runs=2, peak=None)
    found = flightlog.predict("sim", {"n": 300}, runs_dir=tmp_path)
    assert found.peak_memory_bytes is None
    assert "peak memory: nobody measured it for sim" in found.notes


def test_damaged_runs_are_passed_over_and_the_rest_answers(tmp_path):
    runs = make_history(tmp_path, runs=4)
    (tmp_path / runs[1] / "tasks.jsonl").write_bytes(b'\x00\xff{"torn": ')
    (tmp_path / runs[2] / "run.json").write_text("{")
    found = flightlog.predict("sim", {"n": 300}, runs_dir=tmp_path, project="demo")
    assert (found.duration_s.examples, found.training_runs) == (60, 4)
    assert found.notes[-1].startswith("1 of 4 runs hold no attempt that can be read")


def test_without_scikit_learn_quantiles_by_name_answer_and_say_so(history):
    past = read_past(history, project="demo")
    opened = Opened(train(past, find=not_installed), True, None, [])
    found = predict_with(opened, "sim", {"n": 300})
    assert found.duration_s.method == "baseline"
    assert found.duration_s.low < 1.2 < 9.0 < found.duration_s.high
    assert opened.model.notes == ["no scikit-learn here."]
    assert evaluate(past, find=not_installed).notes == ["no scikit-learn here."]


def test_where_hosts_differ_and_none_is_named_the_interval_covers_both():
    dice = random.Random(1)
    examples = [
        Example("sim", None, host, flatten({}), n // 10, math.log(seconds * dice.lognormvariate(0, 0.05)))
        for n in range(200)
        for host, seconds in [("fast", 1.0) if dice.random() < 0.5 else ("slow", 4.0)]
    ]
    learnt = train_quantity(Examples("duration_s", examples, {}))
    fast, slow, either = (estimate(learnt, "sim", {}, host=host) for host in ("fast", "slow", None))
    assert fast.high < 1.5 < 3.0 < slow.low
    assert (either.low, either.high) == (fast.low, slow.high)


def test_what_matters_to_one_task_is_no_argument_of_another_nor_is_it_predicted_by_it():
    dice = random.Random(5)
    found: list[Example] = []
    for number in range(300):
        n, method = dice.randrange(100, 4000), dice.choice(["rk4", "euler"])
        args = {"n": n, "method": method, "seed": dice.randrange(10**6)}
        log = math.log(n) + (0.7 if method == "rk4" else 0.0) + dice.gauss(0, 0.1)
        found.append(Example("sim", None, None, flatten(args), number // 30, log))
        if number % 10 == 0:
            found.append(
                Example("tiny", None, None, flatten({"x": number}), number // 30, dice.gauss(-12, 0.3))
            )
    model = train_quantity(Examples("duration_s", found, {}))
    assert model.boosted is not None
    assert model.boosted.keys == {"args.n", "args.method"}
    assert (model.names["sim"].method, model.names["tiny"].method) == ("boosting", "baseline")
    tiny = estimate(model, "tiny", {"x": 1})
    assert tiny is not None
    assert tiny.reason == "quantiles by name: none of its arguments was found to matter"
    whole = Model(
        format=FORMAT,
        flightlog="0",
        sklearn=None,
        project="demo",
        trained_at="",
        runs=["run-1"],
        attempts=330,
        duration_s=model,
        peak_memory_bytes=train_quantity(Examples("peak_memory_bytes", [], {})),
    )
    opened = Opened(whole, False, None, [])
    unmeasured = "peak memory: nobody measured it for {}"
    assert predict_with(opened, "tiny").notes == [unmeasured.format("tiny")]
    assert predict_with(opened, "sim", {"n": 500, "method": "heun"}).notes == [
        "method=heun was never seen, only euler, rk4",
        unmeasured.format("sim"),
    ]


def test_attempts_killed_at_their_limit_raise_what_is_expected_there():
    dice = random.Random(1)
    whole, killed = [], []
    for n in range(300):
        size = dice.choice((1, 2, 4, 8))
        need = size * dice.lognormvariate(0, 0.2)
        above = need > 8.0
        one = Example("fit", None, None, flatten({"size": size}), n // 10, math.log(min(need, 8.0)), above)
        killed.append(one)
        whole += [] if above else [one]
    pretended = train_quantity(Examples("peak_memory_bytes", whole, {}))
    honest = train_quantity(Examples("peak_memory_bytes", killed, {}))
    assert estimate(pretended, "fit", {"size": 8}).high <= 8.5
    assert estimate(honest, "fit", {"size": 8}).high > 9.0
    assert honest.names["fit"].above == len(killed) - len(whole)
    assert estimate(honest, "fit", {"size": 2}).expected == pytest.approx(2.0, rel=0.15)


# --- what is kept


def test_a_model_is_kept_as_json_and_says_the_same_without_the_library(history):
    opened = open_model(history, "demo", train_anew=True)
    again = open_model(history, "demo")
    assert (opened.trained, opened.why, again.trained, again.why) == (True, "as asked for", False, None)
    assert again.model == opened.model
    kept = msgspec.json.decode(model_file(history, "demo").read_bytes())
    assert (kept["flightlog"], kept["project"], len(kept["runs"])) == (__version__, "demo", 10)
    asked = {"n": 700, "seed": 5}
    assert estimate(again.model.duration_s, "sim", asked) == estimate(opened.model.duration_s, "sim", asked)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 0}, "the one that was kept has format 0, and this is format 1"),
        (
            {"flightlog": "0.0.1"},
            f"the one that was kept was trained by flightlog 0.0.1, and this is {__version__}",
        ),
        ({"sklearn": "0.24.2"}, "the one that was kept was trained with scikit-learn 0.24.2, and this is"),
        ({"sklearn": None}, "the one that was kept was trained without scikit-learn"),
        ({"project": "other"}, "the one that was kept is of project 'other'"),
    ],
)
def test_a_model_of_other_versions_is_refused_with_the_reason_and_trained_anew(tmp_path, changes, reason):
    make_history(tmp_path, runs=3, tasks=8)
    open_model(tmp_path, "demo")
    file = model_file(tmp_path, "demo")
    file.write_bytes(msgspec.json.encode({**msgspec.json.decode(file.read_bytes()), **changes}))
    opened = open_model(tmp_path, "demo")
    assert opened.trained
    assert opened.why.startswith(reason)
    assert not open_model(tmp_path, "demo").trained


@pytest.mark.parametrize(
    "data", [b"", b"\x80\x04\x95pickle", b"[]", b'{"format": 1}', b"{" * 10_000, b"\xff\xfe"]
)
def test_a_damaged_model_is_refused_and_trained_anew(tmp_path, data):
    make_history(tmp_path, runs=2, tasks=8)
    model_file(tmp_path, "demo").write_bytes(data)
    kept = load_model(tmp_path, "demo")
    assert "is damaged" in kept
    assert flightlog.predict("sim", {"n": 300}, runs_dir=tmp_path).duration_s is not None


def test_trees_that_point_outside_themselves_are_refused(tmp_path):
    make_history(tmp_path)
    good = open_model(tmp_path, "demo").model
    tree = good.duration_s.boosted.mid.trees[0]
    tree.left[0] = 10**6
    assert save_model(good, tmp_path) is None
    assert "points outside itself" in load_model(tmp_path, "demo")


def test_a_model_is_stale_when_a_fifth_has_come_since(tmp_path):
    make_history(tmp_path, runs=10, tasks=8)
    kept = open_model(tmp_path, "demo").model
    make_history(tmp_path, runs=2, tasks=8, first=10)
    make_history(tmp_path, runs=3, tasks=8, first=20, project="other")
    assert staleness(kept, list_runs(tmp_path)) is None
    make_history(tmp_path, runs=1, tasks=8, first=12)
    assert staleness(kept, list_runs(tmp_path)) == "3 newer runs with 24 completed tasks"
    assert open_model(tmp_path, "demo").why == "there are 3 newer runs with 24 completed tasks"


def test_a_model_with_trees_is_good_also_where_the_library_is_not(history):
    open_model(history, "demo")
    assert isinstance(load_model(history, "demo", installed=not_installed), Model)


def test_where_a_model_cannot_be_kept_it_answers_all_the_same(tmp_path):
    make_history(tmp_path, runs=2, tasks=8)
    model_file(tmp_path, "demo").mkdir()
    opened = open_model(tmp_path, "demo")
    assert opened.trained
    assert "could not be kept" in opened.notes[-1]


def test_the_same_history_gives_the_same_model(history):
    past = read_past(history, project="demo")
    assert train(past).duration_s == train(past).duration_s


def test_trees_in_a_form_that_is_not_known_leave_the_baseline(history):
    def odd(*_: object) -> Trees:
        raise BoostingFailed("the trees of scikit-learn 9.9 cannot be read: no _predictors")

    made = train(read_past(history, project="demo"), find=lambda: Boosting("9.9", odd))
    assert made.notes == [
        "there is no prediction by arguments: the trees of scikit-learn 9.9 cannot be read: no _predictors"
    ]
    assert (made.sklearn, made.duration_s.names["sim"].method) == (None, "baseline")


def test_trees_give_what_the_library_gives_for_missing_numbers_too():
    dice = random.Random(2)
    rows = [[dice.random(), math.nan if dice.random() < 0.3 else dice.random()] for _ in range(300)]
    values = [a + (0.0 if math.isnan(b) else b) + dice.gauss(0, 0.05) for a, b in rows]
    trees = fit_quantile(
        rows, values, 0.5, TreeShape(rounds=40, leaves=8, least=5)
    )  # it compares them itself
    off = sorted(abs(trees.evaluate(row) - value) for row, value in zip(rows, values, strict=True))
    assert off[150] < 0.06


def test_a_column_that_no_row_has_a_number_in_tells_nothing():
    """As an argument is that only newer runs have, where a model of the older ones is made."""
    rows, shape = [[float(n % 7), math.nan] for n in range(100)], TreeShape(rounds=10, leaves=4, least=5)
    trees = fit_quantile(rows, [row[0] for row in rows], 0.5, shape)
    assert {column for tree in trees.trees for column in tree.column} == {LEAF, 0}
    assert trees.evaluate([3.0, 5.0]) == trees.evaluate([3.0, math.nan])


# --- how they fare


def test_later_runs_are_predicted_by_earlier_ones_and_compared_with_the_baseline(history):
    found = evaluate(read_past(history, project="demo"))
    assert (found.runs, found.tested_runs, found.notes) == (10, 3, [])
    for scores in (found.duration_s, found.peak_memory_bytes):
        assert scores.whole.attempts == 54
        assert scores.whole.error < 0.1 < 0.3 < scores.whole.baseline_error
        assert scores.whole.loss < 0.3 * scores.whole.baseline_loss
        assert scores.whole.coverage >= 0.8
        assert list(scores.names) == ["sim"]


def test_two_runs_are_too_few_to_evaluate_and_it_says_so(tmp_path):
    make_history(tmp_path, runs=2)
    found = evaluate(read_past(tmp_path, project="demo"))
    assert (found.tested_runs, found.duration_s.whole) == (0, None)
    assert found.notes == ["2 runs are too few to hold later ones against earlier ones: 3 are the least"]


def test_an_attempt_at_its_limit_is_a_miss_beyond_the_interval_and_nothing_within():
    inside = Logs(0.0, 1.0, 2.0)
    outcomes = [
        PredictionOutcome("fit", "boosting", inside, inside, 1.0),
        PredictionOutcome("fit", "boosting", inside, inside, 0.5, above=True),
    ]
    assert score(outcomes).coverage == 1.0
    assert (
        score([*outcomes, PredictionOutcome("fit", "boosting", inside, inside, 3.0, above=True)]).coverage
        == 0.5
    )
    assert score([]) is None
