"""A real kernel: interrupts, `await`, the end of the kernel, and what the package does not import."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from flightlog.events import TaskCancelled, TaskCompleted, TaskFailed
from flightlog.store.catalogue import list_runs
from flightlog.store.run import Run


class Kernel:
    """A kernel and what it says."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client

    def execute(self, source: str, *, interrupt_when: str | None = None) -> str:
        """Execute a cell and give all that it printed; interrupt it once it has printed that."""
        asked = self.client.execute(source)
        said = ""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                said += content["text"]
                if interrupt_when is not None and interrupt_when in said:
                    interrupt_when = None
                    self.manager.interrupt_kernel()
            elif message["msg_type"] == "error":
                said += f"{content['ename']}: {content['evalue']}"
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return said


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    environ = {
        **os.environ,
        "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    environ["JPY_SESSION_NAME"] = "work/fit.ipynb"
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environ, cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield Kernel(manager, client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


def ends(folder: Path) -> list[tuple[str, str]]:
    [entry] = list_runs(folder)
    found = [
        e
        for e in Run(entry.path).events("tasks")
        if isinstance(e, TaskCompleted | TaskFailed | TaskCancelled)
    ]
    return [(type(event).__name__, event.args["source"]) for event in found]


def test_interrupted_cells_are_cancelled_and_the_run_completes_when_the_kernel_ends(kernel, tmp_path):
    kernel.execute("%load_ext flightlog")
    kernel.execute("import asyncio, os, signal\ninterrupt = lambda: os.kill(os.getpid(), signal.SIGINT)")
    kernel.execute("await asyncio.sleep(60, asyncio.get_running_loop().call_soon(interrupt))")
    kernel.execute("print('go', flush=True); import time; time.sleep(60)", interrupt_when="go")
    assert kernel.execute("1/0") == "ZeroDivisionError: division by zero"
    kernel.execute("x = 1")
    kernel.client.shutdown()
    assert kernel.manager.provisioner.process.wait(30) == 0
    assert ends(tmp_path / "runs") == [
        ("TaskCompleted", "import asyncio, os, signal"),
        ("TaskCancelled", "await asyncio.sleep(60, asyncio.get_running_loop().call_soon(interrupt))"),
        ("TaskCancelled", "print('go', flush=True); import time; time.sleep(60)"),
        ("TaskFailed", "1/0"),
        ("TaskCompleted", "x = 1"),
    ]
    [entry] = list_runs(tmp_path / "runs")
    assert (entry.project, entry.status) == ("fit", "completed")


def test_a_killed_kernel_leaves_every_cell_it_ran(kernel, tmp_path):
    kernel.execute("%load_ext flightlog")
    kernel.execute("x = 1")
    kernel.execute("y = 2")
    kernel.manager.signal_kernel(signal.SIGKILL)
    kernel.manager.provisioner.process.wait(30)
    assert ends(tmp_path / "runs") == [("TaskCompleted", "x = 1"), ("TaskCompleted", "y = 2")]
    [entry] = list_runs(tmp_path / "runs")
    assert entry.status == "crashed"


SESSION = """
from flightlog import Session
open("flightlog.yaml", "w").write(
    "version: 1\\nproject: {name: sweep}\\ntargets: "
    "{local: {provider: local, max_workers: 1, processes: false}}"
)
session = Session("flightlog.yaml")
print(session.client.gather(session.client.map(abs, [-1, -2])))
"""


def test_a_session_left_open_ends_with_the_kernel_and_not_with_a_cell_that_failed_before(kernel, tmp_path):
    assert kernel.execute(SESSION) == "[1, 2]\n"
    assert kernel.execute("1/0") == "ZeroDivisionError: division by zero"
    kernel.client.shutdown()
    assert kernel.manager.provisioner.process.wait(30) == 0
    [entry] = list_runs(tmp_path / "runs")
    assert (entry.project, entry.status) == ("sweep", "completed")


def test_importing_the_package_in_a_notebook_imports_nothing_heavy_and_displays_nothing(kernel):
    said = kernel.execute(
        "import sys; before = set(sys.modules); import flightlog\n"
        "heavy = {'duckdb', 'plotly', 'pandas', 'rich', 'nicegui', 'textual', 'matplotlib'}\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} & heavy))"
    )
    assert said == "[]\n"
    with pytest.raises(Empty):
        kernel.client.get_iopub_msg(timeout=0.1)
