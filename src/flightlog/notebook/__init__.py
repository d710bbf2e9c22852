"""How runs, sessions and their answers show themselves in a notebook, and how its cells are recorded."""

from __future__ import annotations

from flightlog.notebook.live import follow

__all__ = ["follow"]
