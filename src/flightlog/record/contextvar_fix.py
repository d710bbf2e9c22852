"""Python 3.11 can lose a thread's context variables; while a run is recorded, it cannot.

There, setting a context variable may start a garbage collection in its middle. Code that runs inside that
collection (a finalizer, or a signal handler that a collection's callback lets in) and sets one as well takes
away the memory the first setting still reads, and with bad luck all variables of the thread are gone, the
user's own included. Spans set a context variable each, so they would bring it about. Holding a copy of the
context from the beginning of each collection keeps that memory alive. From Python 3.12 on collections start
between instructions only.
"""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from contextvars import Context, copy_context
from functools import partial
from typing import Any

_NEEDED = sys.version_info < (3, 12)

_kept: defaultdict[str, Context] = defaultdict(copy_context)


class _Keeper:
    """Each attribute asked for is a copy of the context, kept until the next one of that name."""

    __getattribute__: Any = _kept.__missing__


# The callback is C from end to end: a function of ours would be a place for signal handlers to come in.
_keep = partial(getattr, _Keeper())


def guard_contexts() -> None:
    """Begin, before all other callbacks."""
    if _NEEDED and _keep not in gc.callbacks:
        gc.callbacks.insert(0, _keep)


def stop_guarding() -> None:
    """Let go."""
    if _keep in gc.callbacks:
        gc.callbacks.remove(_keep)
        _kept.clear()
