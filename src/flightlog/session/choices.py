"""How a task is run: what was said at its submission, else what the manifest says of its name."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.settings import cache_folder, expanded
from flightlog.session.cache_key import CacheOptions
from flightlog.session.calls import Around, Output
from flightlog.session.contents import Cache, Component, Contents
from flightlog.session.contents import Task as TaskEntry
from flightlog.session.preparation import Preparation, asks

_NOTHING = TaskEntry()
_NO_COMPONENT = Component()


class Wish(NamedTuple):
    """What was said at the submission of a task; None is "not said", and left to the manifest."""

    task: str | None = None
    component: str | None = None
    tag: str | None = None
    """Another name for `component`, or one of its tags."""
    key: str | None = None
    retries: int | None = None
    timeout: float | None = None


class Choices(Struct, frozen=True, kw_only=True):
    """How a task is run, decided."""

    component: str | None
    retries: int
    timeout_s: float | None
    around: Around
    preparation: Preparation | None


class Rules(Struct, frozen=True, kw_only=True):
    """What a manifest says of tasks. Folders in it count from its own; `folder` is that."""

    tasks: Mapping[str, TaskEntry] = {}
    written: Mapping[str, TaskEntry] = {}
    """The tasks with their variables unexpanded: what is stored of them."""
    components: Mapping[str, Component] = {}
    folder: Path = Path()
    local_cache: str | None = None

    @classmethod
    def of(
        cls,
        contents: Contents,
        folder: Path,
        environ: Mapping[str, str] | None = None,
        written: Contents | None = None,
    ) -> Rules:
        """Those of a manifest that lies in a folder. `FLIGHTLOG_CACHE_DIR` comes before its `local_cache`.

        `written` is the same manifest with its variables unexpanded: outputs are recorded as they stand
        there. Without it they are recorded as they stand in `contents`.
        """
        environ = os.environ if environ is None else environ
        return cls(
            tasks=contents.tasks,
            written={} if written is None else written.tasks,
            components=contents.components,
            folder=folder,
            local_cache=local_cache(contents, folder, environ),
        )

    def choose(self, task: str, wish: Wish = Wish()) -> Choices:  # noqa: B008 - nothing can change it
        """What holds for a task of this name; whatever was said of it wins. A `UsageError` says what makes no
        sense.
        """
        _, component, tag, _, retries, timeout_s = wish
        entry = self.tasks.get(task, _NOTHING)
        if component is not None and tag is not None and component != self._tagged(tag):
            raise UsageError(f"component={component!r} and tag={tag!r} are two names of one thing: give one")
        chosen = component or self._tagged(tag) or entry.component
        if chosen is not None and chosen not in self.components:
            raise UsageError(_unknown(chosen, self.components))
        if retries is not None and not (isinstance(retries, Integral) and retries >= 0):
            raise UsageError(f"retries={retries!r} is no number of further attempts: give 0 or more")
        if timeout_s is not None and not (isinstance(timeout_s, Real) and timeout_s > 0):
            raise UsageError(f"timeout={timeout_s!r} is no time to run in: give seconds, or None")
        return Choices(
            component=chosen,
            retries=int(retries) if retries is not None else entry.retries or 0,
            timeout_s=float(timeout_s) if timeout_s is not None else entry.timeout_s,
            around=self._around(task, entry),
            preparation=self._preparation(chosen),
        )

    def _preparation(self, component: str | None) -> Preparation | None:
        if not any(map(asks, self.components.values())):
            return None
        return Preparation.of(
            component or "", self.components.get(component or "", _NO_COMPONENT), self.folder
        )

    def _tagged(self, tag: str | None) -> str | None:
        """The component of this name, or else the one that has it among its tags."""
        if tag is None or tag in self.components:
            return tag
        found = [name for name, component in self.components.items() if tag in component.tags]
        if len(found) > 1:
            raise UsageError(
                f"tag={tag!r} is that of several components, {', '.join(found)}: give one of their names"
            )
        return found[0] if found else tag

    def _around(self, task: str, entry: TaskEntry) -> Around:
        how = Cache() if entry.cache is True else entry.cache or None
        off = f"the manifest says `cache: false` of {task}" if entry.cache is False else None
        return Around(
            folder=self.local_cache,
            home=os.getpid(),
            cache=None
            if how is None
            else CacheOptions(version=how.version, ignore=how.ignore, ttl_s=how.ttl_s),
            own_cache=None if off is None else CacheOptions(bypass=off),
            store=None if how is None or how.store is None else _absolute(how.store, self.folder),
            outputs=self._outputs(task, entry),
        )

    def _outputs(self, task: str, entry: TaskEntry) -> tuple[Output, ...]:
        written = self.written.get(task, entry).outputs
        return tuple(
            Output(path, text if text != path else None)
            for path, text in zip(entry.outputs, written, strict=True)
        )


def local_cache(contents: Contents, folder: Path, environ: Mapping[str, str] | None = None) -> str | None:
    """Where `cacheable` functions keep their results by the environment, else by a manifest in a folder;
    absolute.

    None where neither says.
    """
    environ = os.environ if environ is None else environ
    chosen = cache_folder(environ)
    if chosen is not None:
        return str(chosen.absolute())
    cache = contents.project.local_cache
    return None if cache is None else _absolute(cache, folder)


def _absolute(path: str, folder: Path) -> str:
    return str(folder / expanded(path))


def _unknown(name: str, known: Collection[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"the manifest has no component {name!r} (it has {', '.join(sorted(known)) or 'none'}).{hint}"
