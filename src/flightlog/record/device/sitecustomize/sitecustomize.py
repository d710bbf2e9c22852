"""What every Python inside `flightlog run --device-memory` starts with: it waits for a framework to be
imported.

Its folder stands in `PYTHONPATH` there, and Python imports a module of this name by itself. It must work in
any Python, however old (so there are no annotations), with Flightlog installed or not, and it must not be
noticed: nothing is imported before a framework is, and a `sitecustomize` of the site's own runs as it would
have.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys
from importlib import import_module

_FRAMEWORKS = frozenset(["torch", "jax", "tensorflow"])
_OLDEST = (3, 11)
"""The first Python that Flightlog can be installed in."""


class _Waiting(object):  # noqa: UP004 - so that it is the same in any Python
    """Asked for each module before it is imported; knows none, and notices the first framework.

    It stays where it is: Python goes through the list of finders meanwhile, and would pass over the one after
    it.
    """

    _waits = True

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - Python's signature
        if self._waits and name in _FRAMEWORKS:
            self._waits = False
            _join()


def _join():
    """Join the run: that starts the tracking, as the environment asks for it."""
    try:
        from flightlog.record.context import current_run

        current_run()
    # No Flightlog in this Python, or none that works: it is not recorded.
    except Exception:  # noqa: BLE001, S110
        pass


def _run_the_sites_own():
    me = sys.modules.pop("sitecustomize", None)
    try:
        import_module("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if me is not None:
            sys.modules.setdefault("sitecustomize", me)  # Python looks for what it has just imported


# Pathlib takes longer than all the rest.
_folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
sys.path[:] = [entry for entry in sys.path if entry != _folder]
_asked = os.environ.get("FLIGHTLOG_RUN") and os.environ.get("FLIGHTLOG_DEVICE_MEMORY")
if _asked and sys.version_info >= _OLDEST:
    sys.meta_path.insert(0, _Waiting())
_run_the_sites_own()
