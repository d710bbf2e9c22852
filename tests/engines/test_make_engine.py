"""Engines come through one door: entry points, with words for what is wrong."""

from __future__ import annotations

import pytest

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.engines import make_engine
from flightlog.engines.local import LocalEngine


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Install a distribution that offers engines, as far as importlib can see."""

    def install(name: str, points: str) -> None:
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[flightlog.engines]\n{points}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


def test_the_local_engine_comes_through_the_same_door_as_others():
    assert isinstance(make_engine("local", {"max_workers": 2, "processes": None}), LocalEngine)


def test_an_unknown_provider_is_told_with_the_nearest_name():
    with pytest.raises(UsageError) as caught:
        make_engine("lokal", {})
    assert str(caught.value).startswith("there is no provider 'lokal'. Did you mean 'local'? ")


def test_an_option_the_engine_does_not_take_is_told_with_the_nearest_name():
    with pytest.raises(UsageError) as caught:
        make_engine("local", {"max_worker": 2})
    assert str(caught.value) == (
        "the engine 'local' has no option 'max_worker'. Did you mean 'max_workers'? "
        "It takes max_workers, processes, threads_per_worker, start_method, kill_grace_s."
    )


def test_an_option_that_is_not_declared_for_the_engine_is_told_with_the_nearest_name():
    with pytest.raises(UsageError) as caught:
        make_engine("slurm", {"partiton": "debug"})
    message = (
        "the engine 'slurm' has no option 'partiton'. Did you mean 'partition'? It takes partition, queue,"
    )
    assert str(caught.value).startswith(message)


def test_an_engine_whose_extra_is_missing_says_how_to_install_it(distribution):
    distribution("flightlog", "moon = no_such_module_at_all:Engine")
    with pytest.raises(MissingExtra) as caught:
        make_engine("moon", {})
    assert str(caught.value) == (
        "the provider 'moon' needs what is not installed here (No module named 'no_such_module_at_all'): "
        "pip install 'flightlog[moon]'"
    )


def test_an_engine_of_another_distribution_names_its_own_extras(distribution):
    distribution("lunar", "lunar = no_such_module_at_all:Engine [fuel]\nbare = no_such_module_at_all:Engine")
    with pytest.raises(MissingExtra, match=r"pip install 'lunar\[fuel\]'$"):
        make_engine("lunar", {})
    with pytest.raises(MissingExtra, match=r"pip install 'no_such_module_at_all'$"):
        make_engine("bare", {})


def test_an_entry_point_that_leads_nowhere_is_told(distribution):
    distribution("lunar", "lunar = flightlog.engines.local:NoSuchEngine")
    with pytest.raises(UsageError, match=r"there is no flightlog\.engines\.local:NoSuchEngine"):
        make_engine("lunar", {})


def test_a_factory_may_take_any_option(distribution, tmp_path):
    (tmp_path / "lunar_engine.py").write_text("def make(**options): return options\n")
    distribution("lunar", "lunar = lunar_engine:make")
    assert make_engine("lunar", {"craters": 3}) == {"craters": 3}
