"""Recording in a worker: where it records, which samplers run there, and how it leaves the run.

Where the run directory is not seen, it records into a spool on the worker's host, and from there home in
chunks.

On the worker, `place_here` says where to record; `settle` waits until everything has been sent, `depart` does
that and leaves the run. Where the run directory is, a `ChunkReceiver` takes the chunks. What carries them is
the engine's: `send`.

What `send` should be: it is called on a thread of the relay's own, one chunk at a time, and returns when the
chunk has been handed over for good; so it may take its time, and should wait rather than let chunks pile up
in memory. Where it raises, the chunk is sent again later. A chunk may arrive twice, and chunks in any
order.

A spool is just enough of a run directory, on a host that does not see the real one, to record into as usual:

    <temporary folder>/flightlog-spool-<user>/<trace id>/<16 hex>/
      lock                   held by the process that sends it; free when that process is gone
      run-…-a1b2c3d4/        what writers take for the run directory

All writers on the host that were given this spool write here: the process that made it, and its children.
A thread sends it home chunk by chunk, for as long as something is or may be in it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from flightlog.core.locks import FileLock, try_lock
from flightlog.core.settings import parse_traceparent
from flightlog.engines.contract import Work
from flightlog.engines.limits import RelayLimits
from flightlog.engines.processes import ask_psutil
from flightlog.engines.relay.chunks import ROOM_BYTES, Chunk, pack
from flightlog.events import ResourceSample
from flightlog.record.background import Sampling, make_samplers
from flightlog.record.context import RUN, TRACEPARENT, active_runs
from flightlog.record.joining import join, leave_run
from flightlog.record.run import LiveRun
from flightlog.samplers import Sampler
from flightlog.samplers.process import ProcessSampler
from flightlog.store import layout
from flightlog.store.documents import is_leftover, read_document, write_document
from flightlog.store.layout import WriterInfo
from flightlog.store.liveness import here, this_host
from flightlog.store.read.files import entries_of, folder_parts, writer_folders
from flightlog.store.read.writers import read_writer
from flightlog.store.write import finalize

log = logging.getLogger("flightlog")


class WorkerRecording:
    """The runs of one engine, as one of its worker processes has to do with them. Nothing of it raises.
    Thread-safe.

    `send` carries chunks home, for runs whose folder is not to be seen from here.
    """

    def __init__(self, worker: str, home: SampledFrom, send: Callable[[bytes], None]) -> None:
        self._worker, self._home, self._send = worker, home, send
        self._lock = threading.Lock()
        self._joined: dict[str, tuple[dict[str, str], LiveRun | None, Sampling | None]] = {}
        """Of each run, by its path here: its place, the run, and what samples this worker for it."""
        self._relays = False

    def join(self, place: dict[str, str]) -> LiveRun | None:
        """The run of a place, as it is recorded here; None where it cannot be."""
        here = self.at(place)
        return self._joined[here[RUN]][1] if here.get(RUN) in self._joined else None

    def at(self, place: dict[str, str]) -> dict[str, str]:
        """Where an attempt is to be recorded that belongs to this place; the first one joins the run."""
        here = place_here(place, self._send)
        path = here.get(RUN)
        if path is None:
            return here
        self._relays = self._relays or here != place
        try:
            with self._lock:
                if path not in self._joined:
                    self._joined[path] = here, None, None  # also where joining raises: once is enough
                    run = join(path)
                    sampling = None if run is None else sample_worker(run, self._worker, self._home)
                    self._joined[path] = here, run, sampling
        # Recording never keeps a task from running.
        except Exception as error:  # noqa: BLE001
            log.warning("this worker records nothing: %s: %s", type(error).__name__, error)
        return here

    def placed(self, work: Work) -> Work:
        """An attempt with the place where it is to be recorded here."""
        return structs.replace(work, place=self.at(work.place)) if work.place else work

    def settle(self) -> None:
        """Have everything home that was recorded so far, if it has to be carried there."""
        if self._relays:
            settle(RelayLimits.settle_timeout_s)

    def leave(self, timeout_s: float = 10.0) -> None:
        """Close what this process records into: the last samples are taken, files closed, chunks sent."""
        with self._lock:
            joined, self._joined = self._joined, {}
        for path, (place, _, sampling) in joined.items():
            if sampling is not None:
                sampling.stop()
            depart(place, timeout_s)
            leave_run(path)


class SampledFrom(Struct, frozen=True, kw_only=True):
    """The process that made the run, which samples its host and the processes below it; travels to
    workers.
    """

    host: str
    pid: int
    interval_s: float | None
    """None where nothing is to be sampled."""


UNSAMPLED = SampledFrom(host="", pid=0, interval_s=None)


def sampled_from_here(run_path: str | None) -> SampledFrom:
    """What workers have to know of the sampling of a run, in the process that made it."""
    found = None if run_path is None else read_document(Path(run_path) / layout.RUN, layout.RunInfo).value
    interval_s = None if found is None else found.sample_interval_s
    return SampledFrom(host=this_host(), pid=os.getpid(), interval_s=interval_s)


def sample_worker(run: LiveRun, worker: str, home: SampledFrom) -> Sampling | None:
    """Sample this process and the processes below it from now on, in scope `worker`; stop it before the run
    is left.

    On another host than the run's own the machine is sampled too, by one process of all that record the same
    run there. None where there is nothing to do: nothing is sampled, or this is the run's own process, or one
    that it sees among those below it.
    """
    if home.interval_s is None or (
        home.host == this_host() and (home.pid == os.getpid() or is_below(home.pid))
    ):
        return None

    def samplers() -> Sequence[Sampler]:
        own = ProcessSampler(worker=worker)
        if home.host == this_host():
            return [own]
        key = hashlib.sha1(run.info.trace_id.encode()).hexdigest()[:16]
        lock = Path(tempfile.gettempdir()) / f"flightlog-{os.getuid()}-{key}.lock"
        return [own, OncePerHost(lambda: _of_the_host(run), lock)]

    return Sampling(samplers, home.interval_s, run.emit, run.recorder.trouble)


def is_below(pid: int) -> bool:
    """Whether this process runs below another one of this host."""
    return ask_psutil(lambda psutil: any(one.pid == pid for one in psutil.Process().parents()), False)


def _of_the_host(run: LiveRun) -> Sequence[Sampler]:
    return [one for one in make_samplers(run, None) if not isinstance(one, ProcessSampler)]


class OncePerHost:
    """Samplers that sample in one process of a host alone: that which holds the lock. It goes over when that
    one ends.
    """

    def __init__(self, make: Callable[[], Sequence[Sampler]], lock: Path) -> None:
        self._make, self._lock = make, lock
        self._held: FileLock | None = None
        self._samplers: list[Sampler] = []

    def sample(self) -> Sequence[ResourceSample]:
        """What the samplers say, if it is for this process to ask them."""
        if (self._held is None or not self._held.still_held()) and not self._take():
            return ()
        return [sample for sampler in self._samplers for sample in sampler.sample()]

    def close(self) -> None:
        """Let another process do it."""
        for sampler in self._samplers:
            close = getattr(sampler, "close", None)
            if close is not None:
                close()
        if self._held is not None and self._held.still_held():
            with suppress(OSError):
                # While it is held: whoever has it open sees that it is not the file any more.
                self._lock.unlink()
            self._held.release()

    def _take(self) -> bool:
        self._held = _hold(self._lock)
        if self._held is not None and not self._samplers:
            self._samplers = list(self._make())
        return self._held is not None


Send = Callable[[bytes], None]
_Key = tuple[str, str]

_lock = threading.Lock()
_known: dict[_Key, str] = {}
"""Path and trace id of a run, to where it is recorded here; an empty text where the path itself will do."""
_shippers: dict[str, SpoolSender] = {}
"""By the spool's name, all that this process sends: its own, and those it has taken over."""
_registered: int | None = None
_told: set[str] = set()


def place_here(place: dict[str, str], send: Send, *, root: Path | None = None) -> dict[str, str]:
    """Where to record here what belongs to a place: the place itself if its run directory is seen from here.

    Otherwise the same place in a spool on this host, made once for each run and process, whose new content
    `send` carries home in the background. Never raises, and waits for no network; where no spool can be had
    it says so once, and gives the place as it was. Thread-safe; cheap when called again. `root` is the folder
    of spools, by default one of this user's in the temporary folder.
    """
    try:
        path, ids = place.get(RUN), parse_traceparent(place.get(TRACEPARENT))
        if not path or ids is None:
            return place
        known = _known.get((path, ids[0]))
        if known is None:
            known = _look((path, ids[0]), ids[1], send, root)
        return {**place, RUN: known} if known else place
    except Exception as error:  # noqa: BLE001 - the task runs, recorded or not
        _tell("spool", f"what happens here cannot be recorded, for there is no spool: {error!r}")
        return place


def settle(timeout_s: float, senders: Collection[SpoolSender] | None = None, *, retry: bool = True) -> bool:
    """Send everything that was recorded here so far, now, or in the spools of these; whether that was done in
    time, without `retry` by the first try. Never raises.

    It waits: so not on an event loop that `send` needs.
    """
    until = time.monotonic() + timeout_s
    tickets = [(one, one.ask()) for one in (list(_shippers.values()) if senders is None else senders)]
    sent = [one.wait(ticket, max(until - time.monotonic(), 0), retry=retry) for one, ticket in tickets]
    return all(sent)


def depart(place: Mapping[str, str] | None = None, timeout_s: float = 10.0, *, retry: bool = True) -> bool:
    """Leave the run of a place, or all: its files are closed here, sent, and the spool removed; whether all
    was sent in time, without `retry` by the first try.

    What could not be sent goes on being sent. The run may be recorded here again, into a new spool. Never
    raises. It waits: so not on an event loop that `send` needs.
    """
    ids = parse_traceparent((place or {}).get(TRACEPARENT))
    trace_id = None if ids is None else ids[0]
    with _lock:
        leaving = [one for one in _shippers.values() if trace_id in (None, one.spool.trace_id)]
        for key in [key for key in _known if trace_id in (None, key[1])]:
            del _known[key]
    for one in leaving:
        try:
            leave_run(one.spool.run)
        except Exception as error:  # noqa: BLE001 - the worker goes on
            _tell("leave", f"a run could not be left in good order: {error!r}")
        one.depart()
    return settle(timeout_s, leaving, retry=retry)


def is_seen(path: str, trace_id: str) -> bool:
    """Whether this is the run directory of a trace, and can be recorded into from here."""
    info = read_document(Path(path) / layout.RUN, layout.RunInfo).value
    return info is not None and info.trace_id == trace_id and os.access(path, os.W_OK | os.X_OK)


def _look(key: _Key, span_id: str, send: Send, root: Path | None) -> str:
    """Find out whether a run directory is seen from here, or make a spool for it."""
    seen = is_seen(*key)
    path, trace_id = key
    with _lock:
        known = _known.get(key)
        if known is not None:
            return known
        if len(_known) >= RelayLimits.max_known_runs:
            _known.clear()
        if seen:
            _known[key] = ""
            return ""
        _register()
        run_id = Path(path).name
        if not layout.is_run_id(run_id):
            run_id = "run"
        home = root or spool_root()
        spool = make_spool(home, run_id, trace_id, span_id)
        due = 0.0

        def take_over() -> None:
            """Send what processes of the same run left here that were killed."""
            nonlocal due
            if time.monotonic() < due:
                return
            due = time.monotonic() + RelayLimits.orphan_check_interval_s
            with _lock:
                for left in take_orphans(home, trace_id, _shippers.keys()):
                    _shippers[left.name] = SpoolSender(left, send, orphaned=True)

        _shippers[spool.name] = SpoolSender(spool, send, look_around=take_over)
        _known[key] = str(spool.run)
        return _known[key]


def _flush(path: Path) -> None:
    """Bring what this process has recorded into its files."""
    for run in active_runs():
        if run.path == path:
            run.recorder.files.flush()


def _tell(kind: str, message: str) -> None:
    """Say what goes wrong, once for each kind."""
    if kind not in _told:
        _told.add(kind)
        log.warning("%s", message)


def _register() -> None:
    """Send the rest when this process ends, however it does that by itself."""
    global _registered
    if _registered == os.getpid():
        return
    _registered = os.getpid()
    atexit.register(_end)
    if "multiprocessing.util" in sys.modules:  # its children end without atexit
        from multiprocessing.util import Finalize

        Finalize(None, _end, exitpriority=-200)


def _end() -> None:
    """Close, and send what is left if it is taken at once; the rest waits in the spool for another
    process.
    """
    depart(None, RelayLimits.exit_timeout_s, retry=False)


def _after_fork() -> None:
    """A child sends nothing of its parent's, who does it; asked for a place it makes a spool of its own."""
    global _lock
    _lock = threading.Lock()
    _known.clear()
    _shippers.clear()


os.register_at_fork(after_in_child=_after_fork)

LOCK = "lock"


class SpoolSender:
    """Follows a spool that this process holds. Thread-safe; nothing of it raises.

    Memory is bounded: one chunk at a time is read from the spool, which is the queue. `orphaned` says that
    another process made the spool, and is gone. `look_around` is called after each look.
    """

    def __init__(
        self,
        spool: Spool,
        send: Send,
        *,
        orphaned: bool = False,
        look_around: Callable[[], None] = lambda: None,
    ) -> None:
        self.spool = spool
        self._send, self._orphaned, self._look_around = send, orphaned, look_around
        self._files = SpooledFiles(spool.run, spool.trace_id, spool.name)
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._asked = self._done = self._failures = self._waiting = 0
        self._over = False
        self._departing = orphaned
        threading.Thread(target=self._run, name="flightlog-relay", daemon=True).start()

    def ask(self) -> int:
        """Ask for everything to be sent now; gives the ticket to `wait` with."""
        with self._changed:
            self._asked += 1
            self._wake.set()
            return self._asked

    def wait(self, ticket: int, timeout_s: float, *, retry: bool = True) -> bool:
        """Whether all that was there when the ticket was given has been sent; without `retry`, by the first
        try.
        """
        with self._changed:
            failures = self._failures
            self._waiting += 1
            self._wake.set()
            try:
                self._changed.wait_for(
                    lambda: self._done >= ticket or self._over or (not retry and self._failures > failures),
                    timeout_s,
                )
                return self._done >= ticket or self._over
            finally:
                self._waiting -= 1

    def depart(self) -> None:
        """Nothing more will be recorded here into the spool: remove it as soon as all of it has landed."""
        self._departing = True

    def _run(self) -> None:
        delay = 0.0
        while True:
            self._wake.wait(delay)
            self._wake.clear()
            with self._changed:
                asked = self._asked
            try:
                ends = self._pass(asked > self._done)
            except Exception as error:  # noqa: BLE001 - a way home, or a disk: both may work again later
                _tell(
                    "way home",
                    f"what was recorded here waits in {self.spool.home}, and is sent again: {error!r}",
                )
                with self._changed:
                    self._failures += 1
                    longer = min(max(2 * delay, RelayLimits.send_interval_s), RelayLimits.max_retry_pause_s)
                    delay = RelayLimits.awaited_retry_pause_s if self._waiting else longer
                    self._changed.notify_all()
                continue
            if ends:
                self.spool.remove()
                with _lock:
                    _shippers.pop(self.spool.name, None)
            with self._changed:
                self._done, self._over, delay = asked, ends, RelayLimits.send_interval_s
                self._changed.notify_all()
            if ends:
                return
            try:
                self._look_around()
            except Exception as error:  # noqa: BLE001 - what others left is looked for again
                _tell("orphans", f"what killed processes left on this host cannot be looked at: {error!r}")

    def _pass(self, everything: bool) -> bool:
        """Send what is new; whether nothing more can come."""
        self.spool.hold_on()
        living = True
        departing = self._departing
        if departing or everything:
            living = settle_dead(self.spool.run, here().writer_alive, orphaned=self._orphaned)
        for chunk in self._files.chunks(lambda: _flush(self.spool.run), everything=everything):
            self._send(pack(chunk))
        return departing and not living


class SpooledFiles:
    """The files under a spool's run folder, and how far each has been sent. Not thread-safe.

    `clock` gives seconds. Offsets are kept in memory alone: who takes a spool over sends it again from its
    beginning, which changes nothing where it lands.
    """

    def __init__(
        self, run: Path, trace_id: str, spool: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._trace_id, self._spool, self._clock = run, trace_id, spool, clock
        self._sent: dict[str, int] = {}
        self._notes: dict[str, tuple[int, float]] = {}

    def chunks(
        self, flush: Callable[[], None] = lambda: None, *, everything: bool = False
    ) -> Iterator[Chunk]:
        """What is new, in the order in which it should land; asking for the next one says that the last was
        sent.

        Of files that grow, whole lines. Writers' notes, which count lines, are read before the lines (`flush`
        brings what was counted into the files) and come after them: what has landed is never less than what
        is counted. A note that says nothing new but that its writer lives comes every `NOTE_S`, or where
        `everything` is asked for. Raises OSError.
        """
        notes = {writer: _version(folder / layout.WRITER) for folder, writer in writer_folders(self._run)}
        flush()
        for folder, writer in writer_folders(self._run):
            spoken = False
            for name, fd in _line_files(folder, writer):
                for chunk in self._ranges(name, "lines", fd):
                    yield chunk
                    spoken = True
            note = notes.get(writer)
            if note is not None and self._is_due(writer, note, spoken or everything):
                name = f"{layout.SEGMENTS}/{writer}/{layout.WRITER}"
                yield Chunk(self._trace_id, self._spool, name, "document", *note)
                self._notes[writer] = (note[0], self._clock())
        yield from self._bundles()

    def _is_due(self, writer: str, note: tuple[int, bytes], wanted: bool) -> bool:
        version, when = self._notes.get(writer, (-1, 0.0))
        last_word = b'"closed": true' in note[1]
        return note[0] != version and (
            wanted or last_word or version < 0 or self._clock() - when >= RelayLimits.alive_interval_s
        )

    def _ranges(self, name: str, kind: Literal["lines", "bytes"], fd: int) -> Iterator[Chunk]:
        while True:
            start = self._sent.get(name, 0)
            data = os.pread(fd, ROOM_BYTES, start)
            if kind == "lines":
                whole = data.rfind(b"\n") + 1
                if whole or len(data) < ROOM_BYTES:  # a line that fills a chunk goes in pieces
                    data = data[:whole]
            if not data:
                return
            yield Chunk(self._trace_id, self._spool, name, kind, start, data)
            self._sent[name] = start + len(data)

    def _bundles(self) -> Iterator[Chunk]:
        """Files of bundles that are complete; what says what is in one comes last."""
        home = self._run / layout.OOM
        for folder in sorted(home / entry.name for entry in entries_of(home)):
            if folder.name.startswith("."):  # being filled
                continue
            files = [folder / entry.name for entry in entries_of(folder)]
            for file in sorted(files, key=lambda file: (file.suffix == ".json", file.name)):
                if is_leftover(file.name):
                    continue
                name = f"{layout.OOM}/{folder.name}/{file.name}"
                note = _version(file) if file.suffix == ".json" else None
                if note is not None and len(note[1]) <= ROOM_BYTES:
                    if self._sent.get(name) != note[0]:
                        yield Chunk(self._trace_id, self._spool, name, "document", *note)
                        self._sent[name] = note[0]
                    continue
                with file.open("rb", buffering=0) as opened:
                    yield from self._ranges(name, "bytes", opened.fileno())


def settle_dead(run: Path, alive: Callable[[WriterInfo], bool], *, orphaned: bool) -> bool:
    """Bring what killed writers of a spool left in their tails into their files; whether a writer is left
    that lives.

    Their notes say that they died, and what they lost. A writer without a note is taken for dead
    in a spool that is `orphaned`, and for one that just begins in another. Raises OSError.
    """
    living = False
    for folder, writer in writer_folders(run):
        file = folder / layout.WRITER
        note = read_document(file, WriterInfo).value
        if note is not None and note.closed:
            continue
        info = read_writer(folder, writer).value
        if not orphaned if info is None else alive(info):
            living = True
            continue
        finalize.settle(run, {writer: False}, lambda _done: None)
        if info is not None:
            info.died = info.died or not info.closed
            info.closed = True
            write_document(file, info)
    return living


def _line_files(folder: Path, writer: str) -> Iterator[tuple[str, int]]:
    """Each file of lines, open until the next is asked for, by the name it will land under.

    That is the name of a full file, which it keeps when it becomes one.
    """
    home = f"{layout.SEGMENTS}/{writer}"
    for stream in sorted({part.stream for part in folder_parts(folder, writer) if part.kind != "tail"}):
        # Before the full ones are listed: it may become one.
        with _opened(layout.stream_file(folder, stream)) as active:
            full, is_full = _full(folder, writer, stream), False
            for _, path in full:
                with _opened(path) as fd:
                    if fd is not None:
                        is_full = is_full or (active is not None and os.path.sameopenfile(fd, active))
                        yield f"{home}/{path.name}", fd
            if active is not None and not is_full:
                number = full[-1][0] + 1 if full else 1
                yield f"{home}/{layout.rotated_file(folder, stream, number).name}", active


def _full(folder: Path, writer: str, stream: str) -> list[tuple[int, Path]]:
    return sorted(
        (part.number, part.path)
        for part in folder_parts(folder, writer)
        if part.kind == "rotated" and part.stream == stream
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """The descriptor of a file, to be read; None if there is none."""
    with contextlib.ExitStack() as stack:
        file = None
        with contextlib.suppress(FileNotFoundError):
            file = stack.enter_context(path.open("rb", buffering=0))
        yield None if file is None else file.fileno()


def _version(path: Path) -> tuple[int, bytes] | None:
    """When a document was written, in nanoseconds, and what it says; None if there is none."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        return os.fstat(file.fileno()).st_mtime_ns, file.read()
    return None


class Spool:
    """A spool that this process holds, and nobody else. Made by `make_spool` or `take_orphans`."""

    def __init__(self, home: Path, run: Path, trace_id: str, lock: FileLock) -> None:
        self.home, self.run, self.trace_id = home, run, trace_id
        self.name = home.name
        self._lock = lock

    def hold_on(self) -> None:
        """Take the lock again if the program has closed its descriptor, and nobody else has taken it since.

        Where another process has, both send the spool: what arrives twice is taken once.
        """
        if not self._lock.still_held():
            self._lock = _hold(self.home / LOCK, of_process=True) or self._lock

    def release(self) -> None:
        """Leave it to whoever wants to send it."""
        self._lock.release()

    def remove(self) -> None:
        """All of it has landed: leave nothing of it behind. Raises nothing."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.release()
        with contextlib.suppress(OSError):  # others have spools of the run there
            self.home.parent.rmdir()


def spool_root() -> Path:
    """The folder of this user's spools on this host: private, in the temporary folder. Raises OSError."""
    root = Path(tempfile.gettempdir()) / f"flightlog-spool-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{root} is not a folder that only this user can write into")
    return root


def make_spool(root: Path, run_id: str, trace_id: str, span_id: str) -> Spool:
    """A new spool for a run, held by this process; `span_id` stands in for the run's own span. Raises
    OSError.
    """
    for _ in range(RelayLimits.max_spool_tries):
        home = root / trace_id / os.urandom(8).hex()
        # The last spool there was removed between two steps of ours.
        with contextlib.suppress(FileNotFoundError):
            home.mkdir(mode=0o700, parents=True)
            lock = _hold(home / LOCK, of_process=True)
            if lock is not None:  # nobody has looked into it between two steps of ours
                break
    else:
        raise BlockingIOError(f"no spool can be made in {root / trace_id}")
    run = home / run_id
    run.mkdir()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    info = layout.RunInfo(
        run_id=run_id, project=run_id, status="running", start_time=now, trace_id=trace_id, span_id=span_id
    )
    write_document(run / layout.RUN, info)
    return Spool(home, run, trace_id, lock)


def take_orphans(root: Path, trace_id: str, own: Collection[str]) -> list[Spool]:
    """The spools of a run on this host whose process is gone, held by this process from now on.

    `own` are the names of those it holds already: a lock is a process's, so looking at them would let them
    go.
    """
    taken = []
    for home in _folders(root / trace_id):
        if home.name in own:
            continue
        lock = _hold(home / LOCK, of_process=True)
        if lock is None:
            continue
        run = next((one for one in _folders(home) if (one / layout.RUN).exists()), None)
        info = read_document(run / layout.RUN, layout.RunInfo).value if run is not None else None
        # It is being made, or was and nobody came back.
        if run is None or info is None or info.trace_id != trace_id:
            if time.time() - home.stat().st_mtime > RelayLimits.abandoned_spool_age_s:
                shutil.rmtree(home, ignore_errors=True)
            lock.release()
            continue
        taken.append(Spool(home, run, trace_id, lock))
    return taken


def _hold(path: Path, *, of_process: bool = False) -> FileLock | None:
    """A lock, which goes with this process and not to its children where it is `of_process`; None where
    another process has it, and where the file system has no locks.
    """
    try:
        lock = try_lock(path, of_process=of_process)
    except OSError:
        return None
    return lock if lock is not None and lock.enforced else None


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder / entry.name for entry in entries_of(folder) if entry.is_dir())
    except OSError:
        return []
