"""`--to otlp`: a run to a server, after it ended or while it runs.

What the server has accepted is stored in a checkpoint beside the run, so that the next export resumes there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from flightlog.core.errors import FlightlogError, MissingExtra
from flightlog.core.locks import holder_of, try_lock
from flightlog.core.retry import delays_s
from flightlog.export.base import Exported, ExportOptions, refuse
from flightlog.export.otlp.batches import Batch, OtlpReader
from flightlog.export.otlp.model import NAMES, SIGNALS, Signal
from flightlog.export.otlp.request import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    NO_SUCH_PLACE,
    Endpoint,
    Parts,
    Post,
    Posting,
    Refusal,
    RequestFailed,
    servers,
    shown,
)
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.liveness import here
from flightlog.store.read.completeness import Coverage

if TYPE_CHECKING:
    from flightlog.store.run import Run

POLL_S = 1.0
LOOKS = 5
"""Number of checks in that time whether the run has closed: its program waits for the rest to be sent."""
PATIENCE_S = 30.0
"""How long one request is retried after the run."""
UNHEARD_PATIENCE_S = 5.0
"""The same for a server that has not answered even once: likely the address is wrong."""
FOLLOWING_PATIENCE_S = 300.0
"""How long a follower retries after the run has ended; while the run is running, it never gives up."""
SETTLE_S = 30.0
"""How long a follower waits, once the run has ended, until every process of it has written its last line."""


class Otlp:
    """The exporter `otlp`; the world it acts in is given, so that tests need no server and no time."""

    name = "otlp"
    what = "OpenTelemetry traces, metrics and logs, to a server over OTLP/HTTP"
    ending: str | None = None

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        post: Posting | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environ, self._post, self._sleep, self._clock = environ, post, sleep, clock

    def export(self, run: Run, output: Path | None, options: ExportOptions) -> Exported:
        """Send what the server has not accepted yet; with `follow`, until the run is over.

        Raises `RequestFailed` or another `FlightlogError` where something was not accepted; what was accepted
        is in the checkpoint, so that the same call resumes there.
        """
        refuse(self.name, options, takes=("endpoint", "follow", "again"))
        if output is not None:
            raise FlightlogError("--to otlp sends to a server: leave the output out, or use --to otlp-json")
        _need_messages()
        environ = os.environ if self._environ is None else self._environ
        where = servers(environ, options.endpoint)
        address = shown(next(iter(where.values())).url).rsplit("/v1/", 1)[0]
        file = checkpoint_file(run.path, (server.url for server in where.values()))
        with alone(file, address):
            sent = Sent(file, address=address, again=options.again)
            post = self._post or Post()
            try:
                delivery = _Delivery(run, where, sent, post, environ, options, self._sleep, self._clock)
                return delivery.follow(address) if options.follow else delivery.once(address)
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
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._run, self._where, self._sent, self._post = run, where, sent, post
        self._options, self._sleep, self._clock = options, sleep, clock
        self._counts: dict[str, int] = {}
        self._refusals: dict[Signal, Refusal] = {}
        self._unwanted: dict[Signal, RequestFailed] = {}
        self._before = sum(sent.notes.taken.values())
        notes = sent.notes
        self._reading = OtlpReader(
            run,
            environ=environ,
            signals=where.keys(),
            taken=sent,
            counted_until_ns=notes.counted_until_ns,
            durations_ns=notes.durations_ns,
            endings=notes.endings,
        )

    def once(self, address: str) -> Exported:
        """Send what there is now."""
        self._deliver(self._run, last=True, patience=self._short_patience)
        return self._result(address)

    def follow(self, address: str) -> Exported:
        """Send what comes, until the run is over and all of it is sent."""
        ended_at: float | None = None

        def patience(_waited_s: float, error: RequestFailed) -> bool:
            nonlocal ended_at
            if ended_at is None and self._run_now().status != "running":
                ended_at = self._clock()
            if not error.temporary and not 500 <= (error.status or 0) < 600:
                return False
            return ended_at is None or self._clock() - ended_at < FOLLOWING_PATIENCE_S

        while True:
            run = self._run_now()
            if run.status != "running":
                ended_at = self._clock() if ended_at is None else ended_at
                if self._settled(run) or self._clock() - ended_at > SETTLE_S:
                    break
            self._deliver(run, last=False, patience=patience)
            self._rest()
        self._deliver(self._run_now(), last=True, patience=patience)
        return self._result(address)

    def _rest(self) -> None:
        """Wait for what comes next, less long where the run closes meanwhile."""
        checksums = self._run.path / layout.CHECKSUMS
        closed = checksums.exists()
        for _ in range(LOOKS):
            self._sleep(POLL_S / LOOKS)
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
        return closed and not any(run.observer.writer_alive(writer) for writer in run.writers())

    def _deliver(self, run: Run, *, last: bool, patience: Callable[[float, RequestFailed], bool]) -> None:
        self._run = run
        for batch in self._reading.batches(run, last=last):
            refusal = Refusal()
            if batch.items:
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
            if batch.items:
                self._sent.save()
                name = NAMES[batch.signal]
                self._counts[name] = self._counts.get(name, 0) + len(batch.items) - refusal.number
                if refusal.number or refusal.message:
                    earlier = self._refusals.get(batch.signal, Refusal())
                    self._refusals[batch.signal] = Refusal(
                        number=earlier.number + refusal.number, message=refusal.message or earlier.message
                    )
                if self._options.progress:
                    self._options.progress(sum(self._counts.values()), None)
        self._sent.save()

    def _send(self, batch: Batch, patience: Callable[[float, RequestFailed], bool]) -> Refusal:
        began, pauses_s = self._clock(), delays_s(FIRST_WAIT_S, LONGEST_WAIT_S, jitter=0.2)
        takes = bool(self._sent.notes.taken.get(batch.signal))
        parts = Parts(self._where[batch.signal], self._reading.resource, batch.items, self._post, takes=takes)
        while True:
            try:
                return parts.send()
            except RequestFailed as error:
                pause = next(pauses_s)
                if error.retry_after_s is not None:
                    pause = max(error.retry_after_s, FIRST_WAIT_S)
                if not patience(self._clock() - began + pause, error):
                    raise
                self._sleep(min(pause, LONGEST_WAIT_S))

    def _short_patience(self, waited_s: float, error: RequestFailed) -> bool:
        heard_of = error.status is not None or bool(self._counts)
        return error.temporary and waited_s <= (PATIENCE_S if heard_of else UNHEARD_PATIENCE_S)

    def _with_advice(self, error: RequestFailed) -> RequestFailed:
        done = ", ".join(f"{number:,} {name}" for name, number in self._counts.items()) or "nothing"
        endpoint = self._options.endpoint
        to = f" --endpoint {shlex.quote(endpoint)}" if endpoint and shown(endpoint) == endpoint else ""
        again = f"flightlog export {shlex.quote(str(self._run.path))} --to otlp{to}"
        message = f"{error}; {done} had been sent by then: `{again}` goes on from there"
        return RequestFailed(message, status=error.status, temporary=error.temporary)

    def _result(self, address: str) -> Exported:
        if self._unwanted and not self._counts and not self._before:
            raise next(iter(self._unwanted.values()))
        if self._refusals:
            refused = "; ".join(
                f"{refusal.number:,} {NAMES[signal]} were refused ({refusal.message or 'no reason given'})"
                for signal, refusal in self._refusals.items()
                if refusal.number
            )
            if refused:
                done = ", ".join(f"{number:,} {name}" for name, number in self._counts.items())
                raise RequestFailed(f"{address}: {refused}; {done} were taken, and will not be sent again")
        notes = [*self._reading.notes()]
        notes += [
            f"{self._where[signal].shown.rsplit('/v1/', 1)[0]} takes no {signal} ({error.status}): left out"
            for signal, error in self._unwanted.items()
        ]
        notes += [
            f"{address} says: {refusal.message}" for refusal in self._refusals.values() if refusal.message
        ]
        if self._sent.problem:
            notes.append(self._sent.problem)
        if self._run.status == "running":
            notes.append("the run is still running: the rest, and its root span, come with the next export")
        if self._before:
            notes.append(
                f"{self._before:,} items were taken before and not sent again (--again sends all)"
                if self._counts
                else (
                    f"nothing new: all of the run was sent before, {self._before:,} items (--again sends all)"
                )
            )
        counts = {
            NAMES[signal]: self._counts.get(NAMES[signal], 0) for signal in SIGNALS if signal in self._where
        }
        return Exported(to="otlp", where=address, counts=counts, notes=tuple(notes))


def _need_messages() -> None:
    from importlib.util import find_spec

    try:
        missing = find_spec("opentelemetry.proto") is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise MissingExtra("--to otlp needs OpenTelemetry's messages: pip install flightlog[otel]")


exporter = Otlp()


_SIGNAL = re.compile(r"/v1/(traces|metrics|logs)(?=\?|$)")


class Checkpoint(Struct, kw_only=True):
    """The document: lines by stream and writer as ranges of their numbers, and how far the rest has come."""

    address: str = ""
    lines: dict[str, dict[str, list[tuple[int, int]]]] = field(default_factory=dict)
    unnumbered: dict[str, int] = field(default_factory=dict)
    counted_until_ns: int = 0
    durations_ns: int = 0
    endings: int = 0
    taken: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


class Sent:
    """What the server has accepted so far. With `path` None it is not stored. `problem` says why the
    checkpoint could not be read or written; sending continues.
    """

    def __init__(self, path: Path | None = None, *, address: str = "", again: bool = False) -> None:
        self.problem: str | None = None
        self._path, self._changed = path, False
        read = None if path is None or again else read_document(path, Checkpoint).value
        if path is not None and read is None and not again and path.is_file():
            self.problem = (
                f"{path} could not be read, where it is noted what was sent before: all of it was sent again"
            )
        self.notes = read or Checkpoint()
        self.notes.address = address
        self._lines = {
            stream: {writer: Coverage.of(ranges) for writer, ranges in writers.items()}
            for stream, writers in self.notes.lines.items()
        }

    def has(self, stream: str, writer: str, number: int) -> bool:
        """Whether a line was accepted before; lines without a number are counted in order."""
        if not writer:
            return number < self.notes.unnumbered.get(stream, 0)
        found = self._lines.get(stream, {}).get(writer)
        return found is not None and number in found

    def accept(self, batch: Batch, refused: int = 0) -> None:
        """Mark a batch as accepted, except this number of items that the server refuses for good."""
        self._changed = True
        for stream, writer, number in batch.marks:
            if writer:
                self._lines.setdefault(stream, {}).setdefault(writer, Coverage()).add(number)
            else:
                self.notes.unnumbered[stream] = max(self.notes.unnumbered.get(stream, 0), number + 1)
        self.notes.counted_until_ns = max(self.notes.counted_until_ns, batch.counted_until_ns)
        self.notes.durations_ns = max(self.notes.durations_ns, batch.durations_ns)
        self.notes.endings += batch.endings
        taken, signal = self.notes.taken, batch.signal
        taken[signal] = taken.get(signal, 0) + len(batch.items) - refused
        if refused:
            self.notes.refused[signal] = self.notes.refused.get(signal, 0) + refused

    def save(self) -> None:
        """Write the checkpoint; where that fails, `problem` says so."""
        if self._path is None or not self._changed:
            return
        self._changed = False
        self.notes.lines = {
            stream: {writer: seen.ranges() for writer, seen in writers.items()}
            for stream, writers in self._lines.items()
        }
        try:
            self._path.parent.mkdir(exist_ok=True)
            write_document(self._path, self.notes)
        except OSError as error:
            self.problem = (
                f"what was sent cannot be noted in {self._path.parent} ({error.strerror or error}): "
                "another export will send it again"
            )


def checkpoint_file(run: Path, addresses: Iterable[str]) -> Path:
    """The checkpoint file of these addresses; its name reveals no address, which may contain secrets.

    One server has one file for all signals: an export of all signals after one of traces sends the rest.
    """
    places = sorted({_SIGNAL.sub("", address, count=1) for address in addresses})
    token = hashlib.sha256("\n".join(places).encode()).hexdigest()[:12]
    return run / layout.FOLLOWERS / f"otlp-{token}.json"


@contextmanager
def alone(path: Path, where: str) -> Iterator[None]:
    """Send to one place from one process at a time; raises `FlightlogError` where another one does.

    A folder that cannot be written guards nothing.
    """
    file = path.with_suffix(".lock")
    try:
        path.parent.mkdir(exist_ok=True)
        lock = try_lock(file, mode=0o644)
    except OSError:
        yield
        return
    if lock is None:
        pid = holder_of(file, 20) or "unknown"
        raise FlightlogError(
            f"the run is being sent to {where} already, by process {pid}: wait until it has ended, "
            "or end that process and send again, which resumes where it stopped"
        )
    try:
        lock.write(f"{os.getpid()}\n".encode())
        yield
    finally:
        lock.release()
