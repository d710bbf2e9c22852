"""`--to otlp`: a run to a server, after it ended or while it runs.

What the server has accepted is stored in a checkpoint beside the run, so that the next export resumes there.
Servers come from `--endpoint` or the standard `OTEL_EXPORTER_OTLP_*` variables. A request is accepted, partly
accepted, to be retried, or refused.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from flightlog.core.errors import FlightlogError, UsageError
from flightlog.core.locks import sole_holder
from flightlog.core.retry import delays_s
from flightlog.export.base import Exported, ExportOptions, extras_of, refuse
from flightlog.export.limits import ExportLimits
from flightlog.export.otlp import model
from flightlog.export.otlp.batches import Batch, OtlpReader, Sent
from flightlog.export.otlp.model import NAMES, SIGNALS, Item, Resource, Signal
from flightlog.store import layout
from flightlog.store.liveness import here
from flightlog.version import __version__

if TYPE_CHECKING:
    from flightlog.store.run import Run


@dataclass(kw_only=True)
class Otlp:
    """The exporter `otlp`; the world it acts in is given, so that tests need no server and no time."""

    name: ClassVar[str] = "otlp"
    what: ClassVar[str] = "OpenTelemetry traces, metrics and logs, to a server over OTLP/HTTP"
    ending: ClassVar[str | None] = None

    environ: Mapping[str, str] | None = None
    post: Posting | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Send what the server has not accepted yet; with `follow`, until the run is over.

        Raises `RequestFailed` or another `FlightlogError` where something was not accepted; what was accepted
        is in the checkpoint, so that the same call resumes there.
        """
        refuse(self.name, options, takes=("endpoint", "follow", "again"))
        if output is not None:
            raise FlightlogError("--to otlp sends to a server: leave the output out, or use --to otlp-json")
        with extras_of(self.name):
            import opentelemetry.proto  # noqa: F401 - what binary requests are made of

            post = self.post or Post()
        environ = os.environ if self.environ is None else self.environ
        where = servers(environ, options.endpoint)
        address = shown(next(iter(where.values())).url).rsplit("/v1/", 1)[0]
        file = checkpoint_file(run.path, (server.url for server in where.values()))
        with alone(file, address):
            sent = Sent(file, address=address, again=options.again)
            try:
                delivery = _Delivery(run, where, sent, post, environ, options, self)
                delivery.follow() if options.follow else delivery.once()
                return delivery.result(address)
            finally:
                if isinstance(post, Post):
                    post.close()


class _Delivery:
    """One export of one run."""

    def __init__(
        self,
        run: Run,
        where: Mapping[Signal, Endpoint],
        sent: Sent,
        post: Posting,
        environ: Mapping[str, str],
        options: ExportOptions,
        world: Otlp,
    ) -> None:
        self._run, self._where, self._sent, self._post = run, where, sent, post
        self._options, self._sleep, self._clock = options, world.sleep, world.clock
        self._counts: Counter[str] = Counter()
        self._refusals: dict[Signal, Refusal] = {}
        self._unwanted: dict[Signal, RequestFailed] = {}
        self._before = sum(sent.notes.taken.values())
        self._reading = OtlpReader(run, environ=environ, signals=where.keys(), sent=sent)

    def once(self) -> None:
        """Send what there is now."""
        self._deliver(self._run, last=True, patience=self._short_patience)

    def follow(self) -> None:
        """Send what comes, until the run is over and all of it is sent."""
        ended_at: float | None = None

        def patience(_waited_s: float, error: RequestFailed) -> bool:
            nonlocal ended_at
            if ended_at is None and self._run_now().status != "running":
                ended_at = self._clock()
            if not error.temporary and not 500 <= (error.status or 0) < 600:
                return False
            return ended_at is None or self._clock() - ended_at < ExportLimits.retry_following_s

        while True:
            run = self._run_now()
            if run.status != "running":
                ended_at = self._clock() if ended_at is None else ended_at
                if self._settled(run) or self._clock() - ended_at > ExportLimits.last_lines_wait_s:
                    break
            self._deliver(run, last=False, patience=patience)
            self._rest()
        self._deliver(self._run_now(), last=True, patience=patience)

    def _rest(self) -> None:
        """Wait for what comes next, less long where the run closes meanwhile."""
        checksums = self._run.path / layout.CHECKSUMS
        closed = checksums.exists()
        for _ in range(ExportLimits.closed_checks_per_poll):
            self._sleep(ExportLimits.poll_interval_s / ExportLimits.closed_checks_per_poll)
            if not closed and checksums.exists():
                return

    def _run_now(self) -> Run:
        """The run as it is now."""
        return type(self._run)(self._run.path, observer=here())

    @staticmethod
    def _settled(run: Run) -> bool:
        """Whether a run that has ended is in its final form: no process of it writes any more, and its owner
        has closed it.
        """
        closed = run.status == "crashed" or (run.path / layout.CHECKSUMS).exists()
        return closed and not run.is_written()

    def _deliver(self, run: Run, *, last: bool, patience: Callable[[float, RequestFailed], bool]) -> None:
        self._run = run
        for batch in self._reading.batches(run, last=last):
            if not batch.items:
                self._sent.accept(batch)
                continue
            if batch.signal not in self._reading.signals:
                continue
            try:
                refusal = self._send(batch, patience)
            except RequestFailed as error:
                if error.status in NO_SUCH_PLACE and len(self._where) > 1:
                    self._unwanted[batch.signal] = error
                    self._reading.signals.discard(batch.signal)
                    continue
                raise self._with_advice(error) from None
            self._sent.accept(batch, refusal.number)
            self._sent.save()
            self._counts[NAMES[batch.signal]] += len(batch.items) - refusal.number
            self._refusals.setdefault(batch.signal, Refusal()).add(refusal)
            if self._options.progress:
                self._options.progress(self._counts.total(), None)
        self._sent.save()

    def _send(self, batch: Batch, patience: Callable[[float, RequestFailed], bool]) -> Refusal:
        began = self._clock()
        pauses_s = delays_s(ExportLimits.first_retry_wait_s, ExportLimits.max_retry_wait_s, jitter=0.2)
        takes = bool(self._sent.notes.taken.get(batch.signal))
        parts = Parts(self._where[batch.signal], self._reading.resource, batch.items, self._post, takes=takes)
        while True:
            try:
                return parts.send()
            except RequestFailed as error:
                pause = next(pauses_s)
                if error.retry_after_s is not None:
                    pause = max(error.retry_after_s, ExportLimits.first_retry_wait_s)
                if not patience(self._clock() - began + pause, error):
                    raise
                self._sleep(min(pause, ExportLimits.max_retry_wait_s))

    def _short_patience(self, waited_s: float, error: RequestFailed) -> bool:
        heard_of = error.status is not None or self._counts
        limit_s = ExportLimits.retry_s if heard_of else ExportLimits.retry_unheard_s
        return error.temporary and waited_s <= limit_s

    def _with_advice(self, error: RequestFailed) -> RequestFailed:
        endpoint = self._options.endpoint
        to = f" --endpoint {shlex.quote(endpoint)}" if endpoint and shown(endpoint) == endpoint else ""
        again = f"flightlog export {shlex.quote(str(self._run.path))} --to otlp{to}"
        message = f"{error}; {self._done()} had been sent by then: `{again}` goes on from there"
        return RequestFailed(message, status=error.status, temporary=error.temporary)

    def _done(self) -> str:
        return ", ".join(f"{number:,} {name}" for name, number in self._counts.items()) or "nothing"

    def result(self, address: str) -> Exported:
        """What came of it. Raises `RequestFailed` where the server refused something for good."""
        if self._unwanted and not self._counts and not self._before:
            raise next(iter(self._unwanted.values()))
        left = "; ".join(
            f"{refusal.number:,} {NAMES[signal]} were refused ({refusal.message or 'no reason given'})"
            for signal, refusal in self._refusals.items()
            if refusal.number
        )
        if left:
            raise RequestFailed(f"{address}: {left}; {self._done()} were taken, and will not be sent again")
        notes = [*self._reading.notes()]
        for signal, error in self._unwanted.items():
            server = self._where[signal].shown.rsplit("/v1/", 1)[0]
            notes.append(f"{server} takes no {signal} ({error.status}): left out")
        said = [refusal.message for refusal in self._refusals.values() if refusal.message]
        notes += [f"{address} says: {message}" for message in said]
        if self._sent.problem:
            notes.append(self._sent.problem)
        if self._run.status == "running":
            notes.append("the run is still running: the rest, and its root span, come with the next export")
        if self._before and self._counts:
            notes.append(f"{self._before:,} items were taken before and not sent again (--again sends all)")
        elif self._before:
            sent = f"all of the run was sent before, {self._before:,} items"
            notes.append(f"nothing new: {sent} (--again sends all)")
        counts = {NAMES[signal]: self._counts[NAMES[signal]] for signal in SIGNALS if signal in self._where}
        return Exported(to="otlp", where=address, counts=counts, notes=tuple(notes))


exporter = Otlp()


_SIGNAL = re.compile(r"/v1/(traces|metrics|logs)(?=\?|$)")


def checkpoint_file(run: Path, addresses: Iterable[str]) -> Path:
    """The checkpoint file of these addresses; its name reveals no address, which may contain secrets.

    One server has one file for all signals: an export of all signals after one of traces sends the rest.
    """
    places = sorted({_SIGNAL.sub("", address, count=1) for address in addresses})
    token = hashlib.sha256("\n".join(places).encode()).hexdigest()[:12]
    return run / layout.FOLLOWERS / f"otlp-{token}.json"


@contextmanager
def alone(path: Path, where: str) -> Iterator[None]:
    """Send to one place from one process at a time; raises `FlightlogError` where another one does."""
    with sole_holder(path.with_suffix(".lock"), f"{os.getpid()}\n") as pid:
        if pid is not None:
            raise FlightlogError(
                f"the run is being sent to {where} already, by process {pid or 'unknown'}: wait until it has "
                "ended, or end that process and send again, which resumes where it stopped"
            )
        yield


DEFAULT = "http://localhost:4318"

BINARY, JSON = "application/x-protobuf", "application/json"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Endpoint(Struct, frozen=True, kw_only=True):
    """The endpoint of one signal."""

    signal: Signal
    url: str
    headers: dict[str, str]
    timeout_s: float = ExportLimits.request_timeout_s
    gzip: bool = False
    content_type: str = BINARY
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None

    @property
    def shown(self) -> str:
        """The address without user, password and query, which may be secret."""
        return shown(self.url)


def servers(environ: Mapping[str, str], endpoint: str | None = None) -> dict[Signal, Endpoint]:
    """The endpoints by signal; those whose `OTEL_<SIGNAL>_EXPORTER` is `none` are left out.

    `endpoint` is a base address, to which `/v1/traces` and so on are added; one that already ends in such a
    path is for that signal only. Raises `UsageError` for an invalid address and for an unsupported protocol
    in the variables.
    """
    path = _parts(endpoint).path.rstrip("/") if endpoint else ""
    only = next((signal for signal in SIGNALS if path.endswith(f"/v1/{signal}")), None)
    found: dict[Signal, Endpoint] = {}
    for signal in SIGNALS:
        if environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp").strip().lower() == "none":
            continue
        if only is None or only == signal:
            found[signal] = _server(signal, environ, endpoint, whole=only is not None)
    if not found:
        raise UsageError(
            "nothing is to be sent: OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER and OTEL_LOGS_EXPORTER "
            "say none"
        )
    return found


def shown(url: str) -> str:
    """An address without user, password and query, which may be secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _server(signal: Signal, environ: Mapping[str, str], endpoint: str | None, *, whole: bool) -> Endpoint:
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
    return Endpoint(
        signal=signal,
        url=url,
        headers=_headers(said("HEADERS") or ""),
        timeout_s=_timeout(said("TIMEOUT")),
        gzip=compression == "gzip",
        content_type=JSON if protocol == "http/json" else BINARY,
        **{name: said(name.upper()) for name in ("certificate", "client_certificate", "client_key")},
    )


def _below(address: str, signal: Signal) -> str:
    """The place of a signal at a base address."""
    parts = _parts(address)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/v1/{signal}"))


def _parts(address: str) -> SplitResult:
    """An address in its parts. Raises `UsageError` for an invalid one, without anything in the message that
    may be secret.
    """
    try:
        parts = urlsplit(address.strip())
        parts.port  # noqa: B018 - raises where it is no number
        named = parts.hostname and not re.search(r"[\s/\\]", parts.netloc)
    except ValueError:
        parts, named = SplitResult("", "", "", "", ""), None
    if parts.scheme in {"http", "https"} and named:
        return parts
    shown = repr(address.strip().rpartition("@")[2].partition("?")[0][:200])
    raise UsageError(f"{shown} is not a server address: write http://HOST:PORT or https://HOST")


def _headers(text: str) -> dict[str, str]:
    """Headers as a variable lists them. Raises `UsageError` for what no header can hold, and does not repeat
    it.
    """
    found = model.pairs_of(text)
    for name, value in found.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise UsageError(
                f"OTEL_EXPORTER_OTLP_HEADERS: the header {name[:100]!r} holds a character that HTTP does "
                "not allow"
            )
    return found


def _timeout(text: str | None) -> float:
    """Seconds: large numbers are milliseconds, as the specification has them, small ones seconds, as Python's
    SDK has.
    """
    try:
        value = float(text or "")
    except ValueError:
        value = 0.0
    if not value > 0:
        return ExportLimits.request_timeout_s
    return value / 1000 if value >= 1000 else value


AGAIN = {408, 429, 502, 503, 504}
"""Statuses to retry. All others are final."""
TOO_LARGE = 413
PART_AT_FAULT = {400, TOO_LARGE, 422}
"""Statuses that may concern one item among many: the rest is sent in smaller requests."""

NO_SUCH_PLACE = {404, 405, 501}
"""Statuses of a server that does not support this signal."""


class RequestFailed(FlightlogError):  # noqa: N818 - reads as what happened
    """A request was not accepted; the message says by which server and why. `status` is None without a
    response.
    """

    exits_with = 1

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        temporary: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        """`temporary`: the same request may be accepted later, after `retry_after_s` where it is known."""
        super().__init__(message)
        self.status, self.temporary, self.retry_after_s = status, temporary, retry_after_s


class Refusal(Struct):
    """Items that the server refused for good, in requests that it accepted."""

    number: int = 0
    message: str = ""

    def add(self, other: Refusal) -> None:
        """Add the items of another request; the latest message counts."""
        self.number += other.number
        self.message = other.message or self.message


class Post:
    """The network access: a session of `requests`, kept open between requests."""

    def __init__(self) -> None:
        import requests

        self._session = requests.Session()

    def __call__(
        self, server: Endpoint, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. Raises `OSError` where none came."""
        own, key = server.client_certificate, server.client_key
        cert = (own, key) if own and key else own
        named = any(name.lower() == "authorization" for name in headers)
        deadline = time.monotonic() + server.timeout_s
        with self._session.post(
            server.url,
            data=body,
            headers=dict(headers),
            timeout=server.timeout_s,
            allow_redirects=False,
            verify=server.certificate or True,
            cert=cert,
            stream=True,
            auth=(lambda request: request) if named else None,  # else a ~/.netrc would replace it
        ) as answer:
            said = bytearray()
            for piece in answer.iter_content(1):  # each as it comes: larger ones are waited for without limit
                said += piece
                if len(said) >= ExportLimits.max_response_bytes:
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError("timed out")
            return int(answer.status_code), answer.headers, bytes(said)

    def close(self) -> None:
        """Let the connections go."""
        self._session.close()


Posting = Callable[[Endpoint, bytes, Mapping[str, str]], tuple[int, Mapping[str, str], bytes]]


class Parts:
    """Items to send to a server, in one request or in smaller ones where it does not accept them together.

    What was accepted is not sent again on a retry. A single item that the server refuses for good is left out
    and counted, if the server accepts others (`takes`: it has before); if not, the problem is another one.
    """

    def __init__(
        self, server: Endpoint, resource: Resource, items: Sequence[Item], post: Posting, *, takes: bool
    ) -> None:
        self._server, self._resource, self._post, self._takes = server, resource, post, takes
        self._left = [list(items)]
        self._refused = Refusal()
        self._at_fault: list[RequestFailed] = []

    def send(self) -> Refusal:
        """Send what was not accepted yet. Raises `RequestFailed`; the next call resumes there."""
        while self._left:
            part = self._left[-1]
            try:
                refusal = send(self._server, self._resource, part, self._post)
            except RequestFailed as error:
                if error.status not in PART_AT_FAULT:
                    raise
                if len(part) > 1:
                    half = len(part) // 2
                    self._left[-1:] = [part[half:], part[:half]]
                    continue
                self._at_fault.append(error)
                if not self._takes and (len(self._at_fault) > 1 or len(self._left) == 1):
                    raise self._at_fault[0] from None
                refusal = Refusal(1, str(error))
            else:
                self._takes = True
            self._left.pop()
            self._refused.add(refusal)
        return self._refused


def send(server: Endpoint, resource: Resource, items: list[Item], post: Posting) -> Refusal:
    """Send items in one request. Raises `RequestFailed`, without sending where they are too large."""
    if server.content_type == JSON:
        body = msgspec.json.encode(model.json_form(server.signal, resource, items))
    else:
        body = model.binary_form(server.signal, resource, items)
    if len(body) > ExportLimits.max_request_bytes and len(items) > 1:
        raise RequestFailed(f"{server.shown} was not contacted: the request is too large", status=TOO_LARGE)
    return _request(server, body, post)


def _request(server: Endpoint, body: bytes, post: Posting) -> Refusal:
    headers = {
        **server.headers,
        "Content-Type": server.content_type,
        "User-Agent": f"flightlog-otlp/{__version__}",
    }
    if server.gzip:
        body, headers["Content-Encoding"] = gzip.compress(body, 6), "gzip"
    try:
        status, said, answer = post(server, body, headers)
    except OSError as error:
        why = _without(_reason(error), server)
        raise RequestFailed(f"{server.shown} does not answer ({why})", temporary=True) from None
    except ValueError as error:
        # What the library finds wrong with the request: its text may hold a header's value.
        raise RequestFailed(f"{server.shown} was not asked: {type(error).__name__} of the request") from None
    if 200 <= status < 300:
        return _refusal(server.signal, said, answer)
    text = _without(_text(answer), server)
    raise RequestFailed(
        f"{server.shown} answered {status}{f': {text}' if text else ''}",
        status=status,
        temporary=status in AGAIN,
        retry_after_s=_retry_after(said),
    )


def _refusal(signal: Signal, headers: Mapping[str, str], answer: bytes) -> Refusal:
    """The refused items of an accepted request, by its response; one that is not OTLP's says nothing."""
    try:
        if "json" in headers.get("Content-Type", "").lower():
            part = msgspec.json.decode(answer).get("partialSuccess") or {} if answer.strip() else {}
            number = next((int(value) for key, value in part.items() if key.startswith("rejected")), 0)
            return Refusal(number, str(part.get("errorMessage", "")))
        return Refusal(*model.refused(signal, answer))
    except (ValueError, AttributeError, TypeError, msgspec.DecodeError):
        return Refusal()


def _reason(error: OSError) -> str:
    """Why no answer came, in a few words: the innermost cause, whose text the libraries wrap into their
    own.
    """
    inner: BaseException = error
    while nested := _cause_of(inner):
        inner = nested
    if isinstance(inner, TimeoutError) or "timed out" in str(inner).lower():
        return "timed out"
    text = inner.strerror if isinstance(inner, OSError) and inner.strerror else str(inner)
    return " ".join(text.split())[:200] or type(inner).__name__


def _cause_of(error: BaseException) -> BaseException | None:
    inside = (error.__cause__, error.__context__, *error.args, getattr(error, "reason", None))
    return next((one for one in inside if isinstance(one, BaseException) and one is not error), None)


def _without(text: str, server: Endpoint) -> str:
    """A text less the values of headers and what may be secret in the address: servers repeat what they are
    asked.
    """
    address = urlsplit(server.url)
    secret = {address.password, address.query, *server.headers.values()}
    words = {word for value in secret if value for word in (value, *value.split())}
    for word in sorted((word for word in words if len(word) > 3), key=len, reverse=True):
        text = text.replace(word, "…")
    return text


def _text(answer: bytes) -> str:
    """The beginning of a response in one line; empty if it is not text."""
    text = " ".join(answer[:2000].decode("utf-8", "replace").split())
    return text[:200] if text.isprintable() and "\ufffd" not in text else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait, as a number or until a date."""
    value = next((headers[key] for key in headers if key.lower() == "retry-after"), "")
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(TypeError, ValueError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    return None
