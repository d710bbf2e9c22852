"""Laying overlays over, and putting variables in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.errors import UsageError
from flightlog.session.expansion import Expanded, escape, expand, has_variables, variables
from flightlog.session.manifest import parse_manifest, with_overlay
from flightlog.session.yaml_tree import Node, OverlayChange, changes, laid_over

KEYS = st.sampled_from("abc")
SCALARS = st.sampled_from(["1", "two", ""])
TREES = st.recursive(
    SCALARS, lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=2)
)
MAPPINGS = st.dictionaries(KEYS, TREES, max_size=3)
OVERLAYS = st.recursive(
    SCALARS | st.none(),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(SCALARS, max_size=2),
)
OVERLAY_MAPPINGS = st.dictionaries(KEYS, OVERLAYS, max_size=3)


def tree(value: Any) -> Node:
    if isinstance(value, dict):
        return Node({key: tree(inner) for key, inner in value.items()}, 1)
    if isinstance(value, list):
        return Node(tuple(tree(inner) for inner in value), 1)
    return Node(value, 1)


def plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: plain(inner) for key, inner in node.value.items()}
    return [plain(inner) for inner in node.value] if isinstance(node.value, tuple) else node.value


def lay(base: Any, over: Any) -> Any:
    laid = laid_over(tree(base), tree(over), "o")
    return None if laid is None else plain(laid)


def merged(base: Any, over: Any) -> Any:
    """The rule, spelled out on plain values."""
    if not isinstance(over, dict):
        return over
    under = base if isinstance(base, dict) else {}
    both = {
        key: merged(under.get(key), over[key]) if key in over else under[key] for key in {**under, **over}
    }
    return {key: value for key, value in both.items() if value is not None or key not in over}


@given(MAPPINGS, OVERLAY_MAPPINGS)
def test_mappings_merge_scalars_and_lists_replace_and_null_removes(base: Any, over: Any) -> None:
    assert lay(base, over) == merged(base, over)


@given(MAPPINGS, OVERLAY_MAPPINGS)
def test_laying_twice_is_laying_once(base: Any, over: Any) -> None:
    once = lay(base, over)
    assert lay(once, over) == once


@given(MAPPINGS)
def test_nothing_laid_over_changes_nothing(base: Any) -> None:
    assert lay(base, {}) == base
    assert lay(base, base) == base
    assert list(changes(tree(base), tree(base), "o")) == []


@given(MAPPINGS, OVERLAY_MAPPINGS)
def test_no_changes_are_listed_only_where_values_stay(base: Any, over: Any) -> None:
    if not list(changes(tree(base), tree(over), "o")):
        before, after = dict(tree(base).leaves()), dict(laid_over(tree(base), tree(over), "o").leaves())
        scalars = {path: node.value for path, node in before.items() if isinstance(node.value, str)}
        assert {p: n.value for p, n in after.items() if isinstance(n.value, str)} == scalars


TEXT = """\
version: 1
project: {name: a}
components:
  m: {cpus: 1, tags: [x, y], env: {A: 1}}
overlays:
  one: {components: {m: {cpus: 2, tags: [z], env: {A: null, B: 2}}}}
  two: {components: {m: {cpus: 3}, n: {cpus: 1}}}
"""


def test_overlays_are_laid_in_order_and_every_change_is_told() -> None:
    found = with_overlay(parse_manifest(TEXT, Path("f.yaml")), ["one", "two"])
    components = found.resolved({}).components
    assert (components["m"].cpus, components["m"].tags, components["m"].env) == (3.0, ("z",), {"B": "2"})
    assert components["n"].cpus == 1.0
    assert found.overlays == ("one", "two")
    assert found.changes == (
        OverlayChange(
            path="components.m.cpus", overlay="one", before="1", before_line=4, after="2", after_line=6
        ),
        OverlayChange(
            path="components.m.tags", overlay="one", before="[x, y]", before_line=4, after="[z]", after_line=6
        ),
        OverlayChange(
            path="components.m.env.A", overlay="one", before="1", before_line=4, after=None, after_line=6
        ),
        OverlayChange(
            path="components.m.env.B", overlay="one", before=None, before_line=None, after="2", after_line=6
        ),
        OverlayChange(
            path="components.m.cpus", overlay="two", before="2", before_line=6, after="3", after_line=7
        ),
        OverlayChange(
            path="components.n.cpus", overlay="two", before=None, before_line=None, after="1", after_line=7
        ),
    )


def test_an_unknown_overlay_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UsageError) as error:
        with_overlay(parse_manifest(TEXT, Path("f.yaml")), ["tow"])
    assert str(error.value) == "there is no overlay 'tow' in f.yaml; did you mean 'two'?"


@given(st.text())
def test_an_escaped_text_expands_to_itself(text: str) -> None:
    assert expand(escape(text), {"A": "x"}) == Expanded(text=text)
    assert not has_variables(escape(text))


@given(st.text(), st.text(alphabet=st.characters(exclude_characters="}$"), min_size=1))
def test_a_variable_gives_what_it_holds_and_nothing_in_it_expands_again(value: str, default: str) -> None:
    assert expand("<${A}>", {"A": value}).text == f"<{value}>"
    assert expand(f"${{A:-{default}}}", {"A": value}).text == (value or default)
    assert expand(f"${{A:-{default}}}", {}).text == default


@given(st.text(alphabet="$_{}:-Ab "))
def test_any_text_expands_without_raising(text: str) -> None:
    found = expand(text, {"A": "1"})
    assert isinstance(found.text, str)
    if not has_variables(text):
        assert (found.missing, found.malformed) == ((), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$HOME $(date) $", Expanded(text="$HOME $(date) $")),
        ("$${A}", Expanded(text="${A}")),
        ("${A}${B}${A}", Expanded(text="", missing=("A", "B"))),
        ("${A:-}", Expanded(text="")),
        ("${1A} ${A", Expanded(text="${1A} ${A", malformed=("${1A}", "${A"))),
        ("${A:-${B}}", Expanded(text="${A:-${B}}", malformed=("${A:-${B}",))),
    ],
)
def test_what_is_no_variable_stays_as_it_is(text: str, expected: Expanded) -> None:
    assert expand(text, {}) == expected


def test_the_names_of_variables_are_found_once_each() -> None:
    assert variables("${B:-x} ${A} ${B} $${C} $D") == ("B", "A")
