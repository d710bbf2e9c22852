"""Two small hooks in one Dask client: which span submits a graph, and how often a result is asked for.

Both only look; what they look at is done by the client as ever. They are attributes of this one client and
are removed again. A client that is made differently goes without them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from flightlog.engines.dask.messages import text_of_key
from flightlog.record.span import current

MAX_COUNTED = 100_000
MAX_LEFT = 1_000


class ClientHooks:
    """The hooks of one client; thread-safe, as far as dictionaries are."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._again: dict[str, int] = {}
        self._send = getattr(client, "_send_to_scheduler", None)
        self._inc_ref = getattr(client, "_inc_ref", None)
        self._named = self._removed = False
        self._lock = threading.Lock()
        if self._inc_ref is not None and hasattr(client, "refcount"):
            client._inc_ref = self._counted

    def name_stimuli(self) -> None:
        """Let each graph say which span it was submitted in: the scheduler can take that."""
        with self._lock:
            if self._send is not None and not self._named and not self._removed:
                self._named = True
                self._client._send_to_scheduler = self._sent

    def requests(self, key: str) -> int:
        """How often this client asked for a key until now; from now on, counted anew."""
        return self._again.pop(key, 0) + 1

    def left(self) -> Iterable[tuple[str, int]]:
        """Keys that were asked for after `requests` had been, and how often."""
        return [(key, number) for key, number in list(self._again.items())[:MAX_LEFT]]

    def remove(self) -> None:
        """Leave the client as it was."""
        with self._lock:
            self._removed = True
            for name, ours in (("_inc_ref", self._counted), ("_send_to_scheduler", self._sent)):
                if self._client.__dict__.get(name) == ours:
                    del self._client.__dict__[name]

    def _counted(self, key: Any) -> Any:
        if key in self._client.refcount and len(self._again) < MAX_COUNTED:
            text = text_of_key(key)
            self._again[text] = self._again.get(text, 0) + 1
        assert self._inc_ref is not None
        return self._inc_ref(key)

    def _sent(self, message: dict[str, Any]) -> Any:
        if message.get("op") == "update-graph" and "stimulus_id" not in message:
            here = current.get()
            if here is not None and here._sink is not None:
                message["stimulus_id"] = f"update-graph-{time.time()}-by-{here.span_id}"
        assert self._send is not None
        return self._send(message)
