"""What is made of a function before it travels: its results kept, its outputs registered."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from flightlog.engines.execute import awaited
from flightlog.record.context import current_run
from flightlog.record.run import describe_artifact
from flightlog.session.cache.key import CacheOptions, is_cacheable

if TYPE_CHECKING:
    from flightlog.record.run import LiveRun


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
