"""Rules are files: every one of ours loads, one that is none is refused, and a site adds its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.diagnosis.base import Case
from flightlog.analyze.diagnosis.rules import FOLDER, line_with, load_rules, needed, own_rules, parse_rule
from flightlog.analyze.diagnosis.score import diagnose_text
from flightlog.analyze.diagnosis.text import read_text, small_letters

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
    """An installed package with rules of its own: two are usable, two for classes that we have, too."""
    folder = tmp_path / "oursite-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: oursite\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[flightlog.rules]\nlicence = oursite_rules:licence\nabsent = oursite_rules:nowhere\n"
        "shapeless = oursite_rules:shapeless\ndisk_full = oursite_rules:disk\n"
        "network = oursite_rules:nowhere\n"
    )
    (tmp_path / "oursite_rules.py").write_text(
        "from flightlog.analyze.diagnosis.rules import parse_rule\n"
        f"licence = parse_rule({LICENCE!r})\nshapeless = 3\n"
        f"disk = parse_rule({LICENCE.replace('no licence', 'no scratch')!r})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    load_rules.cache_clear()
    yield
    load_rules.cache_clear()
    sys.modules.pop("oursite_rules", None)


def test_a_site_adds_its_own_class_by_an_entry_point_and_a_broken_one_is_named(site: None) -> None:
    found = diagnose_text("solver: no licence left, 12 of 12 in use")
    assert (found.failure_class, found.suggestions) == ("licence", ["Wait for a licence."])
    nowhere = "AttributeError: module 'oursite_rules' has no attribute 'nowhere'"
    assert found.problems == [
        f"rule 'absent' cannot be used: oursite_rules:nowhere: {nowhere}",
        f"rule 'network' cannot be used: oursite_rules:nowhere: {nowhere}",
        "rule 'shapeless' cannot be used: oursite_rules:shapeless: has no `signs` and `suggestions` to call",
    ]


def test_a_site_s_rule_takes_the_place_of_ours_and_one_that_is_broken_does_not(site: None) -> None:
    full = "OSError: [Errno 28] No space left on device"
    assert diagnose_text(full).failure_class != "disk_full"
    assert diagnose_text("no scratch left").failure_class == "disk_full"
    assert load_rules()["network"] == own_rules()["network"]


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
