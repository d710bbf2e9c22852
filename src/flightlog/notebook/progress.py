"""How far a session is, as a display in the notebook that is updated while somebody waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flightlog.notebook.elements import fragment
from flightlog.notebook.sessions import counts_html
from flightlog.notebook.updating import Shown, show_from_here, show_here

if TYPE_CHECKING:
    from flightlog.session.eta import Eta
    from flightlog.session.tracking import Counts

log = logging.getLogger("flightlog")

EVERY_S = 0.5


@contextmanager
def displayed(
    counts: Callable[[], Counts],
    eta: Callable[[], Eta | None] | None = None,
    *,
    show: Callable[[str], Shown] = show_here,
    every_s: float = EVERY_S,
) -> Iterator[None]:
    """Show how far the tasks are, twice a second, and at the end how they ended; nothing for what is over
    sooner.

    One thread draws. Where a display fails, it is said once and no more is drawn; the tasks go on.
    """
    over, show = threading.Event(), show_from_here(show)

    def draw() -> None:
        shown: Shown | None = None
        try:
            while not over.wait(every_s):
                html = fragment(counts_html(counts(), eta() if eta is not None else None))
                if shown is None:
                    shown = show(html)
                else:
                    shown.update(html)
            if shown is not None:
                shown.update(fragment(counts_html(counts())))
        except Exception:  # whatever the front end met, the tasks are not its business
            log.warning("the progress of the session cannot be displayed", exc_info=True)

    drawing = threading.Thread(target=draw, name="flightlog-progress", daemon=True)
    drawing.start()
    try:
        yield
    finally:
        over.set()
        drawing.join(2.0)
