"""Public on-demand prices of instance types: the table that ships, or one of the user's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from difflib import get_close_matches
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.analyze.limits import CostLimits
from flightlog.core.errors import UsageError

SHIPPED = Path(__file__).with_name("prices.json")


class PriceSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the prices of one provider come from."""

    date: str | None = None
    """The day that it states itself, on which they held: `2026-06-17`; null where it states none."""
    name: str | None = None
    url: str | None = None
    region: str | None = None


class Instance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An instance type; null sizes are not known."""

    per_hour: float
    cpus: float | None = None
    memory_gib: float | None = None
    gpus: float | None = None
    date: str | None = None
    """In place of that of the source."""


class PriceTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instance types by `provider/name`, and for each provider its source."""

    name: str
    currency: str
    sources: dict[str, PriceSource]
    instances: dict[str, Instance]
    note: str | None = None


class Price(Struct, frozen=True, kw_only=True):
    """What an hour of one instance type costs, who says so, and on which day it did; a null date is not
    known.
    """

    instance: str
    per_hour: float
    currency: str
    table: str
    source: str | None
    """The source within the table, by its name."""
    date: str | None
    region: str | None


def read_prices(file: Path | None = None) -> PriceTable:
    """The table in a JSON file, or the one that ships; a file that is none is a `UsageError` that says
    why.
    """
    path = SHIPPED if file is None else file
    try:
        table = msgspec.json.decode(path.read_bytes(), type=PriceTable)
    except OSError as error:
        raise UsageError(f"cannot read the price table {path}: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{path} is no price table: {error}. {SHIPPED.name} of the package shows the form"
        ) from None
    for text in _wrong(table):
        raise UsageError(f"{path} is no price table: {text}")
    return table


def _wrong(table: PriceTable) -> Iterator[str]:
    if not table.currency.strip():
        yield "its currency is blank"
    dates: dict[str, PriceSource | Instance] = {**table.sources, **table.instances}
    for name, dated in dates.items():
        if dated.date is not None and _day(dated.date) is None:
            yield f"the date of {name!r} is {dated.date!r}, not a day such as 2026-06-17"
    for name, instance in table.instances.items():
        if name.partition("/")[0] not in table.sources or not name.partition("/")[2]:
            yield f"{name!r} is not of the form PROVIDER/TYPE with one of its sources as provider"
        if not (math.isfinite(instance.per_hour) and instance.per_hour >= 0):
            yield f"the price of {name!r} is {instance.per_hour}"


def find_price(table: PriceTable, instance: str) -> Price:
    """The price of an instance type, in whatever case it is written; one that is not there is a
    `UsageError`.
    """
    names = {name.lower(): name for name in table.instances}
    name = names.get(instance.strip().lower())
    if name is None:
        near = get_close_matches(instance.strip().lower(), names, n=3, cutoff=0.6)
        hint = (
            f"did you mean {' or '.join(names[one] for one in near)}?"
            if near
            else f"it has {len(names)}, such as {', '.join(sorted(names.values())[:3])}"
        )
        raise UsageError(f"there is no instance type {instance!r} in {table.name}; {hint}")
    found, source = table.instances[name], table.sources[name.partition("/")[0]]
    return Price(
        instance=name,
        per_hour=found.per_hour,
        currency=table.currency,
        table=table.name,
        source=source.name,
        date=found.date or source.date,
        region=source.region,
    )


def is_old(prices_of: str | None, when: str | None) -> bool:
    """Whether a price of one day was old on another, the start of a run, say; False where a day is not
    known.
    """
    then, now = _day(prices_of), _day((when or "")[:10])
    return then is not None and now is not None and (now - then).days > CostLimits.max_price_age_days


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text and len(text) == 10 else None
    except ValueError:
        return None
