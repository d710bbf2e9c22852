"""The price table: from sources that can be looked up, checked, and replaced by the user's."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from builders.runs import at, make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.cost.prices import SHIPPED, Price, find_price, is_old, read_prices
from flightlog.analyze.report.report import report_on
from flightlog.core.errors import UsageError
from flightlog.events import CostRates, WorkerLaunched, WorkerRemoved
from flightlog.show.report import report_text
from flightlog.store.run import Run

MINE = {
    "name": "our cloud",
    "currency": "EUR",
    "sources": {"own": {"date": "2026-01-31"}},
    "instances": {"own/small": {"per_hour": 0.5}},
}


def test_every_shipped_price_is_positive_and_from_a_source_at_one_commit() -> None:
    table = read_prices()
    assert len(table.instances) >= 24
    assert all(instance.per_hour > 0 for instance in table.instances.values())
    assert {name.partition("/")[0] for name in table.instances} == set(table.sources)
    assert all(source.name and source.region for source in table.sources.values())
    assert all(
        re.fullmatch(rf"https://github\.com/{source.name}/blob/[0-9a-f]{{40}}/.+", source.url or "")
        for source in table.sources.values()
    )


def test_shipped_prices_have_the_day_that_their_source_states_and_no_other() -> None:
    table = read_prices()
    assert {provider: source.date for provider, source in table.sources.items()} == {
        "aws": "2026-02-09",
        "gcp": "2025-03-06",
        "azure": "2023-12-18",
    }
    assert [name for name, instance in table.instances.items() if instance.date is not None] == []


def test_larger_sizes_of_a_family_cost_in_proportion() -> None:
    table = read_prices()
    by_core: dict[str, set[float]] = {}
    for name, instance in table.instances.items():
        family = name.rpartition(".")[0] or name.rpartition("-")[0]
        if instance.cpus and not instance.gpus and family and not name.startswith("aws/t3"):
            by_core.setdefault(family, set()).add(round(instance.per_hour / instance.cpus, 3))
    assert {family: prices for family, prices in by_core.items() if len(prices) > 1} == {}


def test_a_type_is_found_in_any_case_and_says_the_day_of_its_price() -> None:
    assert find_price(read_prices(), " AWS/M6i.xlarge ") == Price(
        instance="aws/m6i.xlarge",
        per_hour=0.192,
        currency="USD",
        table=read_prices().name,
        source="aws/karpenter-provider-aws",
        date="2026-02-09",
        region="us-east-1",
    )


def table_of(folder: Path, **change) -> Path:
    file = folder / "prices.json"
    file.write_bytes(msgspec.json.encode({**MINE, **change}))
    return file


@pytest.mark.parametrize(
    ("of_source", "of_type", "day"),
    [
        ({"date": "2026-01-31"}, {"date": "2026-06-17"}, "2026-06-17"),
        ({"date": "2026-01-31"}, {"date": None}, "2026-01-31"),
        ({"date": None}, {"date": "2026-06-17"}, "2026-06-17"),
        ({"date": None}, {}, None),
        ({}, {}, None),
    ],
)
def test_a_type_may_have_a_day_of_its_own_and_a_table_none(
    tmp_path: Path, of_source: dict, of_type: dict, day: str | None
) -> None:
    file = table_of(
        tmp_path, sources={"own": of_source}, instances={"own/small": {"per_hour": 0.5, **of_type}}
    )
    assert find_price(read_prices(file), "own/small").date == day


@pytest.mark.parametrize(
    ("day", "words"),
    [
        (None, "own/small, price undated, from our cloud"),
        ("2026-01-31", "own/small at its price of 2026-01-31"),
    ],
)
def test_a_report_says_of_which_day_the_price_is_or_that_it_is_undated(
    tmp_path: Path, day: str | None, words: str
) -> None:
    rates = CostRates(
        timestamp=at(0),
        currency="EUR",
        source="our cloud",
        instance="own/small",
        prices_of=day,
        per_worker_hour=360.0,
    )
    who = {"worker": "w1", "host": "n1", "pid": 1}
    crew = [WorkerLaunched(timestamp=at(0), **who), WorkerRemoved(timestamp=at(10), reason=None, **who)]
    text = report_text(report_on(Run(make_run(tmp_path, [rates, *crew], provider="slurm"))))
    assert f"Estimated Cost: €1.00 ({words})\n" in text


def test_an_unknown_type_names_the_near_ones() -> None:
    with pytest.raises(
        UsageError, match=r"no instance type 'aws/m6\.xlarge' .* did you mean aws/m6i\.xlarge"
    ):
        find_price(read_prices(), "aws/m6.xlarge")


def test_a_table_of_ones_own_takes_the_shipped_ones_place(tmp_path: Path) -> None:
    price = find_price(read_prices(table_of(tmp_path)), "own/small")
    assert (price.per_hour, price.currency, price.table, price.date) == (
        0.5,
        "EUR",
        "our cloud",
        "2026-01-31",
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"instances": {"own/small": {"per_hour": -1}}}, "the price of 'own/small' is -1"),
        ({"instances": {"small": {"per_hour": 1}}}, "'small' is not of the form PROVIDER/TYPE"),
        ({"instances": {"own/small": {"per_hour": "1"}}}, r"Expected `float`, got `str` - at `\$\.instances"),
        ({"instances": {"own/small": {"hourly": 1}}}, "unknown field `hourly`"),
        ({"sources": {"own": {"date": "last year"}}}, "'last year', not a day such as 2026-06-17"),
        (
            {"instances": {"own/small": {"per_hour": 1, "date": "2026"}}},
            "the date of 'own/small' is '2026', not a day",
        ),
        ({"currency": " "}, "its currency is blank"),
    ],
)
def test_a_table_that_is_none_says_what_is_wrong_with_it(tmp_path: Path, change: dict, text: str) -> None:
    file = table_of(tmp_path, **change)
    with pytest.raises(UsageError, match=f"prices.json is no price table: .*{text}"):
        read_prices(file)


@given(
    st.binary(max_size=40)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*MINE, "own/small", "own"]), inner)
        ),
    ).map(msgspec.json.encode)
)
def test_whatever_a_file_holds_it_is_a_table_or_one_message(tmp_path_factory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("prices") / "prices.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="is no price table"):
        read_prices(file)


def test_a_file_that_is_not_there_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the price table .*: No such file or directory"):
        read_prices(tmp_path / "none.json")
    assert SHIPPED.is_file()


@pytest.mark.parametrize(
    ("then", "when", "old"),
    [
        ("2025-06-01", "2026-06-01T00:00:00.000000Z", False),
        ("2025-06-01", "2026-06-03T00:00:00.000000Z", True),
        ("2025-06-01", None, False),
        (None, "2026-06-03T00:00:00.000000Z", False),
        ("soon", "2026-06-03T00:00:00.000000Z", False),
    ],
)
def test_a_price_is_old_a_year_later(then: str | None, when: str | None, old: bool) -> None:
    assert is_old(then, when) is old
