"""gevent and eventlet: the program runs as it would without us, and its greenlets are recorded as threads
are."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.runs import finished

from flightlog.store.run import Run

LIBRARIES = ("gevent", "eventlet")

# `patch()` replaces the standard library's threads; `spawn(f, *args)` starts a greenlet and gives what waits
# for its result.
PREPARED = """
import os, sys, warnings
warnings.simplefilter("ignore")
library, when, runs = sys.argv[1:4]
__import__(library)

def patch():
    if library == "gevent":
        from gevent import monkey
        monkey.patch_all()
    else:
        import eventlet
        eventlet.monkey_patch()

def spawn(function, *args):
    if library == "gevent":
        import gevent
        return gevent.spawn(function, *args).get
    import eventlet
    return eventlet.spawn(function, *args).wait

if when == "before":
    patch()
import flightlog
if when == "after":
    patch()
import time
"""


def start(program: str, *arguments: str | Path, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREPARED + program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT", "PYTEST"))},
        **options,
    )


def outcome(program: str, *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, output and errors of a program that hangs if it takes a minute."""
    with start(program, *arguments) as process:
        try:
            output, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            return 124, output, errors
    return process.returncode, output, errors


def runs_in(folder: Path) -> list[Run]:
    return [Run(path) for path in sorted(folder.iterdir()) if path.name.startswith("run-")]


def parents(run: Run) -> dict[str, str]:
    """The name of each span, and of what it happened in."""
    names = {span.span_id: span.name for span in finished(run)} | {run.info.span_id: "run"}
    return {span.name: names[span.parent_id] for span in finished(run)}


MATRIX = """
def work(number):
    with flightlog.span(f"outer-{number}"):
        time.sleep(0.002)
        with flightlog.span(f"inner-{number}"):
            time.sleep(0.002)
    return number

def threads():
    return len(os.listdir("/proc/self/task"))

def until(reached):
    deadline = time.monotonic() + 30
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.01)

seen = []
for number in range(2):
    with flightlog.record("green", runs_dir=runs, sample_interval_s=0.1) as run:
        if when == "inside":
            patch()
        run.subscribe(lambda event: seen.append(event.name), "span")
        with flightlog.span("greenlets"):
            waits = [spawn(work, i) for i in range(3)]
            total = sum(wait() for wait in waits)
        with flightlog.span("fork"):
            child = os.fork()
            if child == 0:
                with flightlog.span("child"):
                    time.sleep(0.002)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
        until(lambda: (run.path / "environment.json").exists())
    if when == "ended" and number == 0:
        patch()
    until(lambda: threads() == 1)
    print(number, total, status, threads())
print(len(seen))
"""


@pytest.mark.parametrize("when", ["before", "after", "inside", "ended"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_patched_program_runs_and_is_recorded_whenever_it_patches(library, when, tmp_path):
    expected = (0, "0 3 0 1\n1 3 0 1\n18\n", "")  # with the spans of the forked children
    assert outcome(MATRIX, library, when, tmp_path) == expected
    tree = {"greenlets": "run", "fork": "run", "child": "fork"}
    for i in range(3):
        tree |= {f"outer-{i}": "greenlets", f"inner-{i}": f"outer-{i}"}
    found = runs_in(tmp_path)
    assert [(run.info.status, run.info.overhead["problems"], parents(run)) for run in found] == [
        ("completed", [], tree)
    ] * 2
    assert all(list(run.events("resources")) for run in found)


HUBS = """
import gc, gevent.hub, subprocess
os.chdir(runs)
subprocess.run(["git", "init", "-q"], check=True)  # that its work is committed is asked of git
with flightlog.record("green", runs_dir=runs, sample_interval_s=None) as run:
    deadline = time.monotonic() + 30
    while not (run.path / "environment.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    print(sum(isinstance(one, gevent.hub.Hub) for one in gc.get_objects()))
"""


def test_threads_of_the_recorder_make_no_hub_in_a_patched_program(tmp_path):
    assert outcome(HUBS, "gevent", "before", tmp_path) == (0, "1\n", "")


LOADED = """
with flightlog.record("green", runs_dir=runs, sample_interval_s=0.1) as run:
    at_begin = set(sys.modules)
    deadline = time.monotonic() + 30
    while not list(run.path.glob("**/resources*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    while not (run.path / "environment.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(2.5)  # some heartbeats, each of which prepares the end a little further
print(*sorted(name for name in sys.modules.keys() - at_begin if name.startswith("flightlog")))
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_thread_of_the_recorder_imports_a_module_of_ours_in_a_patched_program(library, tmp_path):
    """A greenlet that needed the same module meanwhile would wait at a green lock for a real thread."""
    assert outcome(LOADED, library, "before", tmp_path) == (0, "\n", "")


INTERRUPTED = """
def wait():
    with flightlog.span("waits"):
        print("ready", flush=True)
        time.sleep(60)

with flightlog.record("green", runs_dir=runs, sample_interval_s=0.1):
    if when == "inside":
        patch()
    spawn(wait)()
"""


@pytest.mark.parametrize(
    ("library", "when"), [("gevent", "before"), ("gevent", "inside"), ("eventlet", "before")]
)
def test_sigterm_in_a_patched_program_ends_the_run_as_interrupted(library, when, tmp_path):
    with start(INTERRUPTED, library, when, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        output, errors = process.communicate(timeout=60)
    (run,) = runs_in(tmp_path)
    assert (process.returncode, output, errors) == (-signal.SIGTERM, "", "")
    assert (run.info.status, run.info.signal) == ("interrupted", "SIGTERM")


WAYS = """
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

def work(name):
    with flightlog.span(name):
        time.sleep(0.002)

def thread(name):
    started = Thread(target=work, args=(name,))
    started.start()
    return started.join

pool = ThreadPoolExecutor(2)
ways = {"thread": thread, "executor": lambda name: pool.submit(work, name).result}
if library == "gevent":
    import gevent, gevent.pool
    ways["spawn"] = lambda name: gevent.spawn(work, name).get
    ways["spawn_later"] = lambda name: gevent.spawn_later(0.001, work, name).get
    ways["pool"] = lambda name: gevent.pool.Pool(2).spawn(work, name).get
    ways["group"] = lambda name: gevent.pool.Group().apply_async(work, (name,)).get
else:
    import eventlet
    def in_pool(name):
        pool = eventlet.GreenPool()
        pool.spawn_n(work, name)
        return pool.waitall
    ways["spawn"] = lambda name: eventlet.spawn(work, name).wait
    ways["spawn_after"] = lambda name: eventlet.spawn_after(0.001, work, name).wait
    ways["pool"] = lambda name: eventlet.GreenPool().spawn(work, name).wait
    ways["spawn_n"] = in_pool

with flightlog.record("green", runs_dir=runs, sample_interval_s=None):
    early = spawn(lambda: (time.sleep(0.05), work("early")))
    waits = []
    for name, way in ways.items():
        with flightlog.span(f"in {name}"):
            wait = way(name)
            work(f"beside {name}")
            wait()
    with flightlog.span("foreign"):
        early()
print(*sorted(ways))
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_span_in_a_greenlet_has_the_span_that_the_greenlet_was_spawned_in_as_its_parent(library, tmp_path):
    code, output, errors = outcome(WAYS, library, "before", tmp_path)
    assert (code, errors) == (0, "")
    (run,) = runs_in(tmp_path)
    expected = {"early": "run", "foreign": "run"}
    for name in output.split():
        expected |= {f"in {name}": "run", name: f"in {name}", f"beside {name}": f"in {name}"}
    assert len(output.split()) == 6
    assert parents(run) == expected


RAISED = """
import gevent

def killed(run):
    with run.task("killed"), flightlog.span("kill"):
        gevent.sleep(60)

def timed_out():
    with flightlog.span("timeout"):
        with gevent.Timeout(0.01):
            gevent.sleep(60)

with flightlog.record("green", runs_dir=runs, sample_interval_s=None) as run:
    greenlet = gevent.spawn(killed, run)
    gevent.sleep(0)
    greenlet.kill()
    print(type(greenlet.value).__name__)
    try:
        timed_out()
    except gevent.Timeout as error:
        print(type(error).__name__)
"""


def test_what_gevent_raises_into_a_span_passes_through_and_is_recorded(tmp_path):
    assert outcome(RAISED, "gevent", "before", tmp_path) == (0, "GreenletExit\nTimeout\n", "")
    (run,) = runs_in(tmp_path)
    assert {span.name: (span.status, span.error_type) for span in finished(run)} == {
        "kill": ("error", "GreenletExit"),
        "timeout": ("error", "Timeout"),
    }
    assert [event.reason for event in run.events("tasks") if type(event).__name__ == "TaskCancelled"] == [
        "GreenletExit"
    ]


KILLED_RUN = """
import gevent

def whole():
    with flightlog.record("green", runs_dir=runs, sample_interval_s=None):
        gevent.sleep(60)

greenlet = gevent.spawn(whole)
gevent.sleep(0.01)
greenlet.kill()
"""


def test_a_run_whose_greenlet_is_killed_was_interrupted(tmp_path):
    assert outcome(KILLED_RUN, "gevent", "before", tmp_path) == (0, "", "")
    assert [(run.info.status, run.info.error) for run in runs_in(tmp_path)] == [
        ("interrupted", "GreenletExit")
    ]


SESSION = """
from pathlib import Path
from flightlog import Session
if when == "later":
    patch()

def double(number):
    with flightlog.span("double"):
        time.sleep(0.002)
    return 2 * number

Path("flightlog.yaml").write_text(f'''
version: 1
project: {{name: green}}
targets:
  threads: {{provider: local, max_workers: 2, processes: false}}
  processes: {{provider: local, max_workers: 2}}
''')
with Session.from_yaml("flightlog.yaml", target="threads", runs_dir=runs) as session:
    futures = session.client.map(double, range(4))
    print(session.client.gather(futures), sum(one.result() for one in session.client.as_completed(futures)))
try:
    Session.from_yaml("flightlog.yaml", target="processes", runs_dir=runs).start()
except flightlog.core.errors.UsageError as error:
    print(error)
"""


@pytest.mark.parametrize("when", ["before", "later"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_session_of_a_patched_program_runs_on_threads_and_says_that_it_cannot_on_processes(
    library, when, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, output, errors = outcome(SESSION, library, when, tmp_path / "runs")
    refused = (
        f"worker processes cannot be used in a program that {library} has patched: "
        "use threads (`processes: false`), or run the session in a program of its own"
    )
    assert (code, output, errors) == (0, f"[0, 2, 4, 6] 12\n{refused}\n", "")
    (run,) = [one for one in runs_in(tmp_path / "runs") if one.info.status == "completed"]
    ended = {event.span_id for event in run.events("tasks") if type(event).__name__ == "TaskCompleted"}
    assert {span.parent_id for span in finished(run)} == ended
    assert len(ended) == 4


APP = """
import time, flightlog

def app(environ, start_response):
    with flightlog.span(environ["PATH_INFO"]):
        time.sleep(0.05)
        with flightlog.span(f"inside {environ['PATH_INFO']}"):
            time.sleep(0.05)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"served"]
"""
HOOKS = """
import flightlog

control_socket_disable = True  # it would stand in the home folder, one for all servers

def post_fork(server, worker):
    worker.recording = flightlog.record("served", runs_dir="runs", sample_interval_s=0.1)
    worker.recording.__enter__()

def worker_exit(server, worker):
    worker.recording.__exit__(None, None, None)
"""


def get(path: str, at: Path) -> str:
    """Ask an HTTP server at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(at))
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    return answer.decode().rpartition("\r\n\r\n")[2]


def test_a_gevent_worker_of_gunicorn_is_recorded(tmp_path):
    (tmp_path / "served.py").write_text(APP)
    (tmp_path / "hooks.py").write_text(HOOKS)
    at = tmp_path / "socket"
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gunicorn",
            "-k",
            "gevent",
            "-w",
            "1",
            "-b",
            f"unix:{at}",
            "-c",
            "hooks.py",
            "served:app",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith(("FLIGHTLOG", "TRACEPARENT", "PYTEST"))},
    )
    assert server.stderr is not None
    said = ""
    while "Booting worker" not in said:
        said = server.stderr.readline()
        assert said, "the server ended"
    paths = [f"/{number}" for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(get, paths, [at] * 5)) == ["served"] * 5
    server.terminate()
    _, errors = server.communicate(timeout=60)
    (run,) = runs_in(tmp_path / "runs")
    assert (server.returncode, "flightlog" in errors, run.info.status) == (0, False, "completed")
    assert parents(run) == dict.fromkeys(paths, "run") | {f"inside {path}": path for path in paths}
