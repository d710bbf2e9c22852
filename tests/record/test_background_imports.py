"""Modules that are imported in the background: read safely, and as if they had been imported as ever."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from flightlog.record.background_imports import loading


@pytest.fixture
def module_files(tmp_path, monkeypatch) -> Path:
    """A folder on the import path with a package and a module in it."""
    (tmp_path / "loaded_package").mkdir()
    (tmp_path / "loaded_package" / "__init__.py").write_text("from loaded_package.inner import x\n")
    (tmp_path / "loaded_package" / "inner.py").write_text("x = 5\n")
    (tmp_path / "loaded_module.py").write_text("y = 6\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("loaded_")]:
        del sys.modules[name]
    sys.path_importer_cache.pop(str(tmp_path), None)


def opened(deed) -> list[str]:
    """The names of Python files that the import system opened by itself meanwhile."""
    files: list[str] = []
    going = True

    def listen(event, arguments):
        if going and event == "open" and "loaded_" in str(arguments[0]):
            caller = sys._getframe(1).f_code.co_filename
            if not caller.endswith("core/descriptors.py"):
                files.append(Path(str(arguments[0])).name)

    sys.addaudithook(listen)
    try:
        deed()
    finally:
        going = False
    return files


def test_a_package_is_read_by_descriptors_with_an_identity_and_has_the_usual_loader(module_files):
    def load():
        with loading():
            importlib.import_module("loaded_package")

    assert opened(load) == []
    package, inner = sys.modules["loaded_package"], sys.modules["loaded_package.inner"]
    assert (package.x, inner.x) == (5, 5)
    for module in (package, inner):
        assert type(module.__loader__) is type(module.__spec__.loader) is SourceFileLoader
    cached = {path.name.partition(".")[0] for path in module_files.rglob("*.pyc")}
    assert cached == {"__init__", "inner"}  # bytecode is kept for the next process


def test_another_thread_imports_as_ever_meanwhile(module_files):
    def load_elsewhere():
        with loading():
            other = threading.Thread(target=importlib.import_module, args=("loaded_module",))
            other.start()
            other.join()

    assert [name for name in opened(load_elsewhere) if name.endswith(".py")] == ["loaded_module.py"]
    assert sys.modules["loaded_module"].y == 6


def test_afterwards_the_import_system_is_as_it_was(module_files):
    importlib.import_module("loaded_module")
    before = dict(sys.path_importer_cache)
    with loading(), loading():
        assert sys.path_importer_cache[str(module_files)] is not before[str(module_files)]
        importlib.import_module("loaded_package")
    after = dict(sys.path_importer_cache)
    assert {folder: after[folder] for folder in before} == before
    assert {type(finder) for finder in after.values()} <= {type(finder) for finder in before.values()}


def test_a_child_forked_after_all_in_the_middle_imports_as_ever(module_files, monkeypatch):
    monkeypatch.setattr(sys.modules[loading.__module__]._gate, "_waits_s", 0.01)
    importlib.import_module("loaded_module")
    before = sys.path_importer_cache[str(module_files)]
    inside, over = threading.Event(), threading.Event()

    def load():
        with loading():
            inside.set()
            over.wait(60)

    thread = threading.Thread(target=load)
    thread.start()
    assert inside.wait(60)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if sys.path_importer_cache[str(module_files)] is before else 1)
    over.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0
