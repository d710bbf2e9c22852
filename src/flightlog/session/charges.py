"""What a manifest's `cost` comes to: rates that can be counted with, prices of instance types looked up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flightlog.core.errors import UsageError
from flightlog.core.settings import expanded, read_settings
from flightlog.events import CostRates
from flightlog.events.rates import BESIDE, BY_THE_HOUR, rate_of
from flightlog.session.schema import Component, Contents, Rates

if TYPE_CHECKING:
    from flightlog.analyze.cost.prices import Price

MANIFEST = "the manifest"
_CODE = re.compile(r"[A-Z]{3}")
_HOURLY = tuple(field for field, _ in BY_THE_HOUR.values())
_OTHERS = tuple(field for field, _ in BESIDE.values())


def charges_of(contents: Contents, target: str, folder: Path, environ: Mapping[str, str]) -> CostRates | None:
    """The rates of a target, its own or those of the whole manifest; None where nothing has a price.

    `folder` is the manifest's. A price that cannot be had is a `UsageError`.
    """
    chosen = contents.targets[target]
    rates = chosen.cost if chosen.cost is not None else contents.cost
    shared = _workers_here(chosen.options) if chosen.provider == "local" else 1
    return charges(
        rates, contents.components, folder, environ, provider=chosen.provider, workers_per_instance=shared
    )


def charges(
    rates: Rates | None,
    components: Mapping[str, Component],
    folder: Path | None,
    environ: Mapping[str, str],
    *,
    provider: str | None = None,
    workers_per_instance: int = 1,
    source: str = MANIFEST,
) -> CostRates | None:
    """The rates as a run records them; `workers_per_instance` holds where they do not say. Raises as
    `charges_of`.
    """
    if rates is None:
        return None
    price = _price(rates, folder, environ) if rates.instance is not None else None
    named = {field: getattr(rates, field) for field in (*_HOURLY, *_OTHERS)}
    if price is not None:
        named["per_worker_hour"] = price.per_hour / (rates.workers_per_instance or workers_per_instance)
    found = CostRates(
        currency=rates.currency or (price.currency if price is not None else "USD"),
        source=source if price is None else price.table,
        provider=provider,
        instance=price.instance if price is not None else None,
        prices_of=price.date if price is not None else None,
        components={
            name: {"cpus": one.cpus, "memory_bytes": one.memory_bytes, "gpus": one.gpus}
            for name, one in components.items()
        },
        **named,
    )
    return found if any(rate_of(found, field) is not None for field in named) else None


def charge_problems(
    rates: Rates, folder: Path | None, environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """What is wrong with a `cost`: the key, and what of it. Prices are looked up where there is a folder."""
    if rates.currency is not None and not _CODE.fullmatch(rates.currency):
        yield "currency", f"{rates.currency!r} is no ISO 4217 code: write three capital letters, such as EUR"
        return
    if rates.instance is None:
        for key in ("workers_per_instance", "prices"):
            if getattr(rates, key) is not None:
                yield key, "goes with `instance`, which is not said"
        return
    both = [field for field in _HOURLY if getattr(rates, field) is not None]
    if both:
        yield (
            both[0],
            f"the price of the instance {rates.instance!r} is by the hour already: say one or the other",
        )
    if folder is None:
        return
    try:
        price = _price(rates, folder, environ)
    except UsageError as error:
        yield "instance", str(error)
        return
    if rates.currency is not None and rates.currency != price.currency:
        yield "currency", f"is {rates.currency}, and the price of {price.instance} is in {price.currency}"


def _price(rates: Rates, folder: Path | None, environ: Mapping[str, str]) -> Price:
    from flightlog.analyze.cost.prices import find_price, read_prices

    file = read_settings(environ).prices
    if file is None and rates.prices is not None:
        file = (folder or Path()) / expanded(rates.prices)
    return find_price(read_prices(file), rates.instance or "")


def _workers_here(options: Mapping[str, Any]) -> int:
    """How many workers share this machine: as many as there may be."""
    said = options.get("max_workers")
    if isinstance(said, int):
        return max(1, said)
    from flightlog.engines.local import usable_cpus

    threads = options.get("threads_per_worker")
    return max(1, usable_cpus() // (threads if isinstance(threads, int) and threads > 0 else 1))
