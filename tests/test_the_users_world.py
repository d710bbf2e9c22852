"""What belongs to the user's program stays as it is, whatever of Flightlog it uses: random numbers, locale,
signals, limits, paths, logging, warnings, environment, and everything else that a whole process shares."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

WORLD = '''
import asyncio, decimal, faulthandler, gc, json, locale, logging, multiprocessing, os, random, resource
import signal, socket, sys, tempfile, threading, time, warnings

import numpy


def snapshot():
    """Everything that a process shares and a library can change, as texts that can be compared."""
    umask = os.umask(0)
    os.umask(umask)
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    legacy = numpy.random.get_state()
    shared = {
        "random": random.getstate(),
        "numpy.random": (legacy[0], legacy[1].tolist(), *legacy[2:]),
        "numpy.errors": numpy.geterr(),
        "locale": locale.setlocale(locale.LC_ALL),
        "signal mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "signal handlers": {one.name: signal.getsignal(one) for one in signal.valid_signals()
            if isinstance(one, signal.Signals)},
        "signal wake-up": wakeup,
        "timers": [signal.getitimer(which) for which in (signal.ITIMER_REAL, signal.ITIMER_PROF)],
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "sys.path": sys.path,
        "sys.meta_path": sys.meta_path,
        "sys.path_hooks": sys.path_hooks,
        "hooks": [sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook],
        "tracing": [sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()],
        "streams": [sys.stdin, sys.stdout, sys.stderr],
        "root logger": [logging.root.handlers, logging.root.filters, logging.root.level],
        "logging": [logging.root.manager.disable, logging.getLoggerClass(), logging.getLogRecordFactory(),
            logging.lastResort, logging.raiseExceptions, logging.getLevelName(15)],
        "warnings": [warnings.filters, warnings.showwarning, warnings.formatwarning],
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "umask": umask,
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "limits": [resource.getrlimit(which) for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE,
            resource.RLIMIT_STACK, resource.RLIMIT_AS)],
        "decimal": decimal.getcontext(),
        "garbage collection": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count()],
        "garbage collection callbacks": gc.callbacks,
        "asyncio": asyncio.events._event_loop_policy,
        "multiprocessing": multiprocessing.get_start_method(allow_none=True),
        "threads": [threading.stack_size(), threading.current_thread().name],
        "sockets": socket.getdefaulttimeout(),
        "faulthandler": faulthandler.is_enabled(),
        "temporary files": tempfile.tempdir,
        "time zone": time.tzname,
        "builtins": [print, open, __import__, input],
        "main module": sorted(name for name in vars(sys.modules["__main__"]) if name.startswith("__")),
    }
    parts = {name: value if isinstance(value, dict) else {"": value} for name, value in shared.items()}
    return {f"{name} {part}".strip(): repr(value) for name, of in parts.items() for part, value in of.items()}


def changed(before, after):
    names = sorted(before.keys() | after.keys())
    both = {name: [before.get(name), after.get(name)] for name in names}
    return {name: [str(one)[:200] for one in two] for name, two in both.items() if two[0] != two[1]}


tempfile.gettempdir()
asyncio.get_event_loop_policy()
random.seed(7)
numpy.random.seed(7)
inside = None


def look():
    """Remember what the world is like now, while Flightlog is at work."""
    global inside
    inside = snapshot()
'''

ENDING = """
if __name__ == "__main__":
    before = snapshot()
    scenario()
    after = snapshot()
    print(json.dumps({"inside": changed(before, inside or before), "after": changed(before, after)}))
"""

WORK = """
def double(number):
    return 2 * number
"""

MANIFEST = """
version: 1
project: {name: world}
targets:
  local: {provider: local, max_workers: 2, processes: %s}
"""

RECORDED = """
def scenario():
    import flightlog
    with flightlog.record("world", sample_interval_s=0.05) as run:
        with flightlog.span("outer", size=3) as span:
            span.metrics["loss"] = 0.5
        with run.task("sim", number=1):
            pass
        run.metric("loss", 0.25, step=1)
        run.event("note", text="here")
        time.sleep(0.2)
        look()
"""

SESSION = """
def scenario():
    from flightlog import Session
    with Session.from_yaml("flightlog.yaml", target="local") as session:
        assert session.client.gather(session.client.map(double, range(4))) == [0, 2, 4, 6]
        look()
"""

SCENARIOS = {
    "importing": ("", "def scenario():\n    import flightlog\n    dir(flightlog)\n    look()\n"),
    "record": ("", RECORDED),
    "live events and alerts": (
        "",
        """
def scenario():
    import flightlog
    heard = []
    with flightlog.record("world") as run:
        run.subscribe(heard.append)
        run.alert("loss is NaN", heard.append)
        run.metric("loss", 0.5)
        next(run.follow(events="metric"))
        look()
    assert heard
""",
    ),
    "record that fails": (
        "",
        """
def scenario():
    import flightlog
    try:
        with flightlog.record("world"):
            raise ValueError("no")
    except ValueError:
        look()
""",
    ),
    "a session on processes": (MANIFEST % "true", SESSION),
    "a session on threads": (MANIFEST % "false", SESSION),
    "a session on an executor": (
        MANIFEST % "false",
        """
from concurrent.futures import ThreadPoolExecutor
def scenario():
    from flightlog import Session
    with ThreadPoolExecutor(2) as pool, Session(engine=pool) as session:
        assert session.client.gather(session.client.map(double, range(4))) == [0, 2, 4, 6]
        look()
""",
    ),
    "an async session": (
        MANIFEST % "false",
        """
async def work():
    from flightlog import Session
    async with Session.from_yaml("flightlog.yaml", target="local") as session:
        assert await session.client.submit(double, 2) == 4
        look()
def scenario():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(work())
    loop.close()
""",
    ),
    "watch": (
        "",
        """
import distributed
from distributed.deploy.subprocess import SubprocessCluster  # a scheduler draws from `random`
def scenario():
    import flightlog
    with SubprocessCluster(worker_kwargs={"nthreads": 1}, dashboard_address=":0") as cluster:
        with distributed.Client(cluster) as client, flightlog.record("world"), flightlog.watch(client):
            assert client.submit(double, 2).result() == 4
            look()
""",
    ),
    "a session on Dask": (
        "version: 1\nproject: {name: world}\ntargets:\n  there: {provider: dask, address: '${ADDRESS}'}\n",
        """
import distributed
from distributed.deploy.subprocess import SubprocessCluster
def scenario():
    from flightlog import Session
    with SubprocessCluster(worker_kwargs={"nthreads": 1}, dashboard_address=":0") as cluster:
        environ = {**os.environ, "ADDRESS": cluster.scheduler_address}
        with Session.from_yaml("flightlog.yaml", target="there", environ=environ) as session:
            assert session.client.gather(session.client.map(double, range(4))) == [0, 2, 4, 6]
            look()
""",
    ),
    "cacheable": (
        "",
        """
def scenario():
    import flightlog
    cached = flightlog.cacheable(double)
    with flightlog.record("world"):
        assert [cached(2), cached(2)] == [4, 4]
        look()
""",
    ),
    "device memory": (
        "",
        """
def scenario():
    import flightlog
    with flightlog.record("world"), flightlog.track_device_memory():
        look()
""",
    ),
    "OpenTelemetry's spans": (
        "",
        """
from opentelemetry.sdk.trace import TracerProvider, id_generator
TracerProvider().get_tracer("mine")  # which adds a filter of warnings
class Counted(id_generator.IdGenerator):  # the usual one draws from `random`
    def generate_span_id(self):
        return 7
    generate_trace_id = generate_span_id
def scenario():
    import flightlog, flightlog.otel
    provider = TracerProvider(id_generator=Counted())
    provider.add_span_processor(flightlog.otel.span_processor())
    with flightlog.record("world"), provider.get_tracer("mine").start_as_current_span("request"):
        look()
""",
    ),
    "a notebook": (
        "",
        """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(history_manager=None)
shell.run_cell("1 + 1")
def scenario():
    shell.run_line_magic("load_ext", "flightlog")
    shell.run_cell("import flightlog; flightlog.current_run().metric('loss', 1.0)")
    look()
    shell.run_line_magic("unload_ext", "flightlog")
""",
    ),
    "reading": (
        "",
        RECORDED.replace("scenario", "recorded").replace("        look()\n", "")
        + """
import duckdb
def scenario():
    recorded()
    import flightlog
    flightlog.report().text()
    flightlog.diagnose().text()
    flightlog.open_run().sql("SELECT count(*) FROM spans").rows()
    from flightlog.cli.main import main
    assert main(["report", "--output", "report.txt"]) == 0
    look()
""",
    ),
    "compat.scalable": (
        MANIFEST % "false",
        """
def scenario():
    from flightlog.compat.scalable import ScalableSession
    with ScalableSession.from_yaml("scalable.yaml", target="local") as client:
        assert client.gather(client.map(double, range(4))) == [0, 2, 4, 6]
        look()
""",
    ),
    "compat.rhapsody": (
        "",
        """
from concurrent.futures import ThreadPoolExecutor
import opentelemetry.sdk.metrics, opentelemetry.sdk.trace
opentelemetry.sdk.trace.TracerProvider().get_tracer("mine")  # which adds a filter of warnings
async def work():
    from flightlog.compat.rhapsody import ComputeTask, Session
    from flightlog.compat.rhapsody.backends import ConcurrentExecutionBackend
    backend = await ConcurrentExecutionBackend(ThreadPoolExecutor(max_workers=2))
    async with Session(backends=[backend]) as session:
        telemetry = await session.start_telemetry()
        tasks = [ComputeTask(function=double, args=(number,)) for number in range(4)]
        tasks.append(ComputeTask(executable="/bin/echo", arguments=["done"]))
        await session.submit_tasks(tasks)
        await session.wait_tasks(tasks)
        telemetry.summary()
        look()
def scenario():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(work())
    loop.close()
""",
    ),
    "compat.stormlog": (
        "",
        """
def scenario():
    from flightlog.compat.stormlog.telemetry import load_telemetry_sessions
    from flightlog.compat.stormlog.telemetry_sink import AppendOnlyTelemetrySink, TelemetrySinkConfig
    sink = AppendOnlyTelemetrySink(TelemetrySinkConfig(root_dir="telemetry"))
    sink.append({"timestamp": 1.0, "type": "sample"})
    look()
    sink.close()
    assert load_telemetry_sessions("telemetry")
""",
    ),
    "compat.modelops": (
        "",
        """
def scenario():
    from flightlog.compat.modelops import TelemetryCollector, TelemetryStorage
    collector = TelemetryCollector()
    with collector.span("job"):
        look()
    TelemetryStorage("provenance").save_job_telemetry("job-1", collector)
""",
    ),
}

PROMISED = (
    "environment FLIGHTLOG_",  # and the next: what child processes find their run by
    "environment TRACEPARENT",
    "garbage collection callbacks",
    "signal handlers SIGHUP",  # and the next two: a run that is ended by a signal says so
    "signal handlers SIGTERM",
    "signal wake-up",
    "switch interval",  # for a moment, while a run begins or ends
)
"""What is different while a run is recorded, as documented, and is put back."""
OF_COMMANDS = ("environment PYTHONPATH",)
"""What is different for a program under `flightlog run`: where its Python finds the recorder."""


def run(folder: Path, script: str, *command: str) -> dict[str, dict[str, list[str]]]:
    (folder / "program.py").write_text(script)
    done = subprocess.run(
        [*command, sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_users_world_is_not_touched(tmp_path, name):
    manifest, scenario = SCENARIOS[name]
    for file in ("flightlog.yaml", "scalable.yaml"):
        (tmp_path / file).write_text(manifest)
    found = run(tmp_path, WORLD + WORK + scenario + ENDING)
    found["inside"] = {what: how for what, how in found["inside"].items() if not what.startswith(PROMISED)}
    assert found == {"inside": {}, "after": {}}


def test_a_task_finds_the_world_of_a_new_process(tmp_path):
    (tmp_path / "flightlog.yaml").write_text(MANIFEST % "true")
    script = """
from concurrent.futures import ProcessPoolExecutor
def without_addresses():
    import re
    return {name: re.sub(r" at 0x[0-9a-f]+", "", value) for name, value in snapshot().items()}
if __name__ == "__main__":
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        plain = pool.submit(without_addresses).result()
    from flightlog import Session
    with Session.from_yaml("flightlog.yaml", target="local") as session:
        print(json.dumps(changed(plain, session.client.submit(without_addresses).result())))
"""
    found = run(tmp_path, WORLD + script)
    ours = (*PROMISED, "signal handlers SIGINT")  # Ctrl-C is for the program, which ends its workers
    assert {name: how for name, how in found.items() if not name.startswith(ours)} == {}


def test_a_program_under_flightlog_run_finds_the_world_as_it_is_without(tmp_path):
    script = WORLD + "print(json.dumps(snapshot()))\n"
    plain = run(tmp_path, script)
    recorded = run(tmp_path, script, sys.executable, "-m", "flightlog", "run")
    address = re.compile(r" at 0x[0-9a-f]+")
    found = {
        name: [plain.get(name), recorded.get(name)]
        for name in plain.keys() | recorded.keys()
        if address.sub("", str(plain.get(name))) != address.sub("", str(recorded.get(name)))
    }
    assert {name: how for name, how in found.items() if not name.startswith((*PROMISED, *OF_COMMANDS))} == {}
