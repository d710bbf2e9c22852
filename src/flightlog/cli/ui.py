"""Serves a dashboard of the runs in a folder: all of them, one as it happens, trends, diagnosis and advice.

    flightlog ui
    flightlog ui --runs-dir /data/runs --port 9000 --open
    flightlog ui --runs-dir s3://bucket/runs
    flightlog ui --host 0.0.0.0

It reads the runs' files and nothing else: nothing has to be started, set or open on the side that records, and runs that
began before it are followed as well. It needs the extra `ui`. [The dashboard](../dashboard.md) shows its pages.

It is served to this machine alone. Another `--host` serves it to whoever brings the token, which is printed with the
address. There is no TLS: over a network that others use, keep it on 127.0.0.1 and come by `ssh -L`, or put a reverse
proxy in front of it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Thread
from typing import Annotated, NoReturn

import typer

from flightlog.cli.options import RunsDir, readable_runs_folder
from flightlog.cli.output import note
from flightlog.cli.progress import hand_over

DOING = "starting the dashboard"


def ui(
    runs_dir: RunsDir = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Port to serve at; 0 for any free one. Default: 8420, or the next free one"
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="H", help="Address to serve at.")] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="What every request has to bring. Default: none at 127.0.0.1, else one is made up",
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Serve a dashboard of the runs in a folder.

    Example: flightlog ui --open
    """
    from flightlog.store.runs_folder import place as name_of
    from flightlog.web.serving import Place, is_loopback, listen, needs_ui, serve, token_for

    asked = token_for(host, token)
    folder = readable_runs_folder(runs_dir)
    with needs_ui():
        from flightlog.web.app import make_app
        from flightlog.web.dashboard import Dashboard
    listening = listen(host, port)
    place = Place(host=host, port=listening.getsockname()[1], token=asked)

    def ready() -> None:
        hand_over()
        note(f"dashboard of the runs in {name_of(folder)} at {place.address} (Ctrl-C ends it)")
        if not is_loopback(host):
            note(
                "whoever can read the network can read what is shown, and the token: there is no TLS; `ssh -L` or a reverse"
                " proxy helps"
            )
        if open_:
            Thread(target=_browse, args=(place.address,), daemon=True).start()

    app = make_app(Dashboard(runs_dir), token=asked, host=host)
    with suppress(KeyboardInterrupt):
        serve(app, listening, ready=ready)
    _leave()  # also where the signal is ignored, as in the background of a script: the server ends by it all the same


def _browse(address: str) -> None:
    """Not where requests are answered: some browsers only come back when they are left."""
    import webbrowser

    if not webbrowser.open(address):
        note("no browser could be started here: open the address in one")


def _leave() -> NoReturn:
    """End now: a thread may be in the middle of a long query, which the interpreter would wait for, or abort at."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    os._exit(130)
