"""Displays of runs, sessions and results in notebooks, and the recording of cells."""

from __future__ import annotations

from flightlog.notebook.live import follow

__all__ = ["follow"]
