"""Beside a Dask worker, in its nanny: tells what the worker's process died of, which only its parent
knows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from distributed.diagnostics.plugin import NannyPlugin

from flightlog.engines.dask import messages as m
from flightlog.engines.dask.scheduler_plugin import topics
from flightlog.engines.death import OomKills, describe_death

log = logging.getLogger("flightlog")

_UNKNOWN = 255
"""What Dask has for the exit code of a process that somebody else has waited for."""


class NannyWatch(NannyPlugin):
    """Listens for the end of the worker's process: exit code or signal, and what the kernel says of
    memory.
    """

    restart = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._nanny: Any = None
        self._oom: OomKills | None = None
        self._stopped = False
        self._wrapped: list[tuple[Any, str, Any, Any]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return NannyWatch, (self.name,)

    def setup(self, nanny: Any) -> None:
        """Listen, to the process there is and to those that follow it."""
        self._nanny, self._oom = nanny, OomKills()
        self._wrap(nanny, "_on_worker_exit_sync")  # for processes that follow
        if nanny.process is not None:
            self._wrap(nanny.process, "on_exit")

    def teardown(self, nanny: Any) -> None:  # noqa: ARG002 - Dask's interface
        """Listen no more; what others have wrapped since passes everything on."""
        self._stopped = True
        for owner, name, ours, before in self._wrapped:
            if getattr(owner, name) is ours:
                setattr(owner, name, before)
        self._wrapped = []

    def _wrap(self, owner: Any, name: str) -> None:
        before = getattr(owner, name)
        ours = self._heard(before)
        setattr(owner, name, ours)
        self._wrapped.append((owner, name, ours, before))

    def _heard(self, then: Callable[[int], None] | None) -> Callable[[int], None]:
        def on_exit(exit_code: int) -> None:
            try:
                if not self._stopped:
                    self._report(exit_code)
            except Exception:
                log.debug("the end of a worker could not be told", exc_info=True)
            if then is not None:
                then(exit_code)

        return on_exit

    def _report(self, exit_code: int) -> None:
        nanny = self._nanny
        assert self._oom is not None
        address = nanny.process.worker_address if nanny.process is not None else None
        if address is None:
            return
        death = describe_death(None if exit_code == _UNKNOWN else exit_code, self._oom)
        message = [m.DEATH, time.time(), address, death.reason, death.exit_code, death.signal]
        nanny.log_event(topics(self.name)[0], m.encode([message]))
