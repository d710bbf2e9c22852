"""Serves a dashboard of the runs in a folder: all of them, one as it happens, trends, diagnosis and advice.

    flightlog ui
    flightlog ui --runs-dir /data/runs --port 9000 --open
    flightlog ui --runs-dir s3://bucket/runs
    flightlog ui --host 0.0.0.0

It reads the runs' files and nothing else: nothing has to be started, set or open on the side that records,
and runs that began before it are followed as well. It needs the extra `ui`. [The dashboard](../dashboard.md)
shows its pages.

It prints a link with an access token, so that other users of the machine cannot
read your runs. The token is made at the first start and kept in `~/.local/state/flightlog/dashboard-token`
(`XDG_STATE_HOME` counts), so that a bookmark of the link works after a restart; remove the file to get
another token. `--no-token` switches it off.

It is served to this machine alone; `--host` serves it to others who have the link. There is no TLS: over a
network that others use, keep it on 127.0.0.1 and use `ssh -L`, or put a reverse proxy in front of it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, NoReturn

from flightlog.cli.options import RunsDir, flag, option, readable_runs_folder
from flightlog.cli.output import note
from flightlog.cli.progress import end_progress

if TYPE_CHECKING:
    from flightlog.web.serving import ServerAddress

DOING = "starting the dashboard"
OPENING = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Flightlog</title>'
    '<meta http-equiv="refresh" content="0;url={address}"><p><a href="{address}">Open the '
    "dashboard</a></p></html>\n"
)
_OPENED = "opened in the browser; where it shows no dashboard, open the link"


def ui(
    runs_dir: RunsDir = None,
    port: int | None = option(
        "N", "Port to listen on; 0 for any free port. Default: 8420, or the next free port"
    ),
    host: str = option("H", "Address to listen on.", default="127.0.0.1"),
    token: str | None = option("T", "Access token. Default: your own, kept in ~/.local/state/flightlog"),
    no_token: bool = flag(
        "--no-token", "Require no access token: every user of this machine can read the runs."
    ),
    open_: bool = flag("--open", "Open the dashboard in the browser."),
) -> None:
    """Watch and browse runs in a web dashboard.

    Example: flightlog ui --open
    """
    from flightlog.store.runs_folder import place as name_of
    from flightlog.web.access import is_loopback, token_for
    from flightlog.web.serving import ServerAddress, listen, needs_ui, serve

    asked = token_for(token, none=no_token, loopback=is_loopback(host))
    folder = readable_runs_folder(runs_dir)
    with needs_ui():
        from flightlog.web.app import make_app
        from flightlog.web.dashboard import Dashboard
    listening = listen(host, port)
    place = ServerAddress(host=host, port=listening.getsockname()[1], token=asked.value)

    def ready() -> None:
        end_progress()
        note(f"dashboard of the runs in {name_of(folder)} at {place.address} (Ctrl-C ends it)")
        if asked.note is not None:
            note(asked.note)
        if not is_loopback(host):
            note(
                "whoever can read the network can read what is shown, and the token: there is no TLS; `ssh "
                "-L` or a reverse proxy helps"
            )
        if open_:
            Thread(target=_browse, args=(place,), daemon=True).start()

    app = make_app(Dashboard(runs_dir), token=asked.value, host=host)
    with suppress(KeyboardInterrupt):
        serve(app, listening, ready=ready)
    _leave()  # also where the signal is ignored, as in the background of a script


def _browse(place: ServerAddress) -> None:
    """Not where requests are answered: some browsers only come back when they are left.

    The browser is given a private page that leads to the dashboard: its command line, which all users of the
    machine can read, would show the token.
    """
    import webbrowser

    from flightlog.web.access import private_folder, write_private

    address = place.address
    try:
        if place.token is not None:
            page = private_folder() / "open-dashboard.html"
            write_private(page, OPENING.format(address=place.address), replace=True)
            address = page.as_uri()
        opened = webbrowser.open(address)
    except OSError:
        opened = False
    note("no browser could be started here: open the link in one" if not opened else _OPENED)


def _leave() -> NoReturn:
    """End now: a thread may be in the middle of a long query, which the interpreter would wait for, or abort
    at.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    os._exit(130)
