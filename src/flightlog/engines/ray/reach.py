"""Whether a Ray can be reached at an address: asked before Ray itself, which takes minutes to give up."""

from __future__ import annotations

import socket
from importlib import import_module

from flightlog.core.errors import UsageError

PATIENCE_S = 5.0
START_ONE = (
    "start one there with `ray start --head`, or leave `address` out to have one for this session alone"
)


def check_form(address: str) -> None:
    """A `UsageError` unless this is an address that an engine can use: `auto`, or `host:port`."""
    if address.startswith("ray://"):
        raise UsageError(
            f"the address {address!r} is that of Ray's client server, through which workers cannot be followed: "
            "start the program on a node of the cluster, with `address: auto`"
        )
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"address is {address!r}; it may be auto, or host:port as in 10.0.0.1:6379")


def check_answer(address: str, patience_s: float = PATIENCE_S) -> None:
    """A `UsageError`, after so many seconds at most, unless somebody listens there, or where `auto` leads.

    What listens may yet be something else than Ray.
    """
    found = _resolved(address)
    try:
        knock(found, patience_s)
    except OSError as error:
        where = address if found == address else f"{found}, which is what `address: {address}` means here"
        raise UsageError(f"no Ray answers at {where} ({error}): {START_ONE}") from None


def knock(address: str, patience_s: float = PATIENCE_S) -> None:
    """`OSError`, after so many seconds at most, unless somebody listens at `host:port`."""
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
