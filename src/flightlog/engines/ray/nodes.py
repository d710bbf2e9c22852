"""The nodes of a Ray cluster, asked for off the engine's thread: a cluster that is gone keeps whoever asks
for a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from flightlog.engines.ray.reach import knock

log = logging.getLogger("flightlog")


class Nodes:
    """Asks Ray which nodes live, one question at a time. `tell` gets the answer, on a thread of its own.

    Ray's head is looked for before Ray is asked; where it is not there, nothing is told, and `missing_s`
    grows.
    """

    def __init__(
        self,
        ray: Any,
        tell: Callable[[list[dict[str, Any]]], None],
        *,
        knock: Callable[[str], None] = knock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ray, self._tell, self._knock, self._clock = ray, tell, knock, clock
        self._asking: threading.Thread | None = None
        self._missing_since: float | None = None

    def ask(self) -> None:
        """Have the question answered, unless the last one still waits for its answer."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self.look, name="flightlog-nodes", daemon=True)
            self._asking.start()

    def missing_s(self) -> float:
        """For how long nobody has listened where Ray's head is; 0.0 if somebody did last time."""
        since = self._missing_since
        return 0.0 if since is None else self._clock() - since

    def look(self) -> None:
        """Ask, and wait for the answer."""
        try:
            try:
                self._knock(str(self._ray.get_runtime_context().gcs_address))
            except OSError:
                if self._missing_since is None:
                    self._missing_since = self._clock()
                return
            self._missing_since = None
            nodes = [node for node in self._ray.nodes() if node["Alive"]]
        except Exception as error:  # noqa: BLE001 - a cluster that does not answer now may answer later
            log.debug("Ray did not say which nodes there are: %s", error)
            return
        self._tell(nodes)
