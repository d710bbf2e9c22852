"""Pickles for workers that were not started from the program: what it defines itself travels by value, if it
can.
"""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import Any


def dumps(value: Any, cloudpickle: str = "cloudpickle", *, main_is_there: bool = False) -> bytes:
    """The value as plain pickle if that is enough anywhere, else by the module `cloudpickle`: what `__main__`
    defines.

    Where workers can import the main program (`main_is_there`, see `program.with_main`), plain pickle is also
    enough for what cannot travel by value. Raises whatever either pickle does where neither can.
    """
    plain = b""
    try:
        plain = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if b"__main__" not in plain:
            return plain
    except Exception:  # noqa: BLE001 - a lambda, or what else only cloudpickle knows; it raises anew if it does not
        plain = b""
    try:
        made: bytes = import_module(cloudpickle).dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        if not (plain and main_is_there):
            raise
        return plain
    return made
