"""What a report of a run says: its summary, and where its time went. `report_on` makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flightlog.analyze.report.report import report_on

__all__ = ["report_on"]


def __getattr__(name: str) -> Any:
    if name != "report_on":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flightlog.analyze.report.report import report_on

    return report_on
