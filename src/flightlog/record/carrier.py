"""Context that travels: which run and which span, as a small mapping of strings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from flightlog.core.interruption import pass_interruption
from flightlog.core.settings import parse_traceparent
from flightlog.record.active import active_runs, current_run
from flightlog.record.span import RootSpan, Span, current, find_parent
from flightlog.record.values import text_of

RUN = "flightlog_run"
TRACEPARENT = "traceparent"


def format_traceparent(trace_id: str, span_id: str) -> str:
    """W3C trace context, version 00, sampled."""
    return f"00-{trace_id}-{span_id}-01"


def carrier() -> dict[str, str]:
    """Where code is now: hand it to `attached` in another thread, process or host. Empty outside any run."""
    run = current_run()
    here = current.get()
    if here is None or here._sink is None:
        here = find_parent(here)
    if run is None or here is None:
        return {}
    return {TRACEPARENT: format_traceparent(here.trace_id, here.span_id), RUN: str(run.path)}


@contextmanager
def attached(context: Mapping[str, str] | None) -> Iterator[None]:
    """Record what happens inside as part of the place a carrier came from.

    In a process that does not record that run yet, it joins it as a writer of its own. A carrier that is
    empty or says nothing useful changes nothing.
    """
    place = _place(context)
    if place is None:
        yield
        return
    before = current.get()
    current.set(place)
    try:
        yield
    finally:
        current.set(before)


def attach(context: Mapping[str, str]) -> None:
    """Attach this context for good: what a new process does first."""
    place = _place(context)
    if place is not None:
        current.set(place)


def _place(context: Mapping[str, str] | None) -> Span | None:
    try:
        if context is None:
            return None
        ids, path = parse_traceparent(context.get(TRACEPARENT)), context.get(RUN)
        if ids is None or not issubclass(type(path), str):
            return None
        path = text_of(path)
        run = next((run for run in active_runs() if str(run.path) == path), None)
        if run is None:
            from flightlog.record.joining import join

            run = join(path)
    except BaseException as error:  # noqa: BLE001 - no carrier of ours, or from nowhere
        pass_interruption(error)
        return None
    if run is None:
        return None
    here = run.recorder.open.get(ids[1])
    return here if here is not None else RootSpan(run.recorder, ids[0], ids[1], parent=run.root)
