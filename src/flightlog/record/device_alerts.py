"""Alerts with hysteresis: one when a threshold is reached, and no other before the figure has fallen well
below it.
"""

from __future__ import annotations

from typing import Literal

MARGIN_PERCENT = 5.0


class Alerts:
    """Tells when memory gets short: `observe` each reading in order; not thread-safe.

    A level that was told is told again only after a reading below its threshold less `margin_percent`. A
    reading that reaches both thresholds is critical, and the warning counts as told. None as a threshold
    switches it off.
    """

    def __init__(
        self,
        warning_percent: float | None,
        critical_percent: float | None,
        margin_percent: float = MARGIN_PERCENT,
    ) -> None:
        self._warning, self._critical, self._margin = warning_percent, critical_percent, margin_percent
        self._warned = self._cried = False

    def observe(self, percent: float | None) -> Literal["warning", "critical"] | None:
        """What to tell of this reading; nothing of an unknown one."""
        if percent is None:
            return None
        told: Literal["warning", "critical"] | None = None
        if self._critical is not None and not self._cried and percent >= self._critical:
            told, self._cried, self._warned = "critical", True, True
        elif self._warning is not None and not self._warned and percent >= self._warning:
            told, self._warned = "warning", True
        if self._critical is None or percent < self._critical - self._margin:
            self._cried = False
        if self._warning is None or percent < self._warning - self._margin:
            self._warned = False
        return told
