"""What `help()` prints of the package tells nothing of whoever asks."""

from __future__ import annotations

import inspect
import os
import pydoc
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import flightlog

MARK = "mark-of-a-private-value-4711"


def _modules() -> Iterator[ModuleType]:
    for found in walk_packages(flightlog.__path__, "flightlog."):
        if "sitecustomize" not in found.name and not found.name.endswith("__main__"):
            with suppress(ImportError):  # an extra that is not installed here
                yield import_module(found.name)


def _defaults(of: ModuleType) -> Iterator[tuple[str, str, Any]]:
    for name, one in vars(of).items():
        functions = (
            vars(one).items() if inspect.isclass(one) and one.__module__ == of.__name__ else [(name, one)]
        )
        for inner, found in functions:
            function = getattr(found, "__func__", found)
            if inspect.isfunction(function) and function.__module__ == of.__name__:
                for parameter in inspect.signature(function).parameters.values():
                    yield f"{of.__name__}.{name}.{inner}", parameter.name, parameter.default


def test_no_default_argument_holds_the_environment(monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_TEST_MARK", MARK)
    held = [
        (where, argument)
        for module in _modules()
        for where, argument, default in _defaults(module)
        if default is os.environ or (isinstance(default, Mapping) and MARK in default.values())
    ]
    assert held == []


def test_help_on_a_session_shows_no_variable_of_the_environment():
    script = "import flightlog, pydoc; print(pydoc.render_doc(flightlog.Session))"
    shown = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "MY_DATABASE_PASSWORD": MARK},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "class Session" in pydoc.plain(shown)
    assert (MARK in shown, "MY_DATABASE_PASSWORD" in shown) == (False, False)
