"""How a task is run: what was said at its submission, else what the manifest says of its name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.errors import UsageError
from flightlog.session.cache_key import CacheOptions
from flightlog.session.calls import Around
from flightlog.session.contents import Cache, Contents
from flightlog.session.contents import Task as TaskEntry

_NOTHING = TaskEntry()


class Choices(Struct, frozen=True, kw_only=True):
    """How a task is run, decided."""

    component: str | None
    retries: int
    timeout_s: float | None
    around: Around


class Rules(Struct, frozen=True, kw_only=True):
    """What a manifest says of tasks. Folders in it count from its own; `folder` is that."""

    tasks: Mapping[str, TaskEntry] = {}
    components: Collection[str] = ()
    folder: Path = Path()
    local_cache: str | None = None

    @classmethod
    def of(cls, contents: Contents, folder: Path) -> Rules:
        """Those of a manifest that lies in a folder."""
        cache = contents.project.local_cache
        return cls(
            tasks=contents.tasks,
            components=contents.components,
            folder=folder,
            local_cache=None if cache is None else _absolute(cache, folder),
        )

    def choose(
        self,
        task: str,
        *,
        component: str | None = None,
        tag: str | None = None,
        retries: int | None = None,
        timeout_s: float | None = None,
    ) -> Choices:
        """What holds for a task of this name; whatever is given here wins. A `UsageError` says what makes no sense."""
        entry = self.tasks.get(task, _NOTHING)
        if component is not None and tag is not None and component != tag:
            raise UsageError(f"component={component!r} and tag={tag!r} are two names of one thing: give one")
        chosen = component or tag or entry.component
        if chosen is not None and chosen not in self.components:
            raise UsageError(_unknown(chosen, self.components))
        if retries is not None and retries < 0:
            raise UsageError(f"retries={retries} is less than 0")
        if timeout_s is not None and not timeout_s > 0:
            raise UsageError(f"timeout={timeout_s} is no time to run in: give seconds, or None")
        return Choices(
            component=chosen,
            retries=retries if retries is not None else entry.retries or 0,
            timeout_s=timeout_s if timeout_s is not None else entry.timeout_s,
            around=self._around(entry),
        )

    def _around(self, entry: TaskEntry) -> Around:
        how = entry.cache if isinstance(entry.cache, Cache) else Cache() if entry.cache else None
        if how is None:
            return Around(folder=self.local_cache, outputs=entry.outputs)
        return Around(
            folder=self.local_cache,
            cache=CacheOptions(version=how.version, ignore=how.ignore, ttl_s=how.ttl_s),
            store=None if how.store is None else _absolute(how.store, self.folder),
            outputs=entry.outputs,
        )


def _absolute(path: str, folder: Path) -> str:
    return str(folder / Path(path).expanduser())


def _unknown(name: str, known: Collection[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"the manifest has no component {name!r} (it has {', '.join(sorted(known)) or 'none'}).{hint}"
