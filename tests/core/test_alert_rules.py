"""The grammar of alerts: what is written is what is meant, and else it is said what is right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.core.alerts import (
    ACCEPTED,
    WORDS,
    AlertEntry,
    AlertRule,
    address_mark,
    parse_rule,
    public_address,
    read_entries,
    without_address,
)
from flightlog.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (" Slower  than usual ", AlertRule(text="Slower  than usual", kind="slower than usual")),
        ("memory > 90 %", AlertRule(text="memory > 90 %", kind="memory", operator=">", limit=0.9)),
        ("GPU memory>=5%", AlertRule(text="GPU memory>=5%", kind="gpu memory", operator=">=", limit=0.05)),
        (
            "val/loss is nan",
            AlertRule(text="val/loss is nan", kind="nonfinite", metric="val/loss", only_nan=True),
        ),
        ("x is not finite", AlertRule(text="x is not finite", kind="nonfinite", metric="x")),
        (
            '"memory" < -1.5e-3 for 7 steps',
            AlertRule(
                text='"memory" < -1.5e-3 for 7 steps',
                kind="metric",
                metric="memory",
                operator="<",
                limit=-0.0015,
                steps=7,
            ),
        ),
        *(
            (text, AlertRule(text=text, kind="query"))
            for text in (
                "with x as (select 1) from x",
                "SELECT task FROM tasks WHERE duration_s > 3600",
                "select*from tasks",
                "from tasks",
                "FROM tasks\nWHERE duration_s > 3600",
                "WITH x AS (SELECT 1 AS n) FROM x WHERE n > 0",
            )
        ),
        *(
            (
                f"{name} > 1 for 2 steps",
                AlertRule(
                    text=f"{name} > 1 for 2 steps",
                    kind="metric",
                    metric=name,
                    operator=">",
                    limit=1.0,
                    steps=2,
                ),
            )
            for name in ("with-aug/loss", "from scratch", "select/loss", "from")
        ),
        (
            "from scratch is NaN",
            AlertRule(text="from scratch is NaN", kind="nonfinite", metric="from scratch", only_nan=True),
        ),
    ],
)
def test_a_rule_is_what_it_says(text: str, rule: AlertRule) -> None:
    assert parse_rule(text) == rule


NAMES = st.text("abcxyz/_.- 019", min_size=1, max_size=20).map(lambda name: f"m{name}m")


@given(
    name=NAMES,
    quote=st.sampled_from(["", "'", '"']),
    operator=st.sampled_from(["<", "<=", ">", ">="]),
    limit=st.floats(allow_nan=False, allow_infinity=False),
    steps=st.none() | st.integers(1, 1_000_000),
    space=st.sampled_from(["", " ", "   "]),
)
def test_every_comparison_of_a_metric_is_read_back(
    name: str, quote: str, operator: str, limit: float, steps: int | None, space: str
) -> None:
    lasting = "" if steps is None else f" for {steps} step{'s' * (steps > 1)}"
    rule = parse_rule(f"{quote}{name}{quote}{space}{operator}{space}{limit!r}{lasting}")
    found = (rule.kind, rule.metric, rule.operator, rule.limit, rule.steps)
    assert found == ("metric", name, operator, limit, steps or 1)


@given(st.text(max_size=60) | st.sampled_from(WORDS).map(lambda word: word[:-1]))
def test_any_text_is_a_rule_or_refused_with_what_is_accepted(text: str) -> None:
    try:
        found = parse_rule(text).text
    except UsageError as error:
        found, why = text.strip(), str(error)
        assert ACCEPTED[1:] in why or "memory" in why or "step" in why
    assert found == text.strip()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fialed", "did you mean 'failed'?"),
        ("memory > 90", "write a share, as in 'memory > 90 %'"),
        ("memory < 90 %", "write a share, as in 'memory > 90 %'"),
        ("memory > 190 %", "write a share"),
        ("loss > 90 %", "only memory and gpu memory have a %"),
        ("loss > 1 for 0 steps", "it takes 1 step to 1,000,000"),
        ("loss = 1", "is no rule of an alert; accepted are failed"),
        ("", "'' is no rule of an alert"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_rule(text)
    assert why in str(refused.value)


def test_entries_are_read_from_json_and_refused_without_their_values() -> None:
    assert read_entries('[{"when": ["failed"], "every": "5m"}]') == [AlertEntry(when=("failed",), every="5m")]
    for wrong in (
        '{"when": []}',
        '[{"when": [], "every": "soon"}]',
        '[{"when": "s3cret"}]',
        '[{"wen": ["s3cret"]}]',
        "s3cret",
    ):
        with pytest.raises(UsageError) as refused:
            read_entries(wrong)
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:pw@host:8080/services/T0/B0/s3cret", "https://host:8080/[redacted]"),
        ("http://host?s3cret", "http://host/[redacted]"),
        ("https://host?sig=s3cret", "https://host/[redacted]"),
        ("slack://s3cret/s3cret/s3cret", "slack://[redacted]"),
        ("s3cret", "[redacted]"),
        ("http://[s3cret", "[redacted]"),
    ],
)
def test_what_is_shown_of_an_address_holds_no_secret(address: str, shown: str) -> None:
    assert public_address(address) == shown
    assert public_address("http://host/") == "http://host"
    assert "s3cret" not in without_address(f"could not reach {address}: s3cret", address)


def test_addresses_that_look_alike_are_told_apart_and_not_by_their_passwords() -> None:
    marks = {address_mark(f"slack://a/b/{number}") for number in range(20)}
    assert len(marks) > 18
    assert address_mark("mailto://me:one@host") == address_mark("mailto://me:two@host?pass=three")
    assert address_mark("mailto://me:one@host") != address_mark("mailto://you:one@host")
    assert address_mark("https://host/hook?key=one") != address_mark("https://host/hook?key=two")
