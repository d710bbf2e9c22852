"""One context for both: OpenTelemetry's spans inside ours, and ours inside OpenTelemetry's.

Each side keeps the current span in a context variable of its own. The joined context looks at both and takes
the inner one. Of each OpenTelemetry context it notes which span of ours was current when it was attached:
while that is so, OpenTelemetry's span is the inner one; as soon as ours is another, ours is.
"""

from __future__ import annotations

import logging
from contextvars import Token
from typing import Any, cast

import opentelemetry.context as context_api
from opentelemetry.context.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)

from flightlog.core import threads
from flightlog.record import span as spans
from flightlog.record.context import active_runs, current_run
from flightlog.record.span import Span, current, find_parent

log = logging.getLogger("flightlog")

_MARK = context_api.create_key("flightlog-span")
_installing = threads.Lock()


def context_at(here: Span, base: Context) -> Context:
    """The context with a span of ours as the current one, so that OpenTelemetry's spans become its
    children.
    """
    ids = SpanContext(
        int(here.trace_id, 16), int(here.span_id, 16), is_remote=False, trace_flags=TraceFlags(0x01)
    )
    return Context({**set_span_in_context(NonRecordingSpan(ids), base), _MARK: here})


def current_place() -> Span | None:
    """The span of ours, or the run, that code is in here; None outside any run, and where it is not clear."""
    here = current.get()
    if here is not None and here._sink is not None:
        return here
    return find_parent(here) if len(active_runs()) == 1 else None


class JoinedContext:
    """OpenTelemetry's runtime context, joined with ours; does what `base` does outside a run."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def attach(self, context: Context) -> Any:
        """Attach a context; while it is, a span in it that the run knows is the current one for our spans,
        too.
        """
        if not _is_recording():
            return self.base.attach(context)
        token = _Attached()
        try:
            token.before = token.mark = current.get()
            found = _known_span(context)
            if found is not None:
                token.mark = found
                current.set(found)
            context = Context({**context, _MARK: token.mark})
        except Exception:
            log.debug("an OpenTelemetry context was attached without ours", exc_info=True)
        token.base = self.base.attach(context)
        return token

    def detach(self, token: Any) -> None:
        """Go back to before `attach`."""
        if not isinstance(token, _Attached):  # attached before the contexts were joined
            self.base.detach(token)
            return
        if current.get() is token.mark:
            current.set(token.before)
        self.base.detach(token.base)

    def get_current(self) -> Context:
        """The current context, with the inner one of the two current spans."""
        base = cast(Context, self.base.get_current())
        if not _is_recording():
            return base
        try:
            here = current_place()
            return base if here is None or base.get(_MARK) is here else context_at(here, base)
        except Exception:
            log.debug("an OpenTelemetry context was taken without ours", exc_info=True)
            return base


def _is_recording() -> bool:
    """Whether this process records a run; one that was started inside a run joins it now."""
    try:
        return bool(active_runs()) or (spans._mode == spans.UNSURE and current_run() is not None)
    except Exception:  # whatever keeps it from joining
        log.debug("no run was joined", exc_info=True)
        return False


class _Attached:
    """What `detach` needs."""

    base: Token[Context] | None = None
    before: Span | None = None
    mark: Span | None = None


def _known_span(context: Context) -> Span | None:
    """The open span of an active run that the context's current span is."""
    ids = get_current_span(context).get_span_context()
    if not ids.is_valid:
        return None
    span_id = f"{ids.span_id:016x}"
    for run in reversed(active_runs()):
        found = run.root if run.root.span_id == span_id else run.recorder.open.get(span_id)
        if found is not None and found._sink is not None:
            return found
    return None


def join_contexts(api: Any = context_api) -> bool:
    """Join the contexts of this process, once; whether they are joined. One warning where they cannot be."""
    with _installing:
        base = getattr(api, "_RUNTIME_CONTEXT", None)
        if isinstance(base, JoinedContext):
            return True
        if not all(hasattr(base, name) for name in ("attach", "detach", "get_current")):
            log.warning(
                "this version of OpenTelemetry keeps its context where Flightlog does not find it: its spans "
                "are recorded, but do not become children of Flightlog's in what it exports itself"
            )
            return False
        api._RUNTIME_CONTEXT = JoinedContext(base)
        return True
