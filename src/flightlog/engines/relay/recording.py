"""Recording where the run directory is not seen: into a spool on the worker's host, and from there home in
chunks.

On the worker, `place_here` says where to record; `settle` waits until everything has been sent, `depart` does
that and leaves the run. Where the run directory is, a `ChunkReceiver` takes the chunks. What carries them is
the engine's: `send`.

What `send` should be: it is called on a thread of the relay's own, one chunk at a time, and returns when the
chunk has been handed over for good; so it may take its time, and should wait rather than let chunks pile up
in memory. Where it raises, the chunk is sent again later. A chunk may arrive twice, and chunks in any
order.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from flightlog.core.settings import parse_traceparent
from flightlog.engines.relay.receiver import ChunkReceiver
from flightlog.engines.relay.sender import Spool, SpoolSender, make_spool, spool_root, take_orphans
from flightlog.record.context import RUN, TRACEPARENT, active_runs
from flightlog.record.joining import leave_run
from flightlog.store import layout
from flightlog.store.documents import read_document

__all__ = ["ChunkReceiver", "depart", "place_here", "settle"]

log = logging.getLogger("flightlog")

ORPHANS_S = 2.0
"""How often a process looks for what killed ones of the same run have left on its host."""
EXIT_S = 2.0
"""How long a process that ends waits for its last chunks to be taken."""
MAX_KNOWN = 10_000

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


def settle(timeout_s: float, *, again: bool = False) -> bool:
    """Send everything that was recorded here so far, now; whether that was done in time. Never raises.

    `again` sends everything from its beginning: where chunks are known to have been lost on their way. It
    waits: so not on an event loop that `send` needs.
    """
    return _settle(list(_shippers.values()), timeout_s, again=again)


def depart(place: Mapping[str, str] | None = None, timeout_s: float = 10.0) -> bool:
    """Leave the run of a place, or all: its files are closed here, sent, and the spool removed; whether all
    was sent in time.

    What could not be sent goes on being sent. The run may be recorded here again, into a new spool. Never
    raises. It waits: so not on an event loop that `send` needs.
    """
    ids = parse_traceparent((place or {}).get(TRACEPARENT))
    return _depart(None if ids is None else ids[0], timeout_s)


def _depart(trace_id: str | None, timeout_s: float, *, retry: bool = True) -> bool:
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
    return _settle(leaving, timeout_s, retry=retry)


def _settle(
    shippers: list[SpoolSender], timeout_s: float, *, again: bool = False, retry: bool = True
) -> bool:
    until = time.monotonic() + timeout_s
    tickets = [(one, one.ask(again=again)) for one in shippers]
    sent = [one.wait(ticket, max(until - time.monotonic(), 0), retry=retry) for one, ticket in tickets]
    return all(sent)


def _look(key: _Key, span_id: str, send: Send, root: Path | None) -> str:
    """Find out whether a run directory is seen from here, or make a spool for it."""
    path, trace_id = key
    seen = _is_seen(Path(path), trace_id)
    with _lock:
        known = _known.get(key)
        if known is not None:
            return known
        if len(_known) >= MAX_KNOWN:
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

        def look_around() -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + ORPHANS_S
                _take_over(home, trace_id, send)

        _start(spool, send, orphaned=False, look_around=look_around)
        _known[key] = str(spool.run)
        return _known[key]


def _take_over(root: Path, trace_id: str, send: Send) -> None:
    """Send what processes of the same run left here that were killed."""
    with _lock:
        for spool in take_orphans(root, trace_id, _shippers.keys()):
            _start(spool, send, orphaned=True)


def _start(
    spool: Spool, send: Send, *, orphaned: bool, look_around: Callable[[], None] = lambda: None
) -> None:
    _shippers[spool.name] = SpoolSender(
        spool,
        send,
        orphaned=orphaned,
        flush=lambda: _flush(spool.run),
        look_around=look_around,
        on_end=lambda: _forget(spool.name),
        trouble=_tell,
    )


def _forget(name: str) -> None:
    with _lock:
        _shippers.pop(name, None)


def _flush(path: Path) -> None:
    """Bring what this process has recorded into its files."""
    for run in active_runs():
        if run.path == path:
            run.recorder.files.flush()


def _is_seen(path: Path, trace_id: str) -> bool:
    info = read_document(path / layout.RUN, layout.RunInfo).value
    return info is not None and info.trace_id == trace_id and os.access(path, os.W_OK | os.X_OK)


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
    _depart(None, EXIT_S, retry=False)


def _after_fork() -> None:
    """A child sends nothing of its parent's, who does it; asked for a place it makes a spool of its own."""
    global _lock
    _lock = threading.Lock()
    _known.clear()
    _shippers.clear()


os.register_at_fork(after_in_child=_after_fork)
