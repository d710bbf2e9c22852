"""Ray without its notices: what it prints of its own accord would land in the middle of the program's
output.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger("flightlog")


class QuietSubscriber:
    """Takes the notices that Ray would print ("A worker died …") and gives them to the log, for those who
    look there.
    """

    def __init__(self, subscriber: Any) -> None:
        self._subscriber = subscriber

    def poll(self, *args: Any, **options: Any) -> tuple[None, None]:
        """Wait for a notice, and keep it."""
        _, notice = self._subscriber.poll(*args, **options)
        if notice is not None:
            log.debug("Ray says: %s", notice.get("error_message"))
        return None, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subscriber, name)


class Hush:
    """Ray's logger without what is below an error, until `end`: Ray writes to stderr by itself."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("ray")
        self._level = self._logger.level
        self._logger.setLevel(max(self._level, logging.ERROR))

    def end(self) -> None:
        """The logger as it was."""
        self._logger.setLevel(self._level)


@contextmanager
def no_notices(ray: Any) -> Iterator[None]:
    """Connect to Ray inside: this connection brings no notices into the program's output.

    Ray has no switch for them. What they are taken from is its own affair: where it is not as expected, they
    stay.
    """
    inside: Any = getattr(ray, "_raylet", None)
    subscriber = getattr(inside, "GcsErrorSubscriber", None)
    if subscriber is None:
        yield
        return
    inside.GcsErrorSubscriber = lambda *args, **options: QuietSubscriber(subscriber(*args, **options))
    try:
        yield
    finally:
        inside.GcsErrorSubscriber = subscriber
