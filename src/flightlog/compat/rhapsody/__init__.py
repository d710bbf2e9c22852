"""RHAPSODY's session, tasks and telemetry under its own names: change `rhapsody` to
`flightlog.compat.rhapsody`.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from flightlog.compat.rhapsody import api
from flightlog.compat.rhapsody.api import *  # noqa: F403 - all names of the package are names here
from flightlog.compat.rhapsody.backends import BackendRegistry, discover_backends, get_backend
from flightlog.version import __version__

__all__ = ["BackendRegistry", "__version__", "discover_backends", "enable_logging", "get_backend"]
__all__ += api.__all__


FORMAT = "%(asctime)s | %(levelname)-8s | [%(name)s] | %(message)s"


def enable_logging(
    level: int = logging.INFO,
    format_string: str | None = FORMAT,
    stream: Any | None = None,
    force: bool = True,
) -> None:
    """Log to a stream, by default stderr, from this level on; `force` replaces earlier handlers."""
    stream = sys.stderr if stream is None else stream
    logging.basicConfig(level=level, format=format_string or FORMAT, stream=stream, force=force)
    ours = logging.getLogger(__package__)
    ours.setLevel(level)
    handler = logging.StreamHandler(stream)
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(format_string or FORMAT))
    ours.handlers = [handler]
    ours.propagate = False  # the handler above has it already
