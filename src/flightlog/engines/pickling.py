"""Pickles for workers that do not import the program: what it defines itself travels by value, where that is possible."""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import Any


def dumps(value: Any) -> bytes:
    """The value as plain pickle if that is enough anywhere, else by cloudpickle: functions and classes of `__main__`.

    Whatever either raises where it cannot be pickled at all.
    """
    try:
        plain = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if b"__main__" not in plain:
            return plain
    except Exception:  # noqa: BLE001 - a lambda, or what else only cloudpickle knows; it raises anew if it does not
        plain = b""
    made: bytes = import_module("cloudpickle").dumps(
        value, pickle.HIGHEST_PROTOCOL
    )  # Dask and Ray bring it along
    return made
