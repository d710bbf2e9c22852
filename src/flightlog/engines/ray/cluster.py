"""A Ray cluster: whether its address can be reached, and its nodes, queried off the engine's thread because
a cluster that is gone blocks the caller.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from flightlog.core.errors import UsageError

PATIENCE_S = 5.0
START_ONE = (
    "start one there with `ray start --head`, or leave `address` out to have one for this session alone"
)


def check_form(address: str) -> None:
    """A `UsageError` unless this is an address that an engine can use: `auto`, or `host:port`."""
    if address.startswith("ray://"):
        raise UsageError(
            f"the address {address!r} is that of Ray's client server, through which workers cannot be "
            "followed: start the program on a node of the cluster, with `address: auto`"
        )
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"address is {address!r}; it may be auto, or host:port as in 10.0.0.1:6379")


def check_answer(address: str) -> None:
    """A `UsageError`, after at most `PATIENCE_S`, unless somebody listens there, or where `auto` leads.

    What listens may yet be something else than Ray.
    """
    found = _resolved(address)
    try:
        probe(found)
    except OSError as error:
        where = address if found == address else f"{found}, which is what `address: {address}` means here"
        raise UsageError(f"no Ray answers at {where} ({error}): {START_ONE}") from None


def probe(address: str, patience_s: float = PATIENCE_S) -> None:
    """`OSError`, after at most `patience_s`, unless somebody listens at `host:port`."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=patience_s).close()


def _resolved(address: str) -> str:
    """Where `auto` leads, as Ray finds it; all other addresses as they are."""
    if address != "auto":
        return address
    find = import_module("ray._private.services").canonicalize_bootstrap_address
    try:
        return str(find(address, None))
    except ConnectionError:
        raise UsageError(
            f"no Ray runs on this machine that `address: auto` could mean: {START_ONE}"
        ) from None


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
        probe: Callable[[str], None] = probe,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ray, self._tell, self._probe, self._clock = ray, tell, probe, clock
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
                self._probe(str(self._ray.get_runtime_context().gcs_address))
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
