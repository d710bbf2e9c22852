"""The errors that Flightlog raises, after the run: the public place of `core/errors.py`."""

from flightlog.core.errors import *  # noqa: F403 - its `__all__` says what
