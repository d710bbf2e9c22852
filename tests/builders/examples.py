"""How many examples property tests try whose every example makes a run and reads it."""

from __future__ import annotations

from hypothesis import settings

FEW = settings(max_examples=settings().max_examples // 5)
"""A fifth of what the profile tries of other properties: 5 by default, 20 for `make explore`."""
