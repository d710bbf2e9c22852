"""What a component asks of its workers before they run a task of it: variables in their environment, a
script.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.core.settings import expanded
from flightlog.engines.execute import unpickled
from flightlog.session.contents import Component

log = logging.getLogger("flightlog")

_worn: dict[str, str | None] = {}
"""What stood in this worker's environment before the variables of the present component; None for nothing."""
_executed: dict[str, None] = {}
_lock = threading.RLock()


class Preparation(Struct, frozen=True, kw_only=True):
    """What is done in a worker before a task of a component is even unpickled: its modules may need it."""

    component: str
    env: dict[str, str]
    """Values that may be secret: they travel to workers, and are never recorded."""
    script: str | None
    """A Python file, absolute."""
    home: int
    """The session's process: where tasks run in threads of it, its environment is left alone."""

    @classmethod
    def of(cls, name: str, component: Component, folder: Path) -> Preparation:
        """That of a component in a manifest that lies in a folder."""
        script = component.preload_script
        path = None if script is None else str(folder / expanded(script))
        return cls(component=name, env=component.env, script=path, home=os.getpid())


def asks(component: Component) -> bool:
    """Whether a component asks for anything. If one does, tasks of the others get workers without its
    variables.
    """
    return bool(component.env) or component.preload_script is not None


def prepared(preparation: Preparation, call: bytes) -> bytes:
    """A packed call that is made in a worker that was prepared for it."""
    return pickle.dumps((call_prepared, (preparation, call), {}), pickle.HIGHEST_PROTOCOL)


def call_prepared(preparation: Preparation, call: bytes) -> Any:
    """In the worker: prepare it, and make the call.

    The script is executed once in each process; what it raises is raised here, at every call.
    """
    with _lock:
        if os.getpid() == preparation.home:
            _leave_alone(preparation)
        else:
            _wear(preparation.env)
        if preparation.script is not None and preparation.script not in _executed:
            import runpy

            runpy.run_path(preparation.script)
            _executed[preparation.script] = None
    function, args, kwargs = unpickled(call)
    return function(*args, **kwargs)


def _wear(env: dict[str, str]) -> None:
    """Let the environment hold these variables, and none of the component before."""
    for name, before in _worn.items():
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
    _worn.clear()
    for name, value in env.items():
        _worn[name] = os.environ.get(name)
        os.environ[name] = value


def _leave_alone(preparation: Preparation) -> None:
    key = f"env of {preparation.component}"
    if preparation.env and key not in _executed:
        _executed[key] = None
        log.warning(
            "the env of component %s is not set: its tasks run in threads of this program",
            preparation.component,
        )
