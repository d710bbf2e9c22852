"""What every Python inside `flightlog run --device-memory` starts with: it waits for a framework to be imported.

Its folder stands in `PYTHONPATH` there, and Python imports a module of this name by itself. It must work in any
Python, with Flightlog installed or not, and it must not be noticed: nothing is imported before a framework is, and a
`sitecustomize` of the site's own runs as it would have.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

_FRAMEWORKS = frozenset({"torch", "jax", "tensorflow"})


class _Waiting:
    """Asked for each module before it is imported; knows none, and notices the first framework."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 - Python's signature
        if name in _FRAMEWORKS:
            sys.meta_path.remove(self)
            _join()


def _join() -> None:
    """Join the run: that starts the tracking, as the environment asks for it."""
    try:
        from flightlog.record.active import current_run

        current_run()
    except Exception:  # noqa: BLE001, S110 - no Flightlog in this Python, or none that works: it is not recorded
        pass


def _run_the_sites_own() -> None:
    me = sys.modules.pop("sitecustomize", None)
    try:
        import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if me is not None:
            sys.modules.setdefault("sitecustomize", me)  # Python looks for what it has just imported


_folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes longer than all the rest
sys.path[:] = [entry for entry in sys.path if entry != _folder]
if os.environ.get("FLIGHTLOG_RUN") and os.environ.get("FLIGHTLOG_DEVICE_MEMORY"):
    sys.meta_path.insert(0, _Waiting())
_run_the_sites_own()
