"""A Plotly figure with a still picture of itself beside it.

What a notebook keeps of a Plotly figure is data that a script draws. Where none runs (a saved notebook on
GitHub, in a mail, or a front end without Plotly's renderer) there is an empty box, or the picture, if one was
kept.
"""

from __future__ import annotations

from base64 import b64encode
from importlib import import_module
from typing import TYPE_CHECKING, Any

from plotly.graph_objects import Figure

from flightlog.core.displayed import in_notebook
from flightlog.notebook.limits import NotebookLimits
from flightlog.show.figures.style import CONFIG, plain_back
from flightlog.show.terminal import clean, fit

if TYPE_CHECKING:
    from plotly.basedatatypes import BaseFigure

WIDTH_PX = 900

DATA, PICTURE, PLAIN = "application/vnd.plotly.v1+json", "image/png", "text/plain"


class DisplayedFigure(Figure):  # type: ignore[misc]  # Plotly has no types
    """A Plotly figure like any other, whose display in a notebook has a picture and a line of text, too.

    The picture is drawn when it is shown, as the figure is then. There is none where Matplotlib is missing,
    or cannot draw what was added to the figure; and `figure.show("png")`, or any other renderer that is asked
    for by name, is Plotly's own.
    """

    def _repr_mimebundle_(self, *args: Any, **options: Any) -> dict[str, Any]:
        return with_picture(self, super()._repr_mimebundle_(*args, **options))

    def _ipython_display_(self) -> None:
        renderers = import_module("plotly.io").renderers
        bundle = self._repr_mimebundle_() if in_notebook() and renderers.render_on_display else {}
        if bundle:
            import_module("IPython.display").display(bundle, raw=True)
        else:
            super()._ipython_display_()  # a browser, or none

    def show(self, *args: Any, **options: Any) -> None:
        """Show the figure; with arguments as Plotly does."""
        if in_notebook() and not args and not options:
            self._ipython_display_()
        else:
            super().show(*args, **options)


def with_picture(figure: BaseFigure, bundle: dict[str, Any]) -> dict[str, Any]:
    """Plotly's display data, with a picture and a line of text for front ends that cannot draw it; empty
    stays empty.
    """
    if not bundle:
        return bundle
    if DATA in bundle:  # the buttons that our pages have, and no way out
        bundle = {**bundle, DATA: {**bundle[DATA], "config": {**bundle[DATA].get("config", {}), **CONFIG}}}
    more = {PLAIN: words_of(figure)}
    if PICTURE not in bundle:
        found = still_of(figure)
        if found is not None:
            more[PICTURE] = b64encode(found).decode("ascii")
    return {**bundle, **{kind: value for kind, value in more.items() if kind not in bundle}}


def still_of(figure: BaseFigure) -> bytes | None:
    """The figure as a PNG file; None where it cannot be drawn, or would be too large to keep."""
    try:
        from flightlog.show.picture import picture

        drawn = picture(figure, width_px=WIDTH_PX, scale=1.0)
    except Exception:  # noqa: BLE001 - whatever somebody made of the figure, it is still shown by Plotly
        return None
    return drawn if len(drawn) <= NotebookLimits.max_picture_bytes else None


def words_of(figure: BaseFigure) -> str:
    """A line about the figure, for a console."""
    title = figure.layout.title.text
    first = plain_back(title).partition("\n")[0] if isinstance(title, str) else ""
    named = f" of {fit(clean(first), 120)}" if first.strip() else ""
    return f"Plotly figure{named}, which a browser draws: .write_html(FILE)"
