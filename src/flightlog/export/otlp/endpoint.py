"""The OTLP servers to send to: from `--endpoint`, or from the standard `OTEL_EXPORTER_OTLP_*` variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit, urlunsplit

from msgspec import Struct

from flightlog.core.errors import UsageError
from flightlog.export.otlp.model import SIGNALS, Signal, pairs_of

DEFAULT = "http://localhost:4318"
TIMEOUT_S = 10.0
BINARY, JSON = "application/x-protobuf", "application/json"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Server(Struct, frozen=True, kw_only=True):
    """One address that takes one signal."""

    signal: Signal
    url: str
    headers: dict[str, str]
    timeout_s: float = TIMEOUT_S
    gzip: bool = False
    content_type: str = BINARY
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None

    @property
    def shown(self) -> str:
        """The address without what may be secret in it."""
        return shown(self.url)


def servers(environ: Mapping[str, str], endpoint: str | None = None) -> dict[Signal, Server]:
    """The servers by signal; those whose `OTEL_<SIGNAL>_EXPORTER` is `none` are left out.

    `endpoint` is a base address, to which `/v1/traces` and so on are added; one that ends so is meant for
    that signal alone. Raises `UsageError` for what is no address, and where the variables ask for what is not
    spoken here.
    """
    path = _parts(endpoint).path.rstrip("/") if endpoint else ""
    only = next((signal for signal in SIGNALS if path.endswith(f"/v1/{signal}")), None)
    found: dict[Signal, Server] = {}
    for signal in SIGNALS:
        if environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp").strip().lower() == "none":
            continue
        if only is None or only == signal:
            found[signal] = _server(signal, environ, endpoint, whole=only is not None)
    if not found:
        raise UsageError(
            "nothing is to be sent: OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER and OTEL_LOGS_EXPORTER say none"
        )
    return found


def shown(url: str) -> str:
    """An address without user, password and query, which may be secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _server(signal: Signal, environ: Mapping[str, str], endpoint: str | None, *, whole: bool) -> Server:
    def said(what: str) -> str | None:
        own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}")
        return own or environ.get(f"OTEL_EXPORTER_OTLP_{what}") or None

    if endpoint is not None:
        url = endpoint.strip() if whole else _below(endpoint, signal)
    elif own := environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"):
        url = own
    else:
        url = _below(environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT, signal)
    url = url.strip()
    _parts(url)
    protocol = said("PROTOCOL") or "http/protobuf"
    if protocol not in {"http/protobuf", "http/json"}:
        raise UsageError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL says {protocol!r}, and Flightlog speaks OTLP over HTTP: set it to "
            "http/protobuf, and the address to the server's HTTP port (4318 by custom)"
        )
    compression = (said("COMPRESSION") or "none").strip().lower()
    return Server(
        signal=signal,
        url=url,
        headers=_headers(said("HEADERS") or ""),
        timeout_s=_timeout(said("TIMEOUT")),
        gzip=compression == "gzip",
        content_type=JSON if protocol == "http/json" else BINARY,
        certificate=said("CERTIFICATE"),
        client_certificate=said("CLIENT_CERTIFICATE"),
        client_key=said("CLIENT_KEY"),
    )


def _below(address: str, signal: Signal) -> str:
    """The place of a signal at a base address."""
    parts = _parts(address)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/v1/{signal}"))


def _parts(address: str) -> SplitResult:
    """An address in its parts. Raises `UsageError` for what is none, and says nothing then that may be
    secret.
    """
    try:
        parts = urlsplit(address.strip())
        parts.port  # noqa: B018 - raises where it is no number
        named = parts.hostname and not re.search(r"[\s/\\]", parts.netloc)
    except ValueError:
        parts, named = SplitResult("", "", "", "", ""), None
    if parts.scheme in {"http", "https"} and named:
        return parts
    told = repr(address.strip().rpartition("@")[2].partition("?")[0][:200])
    raise UsageError(f"{told} is no address of a server: write http://HOST:PORT or https://HOST")


def _headers(text: str) -> dict[str, str]:
    """Headers as a variable lists them. Raises `UsageError` for what no header can hold, and does not repeat
    it.
    """
    found = pairs_of(text)
    for name, value in found.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise UsageError(
                f"OTEL_EXPORTER_OTLP_HEADERS: the header {name[:100]!r} holds a character that HTTP does not allow"
            )
    return found


def _timeout(text: str | None) -> float:
    """Seconds: large numbers are milliseconds, as the specification has them, small ones seconds, as Python's
    SDK has.
    """
    try:
        value = float(text or "")
    except ValueError:
        return TIMEOUT_S
    if not value > 0:
        return TIMEOUT_S
    return value / 1000 if value >= 1000 else value
