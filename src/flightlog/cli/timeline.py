"""Shows which task ran where and when: in the terminal, as a picture, or in Perfetto.

    flightlog timeline                              # in the terminal: a row per worker, a colour per name
    flightlog timeline latest --png timeline.png    # a picture, without a browser
    flightlog timeline latest --svg timeline.svg --width 1600
    flightlog timeline --perfetto                   # every task, span and counter, in Perfetto's UI

In the terminal, a column is a time step, its colour the task name that took most of it, and its shade how
busy the worker was. In a pipe, and where there is no colour, names are letters: capital
where the worker was busy for at least half of the step. Failures, retries and lost workers are marked.

`--png` and `--svg` need the extra `picture`; both may be named at once. The picture is the timeline of the
HTML report (`flightlog report --format html`). Runs with many tasks are drawn by how busy each worker was,
and the picture says so.

`--perfetto` makes the trace of `flightlog export --to perfetto`, starts the browser with
https://ui.perfetto.dev, hands the trace to that page from this machine's port 9001, and ends once it was
fetched, after ten minutes at most. The page works in the browser alone: the trace is sent to no server. Only
pages of that address can read it, under a name that cannot be guessed, and nothing else is served.
`--perfetto-ui` names another address of the UI, such as one of your own.

Over ssh there is no browser to start. Open the connection with `ssh -L 9001:127.0.0.1:9001 HOST`, run the
command there, and open the address that it prints in the browser here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flightlog.cli.limits import CliLimits
from flightlog.cli.options import RunId, RunRef, RunsDir, flag, open_named, option, refuse_alone
from flightlog.cli.output import check_file, note, put_text, text_options
from flightlog.cli.progress import end_progress, progress
from flightlog.core.errors import UsageError
from flightlog.export.perfetto.exporter import PORT, UI, ServedTrace, exporter
from flightlog.show.limits import FigureLimits

if TYPE_CHECKING:
    from flightlog.store.run import Run

DOING = "drawing the timeline"


def timeline(
    run: RunRef = None,
    run_id: RunId = None,
    png: Path | None = option("F", "Write a PNG image to this file."),
    svg: Path | None = option("F", "Write an SVG image to this file."),
    width_px: int = option(
        "N", "Width of the image in pixels.", "--width", default=FigureLimits.picture_width_px
    ),
    height_px: int | None = option(
        "N", "Height of the image in pixels. Default: enough for all rows", "--height"
    ),
    dark: bool = flag("--dark", "Use a dark background."),
    perfetto: bool = flag("--perfetto", "Open the trace in Perfetto's UI."),
    open_: bool | None = flag(
        "--open/--no-open",
        "With --perfetto: start the browser. Default: only if there is a display",
        default=None,
    ),
    port: int = option("N", "Local port that serves the trace to Perfetto's UI.", default=PORT),
    perfetto_ui: str = option("ADDRESS", "Address of Perfetto's UI.", default=UI),
    runs_dir: RunsDir = None,
) -> None:
    """Show which task ran where and when.

    Example: flightlog timeline latest --png timeline.png
    """
    if perfetto and (png or svg):
        raise UsageError(
            "--perfetto opens the trace, and --png and --svg draw a picture: do one after the other"
        )
    if png is None and svg is None:
        wide, high = width_px != FigureLimits.picture_width_px, height_px is not None
        refuse_alone(
            {"--dark": dark, "--width": wide, "--height": high}, "is for a picture: add --png F or --svg F"
        )
    if not perfetto:
        of_trace = {"--open": open_ is not None, "--port": port != PORT, "--perfetto-ui": perfetto_ui != UI}
        refuse_alone(of_trace, "goes with the trace: add --perfetto")
    for path in (png, svg):
        check_file(path)
    opened = open_named(run, run_id, runs_dir=runs_dir)
    if perfetto:
        _in_perfetto(opened, perfetto_ui, port, open_)
        return
    from flightlog.analyze.charts.report_with_charts import timeline_of

    found = timeline_of(opened)
    if png is None and svg is None:
        from flightlog.show.plot import timeline_text

        put_text(timeline_text(found, **text_options()))
        return
    from flightlog.export.base import whole_file
    from flightlog.show.figures.style import with_theme
    from flightlog.show.figures.timeline import timeline_figure
    from flightlog.show.picture import picture
    from flightlog.show.plot import headline

    figure = None if found.timeline is None else timeline_figure(found.timeline, title=headline(found))
    if figure is None:
        raise UsageError(
            f"nothing ran in {found.summary.run.run_id} that was recorded: there is no timeline to draw"
        )
    figure = with_theme(figure, "dark" if dark else "light")
    kinds: dict[Literal["png", "svg"], Path | None] = {"png": png, "svg": svg}
    for kind, path in kinds.items():
        if path is not None:
            made = picture(figure, format=kind, width_px=width_px, height_px=height_px)
            with whole_file(path) as aside:
                aside.write_bytes(made)
            note(f"the timeline is {path}")


def _in_perfetto(
    run: Run, ui: str, port: int, open_: bool | None, wait_s: float = CliLimits.browser_wait_s
) -> None:
    import socket
    import webbrowser
    from tempfile import TemporaryDirectory

    from flightlog.core.units import format_bytes
    from flightlog.export.base import ExportOptions

    with TemporaryDirectory(prefix="flightlog-") as folder:
        trace = Path(folder) / "run.trace.json.gz"
        with ServedTrace(trace, ui=ui, port=port, name=run.run_id) as served:
            with progress("writing the trace") as tell:
                exported = exporter.export(run, trace, ExportOptions(progress=tell))
            for said in exported.notes:
                note(said)
            size = format_bytes(trace.stat().st_size)
            wanted = has_display(os.environ) if open_ is None else open_
            if wanted and webbrowser.open(served.link):
                note(f"the browser opens the trace ({size}); if it does not, open {served.link}")
            else:
                note(f"open this in a browser, within {wait_s / 60:.0f} minutes ({size}): {served.link}")
                note(
                    "to use a browser on another machine: "
                    f"ssh -L {served.port}:127.0.0.1:{served.port} {socket.gethostname()}"
                )
            end_progress()
            if not served.wait(wait_s):
                raise UsageError(
                    f"nothing fetched the trace within {wait_s / 60:.0f} minutes; "
                    "`flightlog export --to perfetto` writes it to a file that Perfetto's UI can open"
                )
            note("Perfetto has loaded the trace")


def has_display(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a browser with a window can be started here: without one, a text browser would take over the
    terminal.
    """
    if platform in {"darwin", "win32"}:
        return not environ.get("SSH_CONNECTION")
    return any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
