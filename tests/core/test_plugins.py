"""Plugins are found by entry points, in one order, and a broken one costs nobody else anything."""

from __future__ import annotations

import sys

import pytest

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.core.plugins import load, load_all, plugin_points

GROUP = "flightlog.tests"


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Installs a distribution that offers plugins: their names and addresses, or `name = address [extra]`."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(distribution: str, module: str, **points: str) -> None:
        (tmp_path / f"{distribution}.py").write_text(module)
        info = tmp_path / f"{distribution}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
        lines = [f"{name} = {address}" for name, address in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))

    yield install
    for name in ("alpha", "beta"):
        sys.modules.pop(name, None)


def test_all_are_loaded_and_those_that_cannot_be_are_named(offer):
    offer("alpha", "good, odd = 1, 'text'", good="alpha:good", odd="alpha:odd", gone="alpha:gone")
    offer("beta", "raise RuntimeError('no licence')", broken="beta:thing")
    found = load_all(GROUP, lambda plugin: None if isinstance(plugin, int) else "is no number")
    assert found.found == {"good": 1}
    assert found.failed == {
        "broken": "beta:thing: RuntimeError: no licence",
        "gone": "alpha:gone: AttributeError: module 'alpha' has no attribute 'gone'",
        "odd": "alpha:odd: is no number",
    }


def test_a_foreign_plugin_takes_the_place_of_our_own_and_the_first_of_two_foreign_ones_wins(offer):
    offer("alpha", "", same="flightlog.core.retry:delay_s", other="alpha:b")
    offer("beta", "", same="beta:thing", other="beta:a")
    assert {name: point.value for name, point in plugin_points(GROUP).items()} == {
        "other": "alpha:b",
        "same": "beta:thing",
    }


def test_one_that_is_asked_for_is_loaded_or_the_error_says_what_to_do(offer):
    offer("alpha", "thing = 1", thing="alpha:thing", needy="missing_library:thing [extra]", gone="alpha:gone")
    assert load(GROUP, "thing", "exporter") == 1
    with pytest.raises(
        UsageError,
        match=r"there is no exporter 'thin'. Did you mean 'thing'\? Installed are gone, needy, thing.",
    ):
        load(GROUP, "thin", "exporter")
    with pytest.raises(MissingExtra, match=r"pip install 'alpha\[extra\]'"):
        load(GROUP, "needy", "exporter")
    with pytest.raises(UsageError, match="the exporter 'gone' leads nowhere: there is no alpha:gone"):
        load(GROUP, "gone", "exporter")
