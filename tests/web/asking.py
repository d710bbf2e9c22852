"""Requests to an ASGI application, without a server and without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from flightlog.web.access import AccessControl, Application, Receive, Scope, Send


class Answer(NamedTuple):
    """What came back: the status, or how a socket was closed; headers by name, the last of each."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(app: Application, path: str = "/", *, method: str = "GET", query: str = "", **headers: str) -> Answer:
    """One request; `_` in a header's name is a dash. `Host` is that of the machine itself unless it is
    given."""
    return asyncio.run(_ask(app, "http", path, method, query, headers))


def open_socket(
    app: Application, path: str = "/_nicegui_ws/socket.io/", *, query: str = "", **headers: str
) -> Answer:
    """A socket: status 101 where it was accepted, else the code it was closed with."""
    return asyncio.run(_ask(app, "websocket", path, "GET", query, headers))


async def _ask(
    app: Application, kind: str, path: str, method: str, query: str, headers: Mapping[str, str]
) -> Answer:
    named = {
        "host": "127.0.0.1:8420",
        **{name.replace("_", "-").lower(): value for name, value in headers.items()},
    }
    scope: Scope = {
        "type": kind,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http" if kind == "http" else "ws",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items()],
        "server": ("127.0.0.1", 8420),
        "client": ("127.0.0.1", 50000),
        "http_version": "1.1",
        "subprotocols": [],
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"} if kind == "websocket" else {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    first = sent[0]
    if kind == "websocket":
        return Answer(101 if first["type"] == "websocket.accept" else first["code"], {}, b"")
    found = {name.decode(): value.decode() for name, value in first["headers"]}
    return Answer(first["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))


class Inside:
    """What stands behind a door: answers everything, and counts how often it was asked."""

    def __init__(self, **headers: str) -> None:
        self.asked: list[str] = []
        self._headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
        else:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await send({"type": "http.response.body", "body": b"inside"})


def behind(token: str | None = None, *, host: str = "127.0.0.1") -> tuple[AccessControl, Inside]:
    """A door, and what stands behind it."""
    inside = Inside(content_type="text/plain", access_control_allow_origin="*")
    return AccessControl(inside, token=token, host=host), inside
