"""What the program defines travels by value, and plainly only where workers can import it."""

from __future__ import annotations

import pickle
import threading
from operator import add

import pytest

from flightlog.engines.program import dumps


class OfMain:
    """Pickled by name as `__main__.OfMain`."""


OfMain.__module__ = "__main__"


@pytest.fixture
def held_by_main(monkeypatch: pytest.MonkeyPatch) -> OfMain:
    """An instance of a class that plain pickle finds in `__main__`, and that holds a lock cloudpickle cannot
    take along."""
    import __main__

    OfMain.lock = threading.Lock()  # type: ignore[attr-defined]
    monkeypatch.setattr(__main__, "OfMain", OfMain, raising=False)
    return OfMain()


def test_what_can_be_imported_anywhere_is_pickled_plainly():
    assert dumps((add, (1, 2), {})) == pickle.dumps((add, (1, 2), {}), pickle.HIGHEST_PROTOCOL)


def test_a_lambda_travels_by_value():
    assert pickle.loads(dumps(lambda: 42))() == 42


def test_what_main_defines_and_cannot_travel_is_named_where_workers_can_import_main(held_by_main: OfMain):
    assert dumps(held_by_main, main_is_there=True) == pickle.dumps(held_by_main, pickle.HIGHEST_PROTOCOL)


def test_what_main_defines_and_cannot_travel_is_an_error_where_workers_cannot_import_main(
    held_by_main: OfMain,
):
    with pytest.raises(TypeError, match="lock"):
        dumps(held_by_main)


def test_what_nothing_can_pickle_is_an_error_either_way():
    for main_is_there in (False, True):
        with pytest.raises(TypeError, match="lock"):
            dumps(threading.Lock(), main_is_there=main_is_there)
