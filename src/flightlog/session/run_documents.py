"""What a run keeps of the manifest it was made from: the text without its secrets, the plan, the lock, what
was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flightlog.core import threads
from flightlog.core.settings import read_settings
from flightlog.events import ResourceRequest
from flightlog.record.background import save_run
from flightlog.record.environment import Environment, read_environment
from flightlog.record.run import LiveRun
from flightlog.session.history import History, read_history
from flightlog.session.lock import make_lock
from flightlog.session.manifest import Manifest
from flightlog.session.plan import make_plan, plan_bytes
from flightlog.session.schema import Component, Contents
from flightlog.session.secrets import without_secrets
from flightlog.store import layout
from flightlog.store.documents import replace_bytes, write_document

TASKS_OF_A_RUN = 2000
"""How many tasks of each earlier run the plan of a new one looks at: a session has other things to do."""


class Papers:
    """The documents of a session in its run directory. Nothing here raises: what cannot be written is said
    once.
    """

    def __init__(
        self, run: LiveRun, manifest: Manifest, target: str, contents: Contents, environ: Mapping[str, str]
    ) -> None:
        """Write the manifest and the plan now; what takes its time follows at once, on a thread.

        That is the plan with what history suggests, for which earlier runs are read, and the lock, for which
        git is asked.
        """
        self._run, self._manifest, self._contents = run, manifest, contents
        self._target, self._environ = target, environ
        self._environment: Environment | None = None
        self._guarded("manifest", self._write_manifest)
        self._guarded("plan", lambda: self._write_plan(None))
        if run.info.pid == os.getpid():
            run.info.manifest_hash = manifest.sha256
            save_run(run)
        requests = list(_requests(contents))
        if requests:
            run.emit(*requests)
        self._thread = threads.Thread(target=self._follow, name="flightlog-papers")
        self._thread.start()

    def _write_manifest(self) -> None:
        """Keep the text; its hash, by which runs are compared, is always that of the text as written."""
        as_written = read_settings(self._environ).manifest_as_written
        text = self._manifest.source if as_written else without_secrets(self._manifest.source)
        replace_bytes(self._run.path / layout.MANIFEST, text.encode())

    def finish(self, functions: Iterable[Callable[..., Any]]) -> None:
        """Write the lock again, with the functions that were run."""
        self._thread.join()
        self._guarded("lock", lambda: self._write_lock(functions))

    def _follow(self) -> None:
        self._guarded("lock", lambda: self._write_lock(()))
        self._guarded("plan", self._add_history)

    def _add_history(self) -> None:
        history = read_history(self._run.path.parent, self._contents.project.name, tasks=TASKS_OF_A_RUN)
        if history is not None:
            self._write_plan(history)

    def _write_plan(self, history: History | None) -> None:
        plan = make_plan(self._manifest, self._target, self._environ, history)
        replace_bytes(self._run.path / layout.PLAN, plan_bytes(plan))

    def _write_lock(self, functions: Iterable[Callable[..., Any]]) -> None:
        if self._environment is None:
            self._environment = read_environment(cwd=self._manifest.path.parent)
        lock = make_lock(self._manifest, functions, self._environment, contents=self._contents)
        write_document(self._run.path / layout.LOCK, lock)

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the session runs without its papers, too
            self._run.recorder.trouble(what, f"the {what} could not be written into the run: {error!r}")


def _requests(contents: Contents) -> Iterable[ResourceRequest]:
    """What each component asks for, and each task that the manifest gives a component."""
    for name, component in contents.components.items():
        yield _request(None, name, component)
    for task, entry in contents.tasks.items():
        if entry.component is not None:
            yield _request(task, entry.component, contents.components[entry.component])


def _request(task: str | None, name: str, component: Component) -> ResourceRequest:
    return ResourceRequest(
        task=task,
        component=name,
        cpus=component.cpus,
        memory_bytes=component.memory_bytes,
        gpus=component.gpus,
        walltime_s=component.walltime_s,
    )
