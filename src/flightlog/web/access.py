"""Access control of the dashboard: the token, the checks on every request, and the refusals.

It comes before everything else: pages, files and sockets. Nothing behind it sees a refused request.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex, token_urlsafe
from string import Template
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.core.settings import expanded
from flightlog.web import web_file
from flightlog.web.limits import WebLimits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = list[tuple[bytes, bytes]]

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; script-src-attr 'none'; style-src "
    "'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "worker-src 'self' blob:; object-src 'none'; frame-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)
"""The content security policy. NiceGUI compiles its templates in the browser, and so needs inline scripts and
`eval`; it does not need handlers in attributes, by which a name taken for HTML could run.
"""
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


class AccessControl:
    """An ASGI application around another one.

    With a `token`, every request and socket needs it: in the header `Authorization: Bearer`, in the
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
        if refusal in {None, NO_TOKEN} and self._is_in_query(scope):
            await self._lead_on(scope, headers, send)
        elif refusal is None:
            await self._app(scope, receive, _secured(send))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.reason})
        else:
            await _answer(send, refusal.status, refusal_page(refusal), refusal.headers)

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> AccessRefusal | None:
        name = _name_of(headers.get("host", ""))
        if self._token is None and name != self._host and not is_loopback(name):
            return OTHER_HOST
        origin = headers.get("origin")
        if origin is not None and not _is_same(origin, headers.get("host", "")):
            return OTHER_ORIGIN
        if headers.get("sec-fetch-site") in _ELSEWHERE and headers.get("sec-fetch-mode") != "navigate":
            return OTHER_ORIGIN  # an image or a script of another page: no `Origin` comes with these
        if self._token is not None and not self._is_known(scope, headers):
            return NO_TOKEN
        return None

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
            await _answer(send, 200, GOING_ON, [(b"refresh", b"0;url=" + where), given])
        else:
            await _answer(send, 303, b"", [(b"location", where), given])


def cookie_name(scope: Scope, headers: Mapping[str, str]) -> str:
    """The cookie's name: browsers keep cookies by host, so the port distinguishes dashboards of one host.

    It is the port that the browser requested, which behind a tunnel may differ from the server's.
    """
    try:
        port = urlsplit(f"//{headers.get('host', '')}").port
    except ValueError:
        port = None
    server = scope.get("server") or (None, None)
    return f"flightlog-{port or server[1] or 0}"


def _pass_of(token: str) -> str:
    """The cookie's value: it proves the token without revealing it."""
    return hmac.new(token.encode(), b"flightlog dashboard", hashlib.sha256).hexdigest()


def _secured(send: Send) -> Send:
    """Answers with the headers that keep a page to itself, and without those that share it with other
    origins.
    """

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [
                (name, value)
                for name, value in message.get("headers", ())
                if name.lower() not in _OURS and not name.lower().startswith(_SHARING)
            ]
            if not any(name.lower() == b"cache-control" for name, _ in own):
                own.append(_NOT_KEPT)  # what was seen with a token is not to be seen without
            message = {**message, "headers": [*own, *SECURITY]}
        await send(message)

    return wrapped


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
    """Any text as bytes, for a comparison in constant time."""
    return text.encode("utf-8", "surrogatepass")


def _name_of(host: str) -> str:
    """The name in `Host`, without the port and the brackets of an address; empty where it is none."""
    if "@" in host:
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
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


class AccessRefusal(NamedTuple):
    """One reason not to answer."""

    status: int
    reason: str
    title: str
    text: str
    form: bool = False

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that belong to the status."""
        return [(b"www-authenticate", b'Bearer realm="flightlog"')] if self.status == 401 else []


NO_TOKEN = AccessRefusal(
    401,
    "token needed",
    "This dashboard needs its token",
    "`flightlog ui` printed a link with the token in it: open that one, or enter the token here. "
    "The user who started the dashboard also finds it in ~/.local/state/flightlog/dashboard-token.",
    form=True,
)
OTHER_HOST = AccessRefusal(
    403,
    "not a name of this machine",
    "This dashboard answers to this machine only",
    "The request used a name that is not this machine's own. Open it at http://127.0.0.1 or "
    "http://localhost, with its port. To reach it from elsewhere or through a proxy, start it with its "
    "token: flightlog ui, without --no-token.",
)
OTHER_ORIGIN = AccessRefusal(
    403,
    "another origin",
    "This request came from another site",
    "The dashboard answers to its own pages only. Behind a proxy, have the proxy pass on the Host header "
    "as it came.",
)

GOING_ON = (
    b'<!doctype html><html lang="en"><meta charset="utf-8"><title>Flightlog</title><p>Opening the '
    b"dashboard.</p></html>\n"
)
"""The page shown for a moment between the token and the requested page."""


def refusal_page(refusal: AccessRefusal) -> bytes:
    """The refusal as a page, without anything from the request."""
    form = web_file("token_form.html") if refusal.form else ""
    return message_page(refusal.title, f"<p>{refusal.text}</p>{form}").encode()


def message_page(title: str, body: str) -> str:
    """A page with a heading and a few lines; `title` and `body` are HTML."""
    return Template(web_file("message.html")).substitute(title=title, body=body)


FILE = "dashboard-token"


class Token(Struct, frozen=True, kw_only=True):
    """What requests have to bring, and what the user should know about it."""

    value: str | None
    """None: the dashboard asks for no token."""
    note: str | None = None


def token_for(
    given: str | None, *, none: bool = False, loopback: bool = True, environ: Mapping[str, str] | None = None
) -> Token:
    """The token to ask for: the one that is given, or else the user's own, which is made at the first start.

    With `none` there is no token, which only an address that other machines cannot reach allows. A
    `UsageError` for that elsewhere, and for a token that is too short or that an address cannot hold.
    """
    if none and given is not None:
        raise UsageError("--token and --no-token contradict each other: give one of them")
    if none and not loopback:
        raise UsageError(
            "--no-token works on this machine only (127.0.0.1): with another --host, every machine on the "
            "network could read the runs"
        )
    if none:
        return Token(
            value=None, note="no token is required: every user of this machine can read what is shown"
        )
    if given is None:
        return kept_token(environ)
    if not _can_stand_in_an_address(given):
        raise UsageError("--token may hold letters, digits, and - . _ ~ only")
    if len(given) < WebLimits.min_token_chars:
        raise UsageError(
            f"--token has {len(given)} characters and could be guessed: "
            f"{WebLimits.min_token_chars} at least; without it, your own token is used, "
            "which is made at the first start"
        )
    return Token(
        value=given,
        note="other users of this machine can see --token in the list of processes; without it, your own "
        "token is used",
    )


def kept_token(environ: Mapping[str, str] | None = None) -> Token:
    """The user's token, from a private file, which is created if missing. Never raises.

    A token that others could have read or written is replaced. Where none can be stored, each start has a new
    one. The note says so in both cases.
    """
    try:
        folder = private_folder(environ)
    except OSError as error:
        return _not_kept(error)
    file = folder / FILE
    for _ in range(3):
        try:
            return Token(value=_read_token(file))
        except FileNotFoundError:
            reason = None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
        made = token_urlsafe(24)
        try:
            write_private(file, f"{made}\n", replace=reason is not None)
        except FileExistsError:
            continue  # another dashboard was started at the same moment, and has made one
        except OSError as error:
            return _not_kept(error)
        note = None if reason is None else f"a new token was made, old links no longer work: {file} {reason}"
        return Token(value=made, note=note)
    return _not_kept(FileExistsError("it comes and goes"))


def private_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder for what only this user may see, which is made where it is missing. `OSError` where it
    cannot be private.
    """
    environ = os.environ if environ is None else environ
    state = Path(environ.get("XDG_STATE_HOME") or "")
    if not state.is_absolute():  # those do not count, by the specification of the variable
        state = expanded(environ.get("HOME") or "~") / ".local" / "state"
    folder = state / "flightlog"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or not _is_ours(found):
        raise PermissionError(f"{folder} is not a folder of this user's")
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def write_private(file: Path, text: str, *, replace: bool) -> None:
    """Write a file that only this user can read, whole or not at all. `FileExistsError` without `replace`."""
    draft = file.with_name(f".{file.name}.{token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    out = os.open(draft, flags, 0o600)
    try:
        with open(out, "w", encoding="ascii") as opened:  # noqa: PTH123 - a descriptor
            opened.write(text)
        if replace:
            draft.replace(file)
        else:
            file.hardlink_to(draft)
    finally:
        with suppress(OSError):
            draft.unlink()


def _read_token(file: Path) -> str:
    """The token in a file; raises `ValueError` with the reason why it must not be used."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if file.is_symlink():
        raise ValueError("was a link")
    opened = os.open(file, flags)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("was not a regular file")
        if not _is_ours(found):
            raise ValueError("belonged to another user")
        if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
            raise ValueError(f"could be read by others (mode {stat.S_IMODE(found.st_mode):04o})")
        data = os.read(opened, WebLimits.max_token_chars + 2)
    finally:
        os.close(opened)
    text = data.decode("ascii", "replace").strip()
    has_length = WebLimits.min_token_chars <= len(text) <= WebLimits.max_token_chars
    if not has_length or not _can_stand_in_an_address(text):
        raise ValueError("contained no token")
    return text


def _is_ours(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _can_stand_in_an_address(text: str) -> bool:
    return all(character.isascii() and (character.isalnum() or character in "-._~") for character in text)


def _not_kept(error: OSError) -> Token:
    return Token(
        value=token_urlsafe(24),
        note=f"the token could not be stored ({error.strerror or error}): the next start has another one",
    )
