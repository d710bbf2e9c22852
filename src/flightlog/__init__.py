"""Flightlog: the flight recorder for Python compute.

`record` starts a run, `span` says what code does inside it, `open_run` reads one back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flightlog.version import __version__

try:
    from flightlog.events import define_event
    from flightlog.record.context import attached, carrier, current_run
    from flightlog.record.recording import record
    from flightlog.record.span import current_span, span
except ImportError as problem:
    from flightlog.core.threads import in_main_interpreter

    if TYPE_CHECKING or in_main_interpreter():
        raise
    from flightlog.unrecorded import (
        attached,
        carrier,
        current_run,
        current_span,
        define_event,
        record,
        say,
        span,
    )

    say(problem)

if TYPE_CHECKING:
    from flightlog.analyze.advice.advise import advise
    from flightlog.analyze.compare.compare import compare
    from flightlog.analyze.diagnosis.diagnose import diagnose
    from flightlog.analyze.diagnosis.score import diagnose_text
    from flightlog.analyze.history.trends import trends
    from flightlog.analyze.predict.predict import predict
    from flightlog.analyze.report.report import report
    from flightlog.engines.dask.watch import watch
    from flightlog.record.collector import Collector
    from flightlog.record.device.tracking import track_device_memory
    from flightlog.session.cache.decorator import cacheable
    from flightlog.session.session import Session
    from flightlog.store.completing import open_run
    from flightlog.store.run import Run

_LAZY = {
    "Collector": "flightlog.record.collector",
    "Run": "flightlog.store.run",
    "Session": "flightlog.session.session",
    "advise": "flightlog.analyze.advice.advise",
    "cacheable": "flightlog.session.cache.decorator",
    "compare": "flightlog.analyze.compare.compare",
    "diagnose": "flightlog.analyze.diagnosis.diagnose",
    "diagnose_text": "flightlog.analyze.diagnosis.score",
    "open_run": "flightlog.store.completing",
    "predict": "flightlog.analyze.predict.predict",
    "report": "flightlog.analyze.report.report",
    "track_device_memory": "flightlog.record.device.tracking",
    "trends": "flightlog.analyze.history.trends",
    "watch": "flightlog.engines.dask.watch",
}

__all__ = [
    "Collector",
    "Run",
    "Session",
    "__version__",
    "advise",
    "attached",
    "cacheable",
    "carrier",
    "compare",
    "current_run",
    "current_span",
    "define_event",
    "diagnose",
    "diagnose_text",
    "open_run",
    "predict",
    "record",
    "report",
    "span",
    "track_device_memory",
    "trends",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'flightlog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext flightlog`: record the cells of this notebook as a run."""
    from flightlog.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext flightlog`: end that run."""
    from flightlog.notebook.extension import unload

    unload(shell)
