"""Rules are asked, their signs are weighed, and a rule that is broken is named and left out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.diagnosis import score
from flightlog.analyze.diagnosis.base import Case, Diagnosis, Rule, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.rules import FOLDER, line_with, load_rules, needed, own_rules, parse_rule
from flightlog.analyze.diagnosis.text import ParsedText, read_text, small_letters

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


LICENCE = """
description = "All licences are taken."
suggestions = ["Wait for a licence."]

[[clues]]
kind = "says"
weight = 5
patterns = ['no licence left']
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with three rules of its own, of which one is usable."""
    folder = tmp_path / "oursite-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: oursite\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[flightlog.rules]\nlicence = oursite_rules:licence\nabsent = oursite_rules:nowhere\nshapeless = "
        "oursite_rules:shapeless\n"
    )
    (tmp_path / "oursite_rules.py").write_text(
        "from flightlog.analyze.diagnosis.rules import parse_rule\n"
        f"licence = parse_rule({LICENCE!r})\nshapeless = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    load_rules.cache_clear()
    yield
    load_rules.cache_clear()
    sys.modules.pop("oursite_rules", None)


def test_a_site_adds_its_own_class_by_an_entry_point(site: None) -> None:
    found = weigh(Case(reading=read_text("solver: no licence left, 12 of 12 in use")))
    assert (found.failure_class, found.suggestions) == ("licence", ["Wait for a licence."])
    assert found.problems == [
        "rule 'absent' cannot be used: oursite_rules:nowhere: AttributeError: module 'oursite_rules' "
        "has no attribute 'nowhere'",
        "rule 'shapeless' cannot be used: oursite_rules:shapeless: has no `signs` and `suggestions` to call",
    ]


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


# --- rules as data ---


def test_every_rule_of_ours_loads_and_each_of_its_patterns_is_one() -> None:
    rules = own_rules()
    assert {*rules} == {file.stem for file in FOLDER.glob("*.toml")}
    for rule in rules.values():
        for clue in rule.clues:
            found = (getattr(clue, name, None) for name in ("saying", "calling", "unless", "weakened_by"))
            for pattern in (*getattr(clue, "patterns", ()), *filter(None, found)):
                re.compile(pattern)
                assert "\n" not in pattern


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (("patterns", "pattern"), r"unknown field `pattern` - at `\$.clues\[0\]`"),
        (('kind = "says"', 'kind = "shouts"'), r"Invalid value 'shouts' - at `\$.clues\[0\].kind`"),
        (("weight = 5", 'weight = "5"'), r"Expected `float`, got `str` - at `\$.clues\[0\].weight`"),
        (("no licence left", "{nowhere} left"), "there is no shared pattern 'nowhere'"),
        (("suggestions", "suggestion"), "Object contains unknown field `suggestion`"),
        (("suggestions", "suggested_by = 'guess'\nsuggestions"), "there is no function 'guess'"),
        (("description", "description ="), "Invalid value"),
    ],
)
def test_a_rule_that_is_no_rule_is_refused_with_the_name_of_its_file(
    tmp_path: Path, changed: tuple[str, str], why: str
) -> None:
    (tmp_path / "licence.toml").write_text(LICENCE.replace(*changed))
    with pytest.raises(ValueError, match=rf"^licence\.toml: .*{why}"):
        own_rules(tmp_path)


def test_patterns_are_shared_between_clues_and_rules_and_may_take_several_lines(tmp_path: Path) -> None:
    (tmp_path / "licence.toml").write_text(f"{LICENCE}\n[shared]\nserver = ['lm', 'flex']\n")
    (tmp_path / "other.toml").write_text(
        LICENCE.replace("'no licence left'", "'''\n    (?:{licence.server})\n    d: {what}\n  '''")
        + "unless = ['{what} is up', 'ok']\n[shared]\nwhat = 'seats'\n"
    )
    [clue] = own_rules(tmp_path)["other"].clues
    assert (clue.patterns, clue.unless) == (("(?:lm|flex)d: seats",), "seats is up|ok")  # type: ignore[union-attr]


def test_a_clue_counts_less_where_the_text_names_what_weakens_it() -> None:
    rule = parse_rule(f"{LICENCE}weakened_by = 'time limit'")
    text = "no licence left"
    assert [sign.weight for sign in rule.signs(Case(reading=read_text(text)))] == [5]
    assert [sign.weight for sign in rule.signs(Case(reading=read_text(f"{text}\ntime limit")))] == [1.5]


# --- patterns ---


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("Disk full", {"disk full"}),
        (r"\bdisk (?:is )?full\b", {"disk "}),
        ("(?:disk|volume) (?:full|gone)", {"disk", "volume"}),
        ("(?:full)?gone", {"gone"}),
        (r"x{0,3}\d+", None),
        ("(?!full)gone", {"gone"}),
        ("fulls?", {"full"}),
    ],
)
def test_the_words_that_a_pattern_cannot_do_without_are_found(pattern: str, words: set[str] | None) -> None:
    assert needed(pattern) == (None if words is None else frozenset(words))


PATTERN = st.recursive(
    st.sampled_from(["disk", "Full", "a", r"\d", ".", "[ab]", r"\b", "gone", " "]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "{0,2}", "{1,3}"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        ),
    ),
    max_leaves=8,
)
TEXT = st.lists(
    st.sampled_from(["disk", "FULL", "a", "b", "3", " ", "gone", "\n", "x", "İ"]), max_size=12
).map("".join)


@given(PATTERN, TEXT)
def test_looking_for_words_first_finds_what_the_pattern_finds(pattern: str, text: str) -> None:
    found = line_with([pattern], text, small_letters(text))
    assert (found is not None) == any(re.search(pattern, line, re.I) for line in text.split("\n") if line)


def test_of_several_lines_the_first_is_the_evidence_whichever_word_it_holds() -> None:
    text = "volume gone\ndisk full\nvolume full"
    assert line_with(["(?:disk|volume) (?:full|gone)"], text, text) == 0
    assert line_with(["(?:disk|volume) full"], text, text) == len("volume gone\n")
    assert line_with(["disk gone", "volume full", "disk full"], text, text) == text.rindex("volume")
