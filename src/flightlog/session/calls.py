"""What is made of a function before it travels: its results kept, its outputs registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from flightlog.record.active import current_run
from flightlog.session.cache_key import CacheOptions


class Around(Struct, frozen=True, kw_only=True):
    """What happens around a call in its worker; falsy where nothing does."""

    folder: str | None = None
    """Where `cacheable` functions keep their results; absolute."""
    cache: CacheOptions | None = None
    """How the call's own result is kept; None for not at all."""
    store: str | None = None
    """Where, if not in `folder`; absolute."""
    outputs: tuple[str, ...] = ()
    """Files to register when it has returned."""

    def __bool__(self) -> bool:
        return bool(self.folder or self.cache or self.outputs)


def call_around(
    around: Around, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """In the worker: make the call, from the cache where its result is there, then register the files it makes.

    Paths of outputs count from the worker's working directory; a file that is missing is registered as such.
    """
    if around.folder is not None or around.cache is not None:
        from flightlog.session.cache import cached_call
        from flightlog.session.cache_store import use_folder

        if around.folder is not None:
            use_folder(around.folder)
    if around.cache is not None:
        cache = None if around.store is None else _cache(around.store)
        result, _ = cached_call(function, args, kwargs, around.cache, cache)
    else:
        result = function(*args, **kwargs)
    run = current_run() if around.outputs else None
    if run is not None:
        for output in around.outputs:
            run.record_artifact(output, kind="output")
    return result


@lru_cache(maxsize=64)
def _cache(folder: str) -> Any:
    from flightlog.session.cache_store import Cache

    return Cache(folder)
