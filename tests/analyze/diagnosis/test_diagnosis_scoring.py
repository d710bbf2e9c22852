"""Rules are asked, their signs are weighed, and a rule that is broken is named and left out."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.diagnosis import score
from flightlog.analyze.diagnosis.base import Case, Diagnosis, Rule, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.text import ParsedText, read_text

NOTHING = Case(reading=ParsedText())


def weigh(case: Case, rules: Mapping[str, Rule] | None = None) -> Diagnosis:
    return score.weigh(case, rules).diagnosis


class Says:
    """A rule that always says the same."""

    def __init__(self, *weights: float, texts: str = "abcdef", source: Source = Source.exception) -> None:
        self._signs = [Sign(source=source, weight=w, text=t) for w, t in zip(weights, texts, strict=False)]

    def signs(self, case: Case, /) -> list[Sign]:
        return self._signs

    def suggestions(self, case: Case, /) -> list[str]:
        return ["do this"]


class Raises(Says):
    def signs(self, case: Case, /) -> list[Sign]:
        raise ZeroDivisionError("oops")


class Misshapen(Says):
    def signs(self, case: Case, /) -> list[Sign]:
        return ["not a sign"]  # type: ignore[list-item]


class Speechless(Says):
    def suggestions(self, case: Case, /) -> list[str]:
        raise LookupError("nothing to say")


def test_the_strongest_class_is_named_with_its_share_of_the_evidence() -> None:
    assert weigh(NOTHING, {"mine": Says(3, 1), "other": Says(2)}) == Diagnosis(
        failure_class="mine",
        confidence=0.61,
        evidence=["a", "b"],
        suggestions=["do this"],
        also={"other": 0.25},
    )


def test_a_hint_alone_is_not_enough_to_name_a_class() -> None:
    found = weigh(NOTHING, {"mine": Says(0.8)})
    assert (found.failure_class, found.also) == ("unknown", {"mine": 0.39})


def test_near_a_tie_nobody_is_sure_and_an_alternative_is_no_likelier_than_the_answer() -> None:
    found = weigh(NOTHING, {"mine": Says(4), "other": Says(3.6)})
    assert (found.failure_class, found.confidence, found.also) == ("mine", 0.4, {"other": 0.4})
    many = weigh(NOTHING, {name: Says(3) for name in "abc"})
    assert (many.failure_class, many.confidence) == ("unknown", 0.04)
    assert many.also == dict.fromkeys("abc", 0.04)


def test_words_alone_leave_more_doubt_than_an_exception() -> None:
    assert weigh(NOTHING, {"mine": Says(2)}).confidence == 0.8
    assert weigh(NOTHING, {"mine": Says(2, source=Source.words)}).confidence == 0.61
    assert weigh(NOTHING, {"mine": Says(1.1, source=Source.words)}).failure_class == "unknown"


def test_ten_lines_that_say_the_same_are_one_sign() -> None:
    assert weigh(NOTHING, {"mine": Says(3, 3, 3, texts="aaa")}) == weigh(NOTHING, {"mine": Says(3)})


def test_a_sign_against_a_class_is_taken_off() -> None:
    assert weigh(NOTHING, {"mine": Says(4, -3.5)}).failure_class == "unknown"


@given(st.lists(st.floats(0, 6), max_size=6), st.lists(st.floats(-6, 6), max_size=6), st.floats(0.5, 6))
def test_more_evidence_for_a_class_never_lowers_its_confidence(
    mine: list[float], other: list[float], more: float
) -> None:
    def confidence(weights: list[float]) -> float:
        found = weigh(NOTHING, {"mine": Says(*weights), "other": Says(*other)})
        return found.confidence if found.failure_class == "mine" else 0.0

    assert confidence([*mine, more]) >= confidence(mine) - 0.01


def test_rules_that_raise_or_yield_something_else_are_left_out_and_named() -> None:
    found = weigh(NOTHING, {"a": Raises(), "b": Misshapen(), "c": Says(float("inf")), "mine": Says(3)})
    assert (found.failure_class, found.problems) == (
        "mine",
        [
            "rule 'a' failed and was left out: ZeroDivisionError: oops",
            "rule 'b' failed and was left out: TypeError: a sign was expected, not str",
            "rule 'c' failed and was left out: ValueError: a finite weight was expected, not inf",
        ],
    )


def test_a_class_stands_even_where_its_rule_cannot_suggest_anything() -> None:
    found = weigh(NOTHING, {"mine": Speechless(3)})
    assert (found.failure_class, found.suggestions, found.problems) == (
        "mine",
        [],
        ["rule 'mine' could not suggest anything: LookupError: nothing to say"],
    )


def test_facts_of_the_record_decide_where_the_text_is_silent() -> None:
    killed = read_text("Killed")
    facts = RunFacts(
        signal="SIGKILL",
        last_rss_bytes=7_900_000_000,
        memory_limit_bytes=8_000_000_000,
        memory_slope_bytes_per_s=1e8,
    )
    assert weigh(Case(reading=killed)).failure_class == "unknown"
    assert weigh(Case(reading=killed, facts=facts)).failure_class == "out_of_memory"
    assert weigh(Case(reading=killed, facts=RunFacts(cgroup_oom_kills=1))).failure_class == "out_of_memory"
    assert weigh(Case(reading=killed, facts=RunFacts(job_state="PREEMPTED"))).failure_class == "preempted"
    assert (
        weigh(Case(reading=ParsedText(), facts=RunFacts(job_state="TIMEOUT"))).failure_class == "time_limit"
    )
    assert weigh(Case(reading=ParsedText(), facts=RunFacts(nonfinite=("loss",)))).failure_class == "numerical"
