"""Imports in the background, while the program runs.

The import system opens a file, reads it and closes it, all by a bare number. Where another thread of the
program's closes that number in the same moment, and gets it for a file of its own, the import would read and
close that file. So inside `loading()` the calling thread reads modules by descriptors with an identity.
Imports of other threads go on as ever.

Shared libraries are opened by the dynamic loader, during which no other Python thread runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from flightlog.core import threads
from flightlog.core.descriptors import folder_names, get_ready, read_bytes
from flightlog.core.threads import ForkGate
from flightlog.store.documents import replace_bytes

_gate = ForkGate(waits_s=2.0)
_lock = threads.RLock()
_inside: list[int] = []
"""Threads that import inside `loading()`."""
_finders: dict[str, FileFinder] = {}
"""The import system's own finders, by folder, while others stand in for them."""


@contextmanager
def loading() -> Iterator[None]:
    """Around what imports modules in the background.

    No fork happens meanwhile: a child that is forked in the middle of an import could never import that
    module by itself.
    """
    thread = threads.get_ident()
    with _gate():
        with _lock:
            if not _inside:
                get_ready()
                for folder in [*sys.path_importer_cache, *sys.path]:
                    _stand_in(folder)
            _inside.append(thread)
        try:
            yield
        finally:
            with _lock:
                _inside.remove(thread)
                if not _inside:
                    _put_back()


class _SafeFinder(FileFinder):
    """Stands in for a finder, with all its state, and gives another loader to threads inside `loading()`."""

    def __init__(self, finder: FileFinder) -> None:
        self.__dict__ = finder.__dict__

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        found = super().find_spec(fullname, target)
        if found is not None and type(found.loader) is SourceFileLoader and threads.get_ident() in _inside:
            found.loader = _SafeLoader(found.loader.name, found.loader.path)
            with _lock:
                for folder in found.submodule_search_locations or ():
                    _stand_in(folder)
        return found

    def _fill_cache(self) -> None:
        if sys.platform != "linux" or threads.get_ident() not in _inside:
            super()._fill_cache()  # type: ignore[misc]
            return
        try:
            self._path_cache = set(folder_names(self.path or "."))
        except (FileNotFoundError, NotADirectoryError, PermissionError):  # as the import system
            self._path_cache = set()


class _SafeLoader(SourceFileLoader):
    """Reads and writes by descriptors with an identity. The loaded module has an ordinary loader."""

    def get_data(self, path: str) -> bytes:
        return read_bytes(path)

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        with suppress(OSError):  # as the import system does: bytecode is written where it can be
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            replace_bytes(Path(path), data)

    def exec_module(self, module: ModuleType) -> None:
        usual = SourceFileLoader(self.name, self.path)
        try:
            super().exec_module(module)
        finally:
            module.__loader__ = usual
            if module.__spec__ is not None:
                module.__spec__.loader = usual


def _stand_in(folder: object) -> None:
    """Have the modules of a folder found by a finder of ours."""
    # Which the import system skips, or takes for the working directory.
    if not isinstance(folder, str) or not folder:
        return
    finder = sys.path_importer_cache.get(folder)
    if finder is None and folder not in sys.path_importer_cache:
        for make in sys.path_hooks:
            with suppress(Exception):  # a hook of the program's may raise anything
                finder = make(folder)
                break
    if type(finder) is FileFinder:
        _finders[folder] = finder
        sys.path_importer_cache[folder] = _SafeFinder(finder)


def _put_back() -> None:
    for folder, finder in _finders.items():
        if isinstance(sys.path_importer_cache.get(folder), _SafeFinder):
            sys.path_importer_cache[folder] = finder
    _finders.clear()


def _after_fork() -> None:
    global _lock
    _lock = threads.RLock()  # a thread that is not in the child may have held it
    _inside.clear()
    _put_back()


os.register_at_fork(after_in_child=_after_fork)
