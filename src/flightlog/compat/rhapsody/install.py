"""Make `rhapsody` a name of this package: `import flightlog.compat.rhapsody.install`.

For libraries that import `rhapsody` themselves. From then on every import of `rhapsody` or a module of it in
this process, and in those it forks, gives the module of `flightlog.compat.rhapsody` itself, so that classes
are the same under both names and pickles work. It comes first where the real one is installed too. Where that
has been imported already, importing this module is a `UsageError` and changes nothing: two kinds of sessions
and tasks would meet.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from flightlog.core.errors import UsageError

_NAME, _HERE = "rhapsody", __package__
_ELSEWHERE = {
    "logger": "",
    "telemetry.interfaces": "telemetry",
    "telemetry.interfaces.reader": "telemetry.manager",
    "telemetry.interfaces.subscriber": "telemetry.manager",
}
"""Modules of RHAPSODY's whose names are in another one here."""


class AliasFinder(MetaPathFinder):
    """Finds `rhapsody` and its modules, as far as this package has them."""

    # As the import system calls it.
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Where a module of this name is; None for others."""
        name, _, below = fullname.partition(".")
        if name != _NAME:
            return None
        here = f"{_HERE}.{_ELSEWHERE.get(below, below)}".rstrip(".")
        found = find_spec(here)
        return found and ModuleSpec(fullname, _AliasLoader(here), origin=found.origin)


class _AliasLoader(Loader):
    """Loads a module that exists under another name, and leaves it as it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        del spec
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it was executed under its own name. Importing it again has changed whose it says it is."""
        module.__spec__ = self._spec


def install() -> None:
    """Make `rhapsody` a name of this package; nothing where it is one already."""
    if any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        return
    if _NAME in sys.modules:
        found = getattr(sys.modules[_NAME], "__file__", None)  # a None there is no module
        why = f"has been imported already, from {found}" if found else "has an entry in sys.modules already"
        raise UsageError(f"{_NAME} {why}: import {__name__} before anything that imports {_NAME}")
    sys.meta_path.insert(0, AliasFinder())


install()
