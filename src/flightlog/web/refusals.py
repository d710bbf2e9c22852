"""What the door says to whom it does not let in, in plain words."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """One reason not to answer."""

    status: int
    reason: str
    title: str
    text: str
    form: bool = False

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that belong to the status."""
        return [(b"www-authenticate", b'Bearer realm="flightlog"')] if self.status == 401 else []


NO_TOKEN = Refusal(
    401,
    "token needed",
    "This dashboard needs its token",
    "`flightlog ui` printed a link with the token in it: open that one, or enter the token here. Whoever "
    "started the "
    "dashboard also has it in ~/.local/state/flightlog/dashboard-token.",
    form=True,
)
OTHER_HOST = Refusal(
    403,
    "not a name of this machine",
    "This dashboard answers to this machine only",
    "It was asked for under a name that is not this machine's own. Open it at http://127.0.0.1 or "
    "http://localhost, with its "
    "port. To reach it from elsewhere or through a proxy, start it with its token: flightlog ui, without "
    "--no-token.",
)
OTHER_ORIGIN = Refusal(
    403,
    "another origin",
    "This request came from another site",
    "The dashboard answers to its own pages only. Behind a proxy, have the proxy pass on the Host header "
    "as it came.",
)

_FORM = (
    '<form method="get"><label>Token <input name="token" type="password" autocomplete="current-password" '
    "autofocus>"
    "</label> <button>Open</button></form>"
    '<p>Was it open in this browser before, and did a link of another site lead here? <a href="">Go '
    "on</a>.</p>"
)
GOING_ON = (
    b'<!doctype html><html lang="en"><meta charset="utf-8"><title>Flightlog</title><p>Opening the '
    b"dashboard.</p></html>\n"
)
"""What is seen for a moment between bringing the token and the page that was asked for."""
_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh "
    "auto;padding:0 1.25rem}"
    "h1{font-size:1.3rem}input,button{font:inherit;padding:.35rem .6rem}"
)


def page(refusal: Refusal) -> bytes:
    """The refusal as a page; made of our own words alone, nothing of the request stands in it."""
    form = _FORM if refusal.form else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
        f"<title>{refusal.title}</title><style>{_STYLE}</style><h1>{refusal.title}</h1>"
        f"<p>{refusal.text}</p>{form}</html>\n"
    ).encode()
