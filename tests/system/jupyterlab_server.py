"""A JupyterLab of its own, in an environment of its own, whose kernels are this one's Python."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from printed_address import printed_address

LAB = Path(__file__).parents[2] / ".servers/bin/jupyter-lab"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/")
_QUIET = [
    "--no-browser",
    "--allow-root",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port=0",
    "--ServerApp.port_retries=0",
    "--LabApp.expose_app_in_browser=True",
    "--LabApp.news_url=",
    "--LabApp.extension_manager=readonly",
    "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
]
_SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # every cell is on the page
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@dataclass(frozen=True)
class Lab:
    """A JupyterLab that answers, and the folder it shows."""

    address: str
    token: str
    folder: Path

    @property
    def runs_dir(self) -> Path:
        """Where its kernels record."""
        return self.folder / "runs"

    def place(self, name: str, cells: list[str]) -> str:
        """Write a notebook of these cells into its folder, and give the address at which it is open."""
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(made, self.folder / name)
        return self.at(name)

    def at(self, name: str) -> str:
        """The address of a notebook in its folder, without any that were open before."""
        return f"{self.address}lab/tree/{name}?reset&token={self.token}"


@contextmanager
def jupyterlab(folder: Path, *, plotly: bool = True, timeout_s: float = 90) -> Iterator[Lab]:
    """Start one over a new folder, which nobody enters without its token; it is ended, with its kernels, at
    last.

    It trusts no notebook that another one saved. Without `plotly` it lacks what draws Plotly's figures.
    """
    assert LAB.exists(), f"{LAB} is missing: `make test-system` makes that environment"
    shown, own = folder / "shown", folder / "own"
    shown.mkdir(parents=True)
    _write(
        own / "share/kernels/python3/kernel.json",
        {
            "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "Python 3",
            "language": "python",
        },
    )
    for name, settings in _SETTINGS.items():
        _write(own / f"settings/@jupyterlab/{name}.jupyterlab-settings", settings)
    share = [
        own / "share",
        *([Path(sys.prefix) / "share/jupyter"] if plotly else []),
    ]  # where Plotly put its renderer
    environ = {
        **os.environ,
        "JUPYTER_PATH": os.pathsep.join(map(str, share)),
        "JUPYTER_CONFIG_DIR": str(own / "config"),
        "JUPYTER_DATA_DIR": str(own / "data"),
        "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(own / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(own / "workspaces"),
        "IPYTHONDIR": str(own / "ipython"),
        "FLIGHTLOG_RUNS_DIR": str(shown / "runs"),
    }
    token = secrets.token_hex(16)
    process = subprocess.Popen(
        [str(LAB), *_QUIET, f"--ServerApp.root_dir={shown}", f"--IdentityProvider.token={token}"],
        env=environ,
        cwd=shown,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def end() -> None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):  # it waits for a kernel that just begins
            process.wait(10)
        process.kill()  # kernels end by themselves when it is gone
        process.wait(10)

    with printed_address(process, _ADDRESS, "JupyterLab", timeout_s, end, []) as address:
        yield Lab(address, token, shown)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
