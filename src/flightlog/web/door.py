"""The door of the dashboard: who may come in, by which address, and what a browser may do with the answers.

It stands before everything, pages, files and sockets alike. Nothing behind it is asked unless it lets a
request through.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from flightlog.web import refusals

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = list[tuple[bytes, bytes]]

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; script-src-attr 'none'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; connect-src "
    "'self'; "
    "worker-src 'self' blob:; object-src 'none'; frame-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)
"""What a page may load and run. NiceGUI compiles its templates in the browser, and so needs inline scripts
and `eval`; handlers in attributes, by which a name that was taken for HTML would come to life, are not among
what it needs."""
SECURITY: Headers = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_OURS = frozenset(name for name, _ in SECURITY)
_NOT_KEPT = (b"cache-control", b"no-store")
_SHARING = b"access-control-"
_ELSEWHERE = frozenset({"cross-site", "same-site"})


class Door:
    """An ASGI application around another one.

    With a `token`, every request and socket has to bring it: in the header `Authorization: Bearer`, in the
    cookie that the door gives, or once in the query of a page's address, which gives the cookie and leads on
    to the address without it. All comparisons take the same time whatever is brought. Without a token, only
    requests to a name of this machine's own are answered (`host` is one more), so that no page of the web can
    reach the dashboard by a name that it makes point here. With or without one, a request that a page of
    another origin made is refused.
    """

    def __init__(self, app: Application, *, token: str | None, host: str = "127.0.0.1") -> None:
        self._app, self._host = app, host.lower()
        self._token = None if token is None else token.encode()
        self._pass = None if token is None else _pass_of(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let through, lead on or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = _read(scope["headers"])
        refusal = self._refusal(scope, headers)
        if refusal in {None, refusals.NO_TOKEN} and self._is_in_query(scope):
            await self._lead_on(scope, headers, send)
        elif refusal is None:
            await self._app(scope, receive, _secured(send))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.reason})
        else:
            await _answer(send, refusal.status, refusals.page(refusal), refusal.headers)

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> refusals.Refusal | None:
        if self._token is None and not self._is_here(headers.get("host", "")):
            return refusals.OTHER_HOST
        origin = headers.get("origin")
        if origin is not None and not _is_same(origin, headers.get("host", "")):
            return refusals.OTHER_ORIGIN
        if headers.get("sec-fetch-site") in _ELSEWHERE and headers.get("sec-fetch-mode") != "navigate":
            return refusals.OTHER_ORIGIN  # an image or a script of another page: no `Origin` comes with these
        if self._token is not None and not self._is_known(scope, headers):
            return refusals.NO_TOKEN
        return None

    def _is_here(self, host: str) -> bool:
        name = _name_of(host)
        return name in {"localhost", self._host} or _is_loopback(name)

    def _is_known(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        assert self._token is not None
        assert self._pass is not None
        kind, _, brought = headers.get("authorization", "").partition(" ")
        by_header = hmac.compare_digest(_bytes(brought.strip()), self._token) and kind.lower() == "bearer"
        cookie = _cookie(headers.get("cookie", ""), cookie_name(scope, headers))
        return hmac.compare_digest(_bytes(cookie), self._pass.encode()) or by_header

    def _is_in_query(self, scope: Scope) -> bool:
        if self._token is None or scope["type"] != "http" or scope["method"] != "GET":
            return False
        given = [value for name, value in _query(scope) if name == "token"]
        return bool(given) and hmac.compare_digest(_bytes(given[-1]), self._token)

    async def _lead_on(self, scope: Scope, headers: Mapping[str, str], send: Send) -> None:
        rest = urlencode([(name, value) for name, value in _query(scope) if name != "token"])
        path = "/" + quote(scope["path"].lstrip("/\\"))  # two slashes would name another host
        cookie = f"{cookie_name(scope, headers)}={self._pass}; Path=/; HttpOnly; SameSite=Strict"
        if scope.get("scheme") == "https":
            cookie += "; Secure"
        where = f"{scope.get('root_path', '')}{path}{f'?{rest}' if rest else ''}".encode("latin-1", "replace")
        given = (b"set-cookie", cookie.encode())
        if headers.get("sec-fetch-site") in _ELSEWHERE:
            # After a link in a page of another site the cookie would not come along to where a redirect
            # leads; it does where a page of our own leads.
            await _answer(send, 200, refusals.GOING_ON, [(b"refresh", b"0;url=" + where), given])
        else:
            await _answer(send, 303, b"", [(b"location", where), given])


def cookie_name(scope: Scope, headers: Mapping[str, str]) -> str:
    """The cookie's name: browsers keep cookies by host, so that the port tells two dashboards of one host
    apart.

    It is the port that the browser asked for, which a tunnel may have made another than that of the server.
    """
    try:
        port = urlsplit(f"//{headers.get('host', '')}").port
    except ValueError:
        port = None
    server = scope.get("server") or (None, None)
    return f"flightlog-{port or server[1] or 0}"


def _pass_of(token: str) -> str:
    """What the cookie holds: it proves the token, and does not tell it."""
    return hmac.new(token.encode(), b"flightlog dashboard", hashlib.sha256).hexdigest()


def _secured(send: Send) -> Send:
    """Answers with the headers that keep a page to itself, and without those that share it with other
    origins.
    """

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [
                (name, value) for name, value in message.get("headers", ()) if not _is_replaced(name.lower())
            ]
            if not any(name.lower() == b"cache-control" for name, _ in own):
                own.append(_NOT_KEPT)  # what was seen with a token is not to be seen without
            message = {**message, "headers": [*own, *SECURITY]}
        await send(message)

    return wrapped


def _is_replaced(name: bytes) -> bool:
    return name in _OURS or name.startswith(_SHARING)


async def _answer(send: Send, status: int, body: bytes, headers: Headers) -> None:
    kind = [(b"content-type", b"text/html; charset=utf-8"), _NOT_KEPT]
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [*kind, length, *headers, *SECURITY]}
    )
    await send({"type": "http.response.body", "body": body})


def _read(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name, in lower case; of one that comes twice, both, so that neither passes for the other."""
    found: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        joint = "; " if key == "cookie" else ", "
        found[key] = f"{found[key]}{joint}{text}" if key in found else text
    return found


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)


def _cookie(header: str, name: str) -> str:
    """The value of a cookie, empty where there is none, whatever others hold: all ports of a host share
    them.
    """
    for pair in header.split(";"):
        found, _, value = pair.partition("=")
        if found.strip() == name:
            return value.strip()
    return ""


def _bytes(text: str) -> bytes:
    """Any text as bytes, for a comparison that takes no longer for what is nearly right."""
    return text.encode("utf-8", "surrogatepass")


def _name_of(host: str) -> str:
    """The name in `Host`, without the port and the brackets of an address; empty where it is none."""
    if "@" in host:
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_same(origin: str, host: str) -> bool:
    """Whether a page of this origin was served under this host and port, by whatever scheme."""
    try:
        found = urlsplit(origin)
        asked = urlsplit(f"//{host}")
        ports = (found.port, asked.port)
    except ValueError:
        return False
    default = {"http": 80, "https": 443}.get(found.scheme)
    return (
        default is not None
        and found.hostname is not None
        and found.hostname == asked.hostname
        and (ports[0] or default) == (ports[1] or default)
    )
