"""How a task is run: what was said at its submission, else what the manifest says of its name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.plugins import did_you_mean
from flightlog.core.settings import cache_folder, expanded
from flightlog.session.cache.key import CacheOptions
from flightlog.session.call_wrapper import Around, Output, Preparation
from flightlog.session.schema import Cache, Component, Contents
from flightlog.session.schema import Task as TaskEntry

_NOTHING = TaskEntry()
_NO_COMPONENT = Component()


class TaskRequest(NamedTuple):
    """What was said at the submission of a task; None is "not said", and left to the manifest."""

    task: str | None = None
    component: str | None = None
    tag: str | None = None
    """Another name for `component`, or one of its tags."""
    retries: int | None = None
    timeout: float | None = None


class TaskOptions(Struct, frozen=True, kw_only=True):
    """How tasks of one name are run, decided."""

    task: str
    component: str | None
    retries: int
    timeout_s: float | None
    around: Around
    preparation: Preparation | None


class TaskDefaults:
    """What a manifest says of tasks."""

    def __init__(
        self, contents: Contents, folder: Path, environ: Mapping[str, str], written: Contents | None = None
    ) -> None:
        """The manifest lies in this folder, from which those that it names count. `FLIGHTLOG_CACHE_DIR` comes
        before its `local_cache`.

        `written` is the same manifest with its variables unexpanded: outputs are recorded as they stand
        there. Without it they are recorded as they stand in `contents`.
        """
        self._contents, self._written, self._folder = contents, written or contents, folder
        self._cache_folder = local_cache(contents, folder, environ)
        self._is_prepared = any(one.env or one.preload_script for one in contents.components.values())

    # Nothing can change the default.
    def choose(self, task: str, request: TaskRequest = TaskRequest()) -> TaskOptions:  # noqa: B008
        """What holds for a task of this name; whatever was said of it wins. A `UsageError` says what makes no
        sense.
        """
        _, component, tag, retries, timeout_s = request
        components, entry = self._contents.components, self._contents.tasks.get(task, _NOTHING)
        if component is not None and tag is not None and component != self._tagged(tag):
            raise UsageError(f"component={component!r} and tag={tag!r} are two names of one thing: give one")
        chosen = component or self._tagged(tag) or entry.component
        if chosen is not None and chosen not in components:
            known, hint = ", ".join(sorted(components)) or "none", did_you_mean(chosen, components)
            raise UsageError(f"the manifest has no component {chosen!r} (it has {known}).{hint}")
        if retries is not None and not (isinstance(retries, Integral) and retries >= 0):
            raise UsageError(f"retries={retries!r} is no number of further attempts: give 0 or more")
        if timeout_s is not None and not (isinstance(timeout_s, Real) and timeout_s > 0):
            raise UsageError(f"timeout={timeout_s!r} is no time to run in: give seconds, or None")
        return TaskOptions(
            task=task,
            component=chosen,
            retries=int(retries) if retries is not None else entry.retries or 0,
            timeout_s=float(timeout_s) if timeout_s is not None else entry.timeout_s,
            around=self._around(task, entry),
            preparation=self._preparation(chosen or ""),
        )

    def _preparation(self, name: str) -> Preparation | None:
        """If one component needs workers that are prepared, tasks of the others get workers without its
        variables.
        """
        if not self._is_prepared:
            return None
        component = self._contents.components.get(name, _NO_COMPONENT)
        script = component.preload_script
        path = None if script is None else _absolute(script, self._folder)
        return Preparation(component=name, env=component.env, script=path, home=os.getpid())

    def _tagged(self, tag: str | None) -> str | None:
        """The component of this name, or else the one that has it among its tags."""
        components = self._contents.components
        if tag is None or tag in components:
            return tag
        found = [name for name, component in components.items() if tag in component.tags]
        if len(found) > 1:
            raise UsageError(
                f"tag={tag!r} is that of several components, {', '.join(found)}: give one of their names"
            )
        return found[0] if found else tag

    def _around(self, task: str, entry: TaskEntry) -> Around:
        how = Cache() if entry.cache is True else entry.cache or None
        written = self._written.tasks.get(task, entry)
        off = f"the manifest says `cache: false` of {task}" if entry.cache is False else None
        return Around(
            folder=self._cache_folder,
            home=os.getpid(),
            cache=None
            if how is None
            else CacheOptions(version=how.version, ignore=how.ignore, ttl_s=how.ttl_s),
            own_cache=None if off is None else CacheOptions(bypass=off),
            store=None if how is None or how.store is None else _absolute(how.store, self._folder),
            outputs=tuple(
                Output(path, text if text != path else None)
                for path, text in zip(entry.outputs, written.outputs, strict=True)
            ),
        )


def local_cache(contents: Contents, folder: Path, environ: Mapping[str, str]) -> str | None:
    """Where `cacheable` functions keep their results by the environment, else by a manifest in a folder;
    absolute.

    None where neither says.
    """
    chosen = cache_folder(environ)
    if chosen is not None:
        return str(chosen.absolute())
    cache = contents.project.local_cache
    return None if cache is None else _absolute(cache, folder)


def _absolute(path: str, folder: Path) -> str:
    return str(folder / expanded(path))
