"""What is made of a call before it travels: its worker prepared, its results kept, its outputs registered."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from flightlog.engines.execute import awaited
from flightlog.record.context import current_run
from flightlog.record.run import describe_artifact
from flightlog.session.cache.key import CacheOptions, is_cacheable
from flightlog.session.futures import unpack

if TYPE_CHECKING:
    from flightlog.record.run import LiveRun


log = logging.getLogger("flightlog")

_replaced: dict[str, str | None] = {}
"""What stood in this worker's environment before the variables of the present component; None for nothing."""
_executed: dict[str, None] = {}
_lock = threading.RLock()


class Output(NamedTuple):
    """A file that a task makes."""

    path: str
    """Where; may hold what came from variables, and is not to be stored then."""
    written: str | None = None
    """The text with its variables, which is what is stored; None where it has none."""


class Around(Struct, frozen=True, kw_only=True):
    """What happens around a call in its worker; falsy where nothing does."""

    folder: str | None = None
    """Where `cacheable` functions keep their results; absolute."""
    home: int = 0
    """The session's process: where tasks run in threads of it, the folder is no business of the rest of the
    program."""
    cache: CacheOptions | None = None
    """How the call's own result is kept; None where nobody said."""
    own_cache: CacheOptions | None = None
    """What holds in place of the options of a function that is `cacheable` itself; other functions do
    without."""
    store: str | None = None
    """Where, if not in `folder`; absolute."""
    outputs: tuple[Output, ...] = ()
    """Files to register when it has returned."""

    def __bool__(self) -> bool:
        return bool(self.folder or self.cache or self.own_cache or self.outputs)


def call_around(
    around: Around, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """In the worker: make the call, from the cache where its result is there, then register the files it
    makes.

    Paths of outputs count from the worker's working directory; a file that is missing is registered as such.
    """
    options = around.cache
    if options is None and around.own_cache is not None and is_cacheable(function):
        options = around.own_cache
    if around.folder is not None:
        from flightlog.session.cache.store import use_folder

        use_folder(around.folder, here=os.getpid() == around.home)
    if options is not None:
        from flightlog.session.cache.decorator import cached_await, cached_call, opened_cache

        cache = None if around.store is None else opened_cache(around.store)
        look_up = cached_await if iscoroutinefunction(function) else cached_call
        result, _ = awaited(look_up(function, args, kwargs, options, cache))
    else:
        result = awaited(function(*args, **kwargs))
    run = current_run() if around.outputs else None
    if run is not None:
        for output in around.outputs:
            if output.written is None:
                run.record_artifact(output.path, kind="output")
            else:
                _record_as_written(run, output.path, output.written)
    return result


def _record_as_written(run: LiveRun, path: str, written: str) -> None:
    """Register an output under the text the manifest has for it: what its variables hold may be secret."""
    try:
        artifact = describe_artifact(path, "output", None)
        if artifact.error is not None:
            artifact.error = artifact.error.replace(artifact.uri, written)
        artifact.name = artifact.uri = written
        artifact.span_id = run._here()
        run.emit(artifact)
    except Exception:  # noqa: BLE001 - nothing on the recording path reaches the user's code
        run.recorder.count("events_failed")
        run.recorder.trouble("artifact", f"the output {written} could not be recorded")


class Preparation(Struct, frozen=True, kw_only=True):
    """What is done in a worker before a task of a component is even unpickled: its modules may need it."""

    component: str
    env: dict[str, str]
    """Values that may be secret: they travel to workers, and are never recorded."""
    script: str | None
    """A Python file, absolute."""
    home: int
    """The session's process: where tasks run in threads of it, its environment is left alone."""


def as_sent(
    call: bytes, preparation: Preparation | None, results: Mapping[str, bytes] | None = None
) -> bytes:
    """A packed call as it travels: with the results it needs, to be made in a worker that was prepared for
    it.
    """
    if preparation is None and not results:
        return call
    return pickle.dumps((call_sent, (call, preparation, results or {}), {}), pickle.HIGHEST_PROTOCOL)


def call_sent(call: bytes, preparation: Preparation | None, results: Mapping[str, bytes]) -> Any:
    """In the worker: prepare it, and make the call."""
    if preparation is not None:
        _prepare(preparation)
    function, args, kwargs = unpack(call, results)
    return function(*args, **kwargs)


def _prepare(preparation: Preparation) -> None:
    """The script is executed once in each process; what it raises is raised here, at every call."""
    with _lock:
        if os.getpid() == preparation.home:
            _leave_alone(preparation)
        else:
            _set_variables(preparation.env)
        if preparation.script is not None and preparation.script not in _executed:
            import runpy

            runpy.run_path(preparation.script)
            _executed[preparation.script] = None


def _set_variables(env: dict[str, str]) -> None:
    """Let the environment hold these variables, and none of the component before."""
    for name, before in _replaced.items():
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
    _replaced.clear()
    for name, value in env.items():
        _replaced[name] = os.environ.get(name)
        os.environ[name] = value


def _leave_alone(preparation: Preparation) -> None:
    key = f"env of {preparation.component}"
    if preparation.env and key not in _executed:
        _executed[key] = None
        log.warning(
            "the env of component %s is not set: its tasks run in threads of this program",
            preparation.component,
        )
