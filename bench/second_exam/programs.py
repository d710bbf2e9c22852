"""The second exam: small programs with one bottleneck of known size built in, and healthy ones.

    python programs.py NAME STRENGTH FOLDER     records into FOLDER (a runs folder)
    python programs.py --list

STRENGTH is 1.0 (the bottleneck dominates), the program's weak number, or 0.0 (the same work without it).
CPU work is given in CPU seconds of the executing thread, so that sizes hold on any machine; the expected
share of the wall time is in the comment of each program, for 2 cores.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"
FLIGHTLOG = Path(sys.executable).parent / "flightlog"

# --------------------------------------------------------------------------------------------------
# Work: each kernel is one chunk of a few milliseconds; `crunch` repeats it for so many CPU seconds.


def _sir():
    s, i, r = 0.99, 0.01, 0.0
    for _ in range(4000):
        new, gone = 0.3 * s * i * 0.1, 0.1 * i * 0.1
        s, i, r = s - new, i + new - gone, r + gone
    return r


def _orbit():
    x, y, u, v = 1.0, 0.0, 0.0, 1.0
    for _ in range(3000):
        d = (x * x + y * y) ** 1.5
        u, v = u - 0.001 * x / d, v - 0.001 * y / d
        x, y = x + 0.001 * u, y + 0.001 * v
    return x


def _parse():
    line = "2026-05-20T03:52:00,station-17,12.5,0.33,ok"
    total = 0.0
    for _ in range(1200):
        parts = line.split(",")
        total += float(parts[2]) * float(parts[3]) + len(parts[0])
    return total


_BLOCK = bytes(random.Random(3).randrange(0, 40) for _ in range(60_000))


def _deflate():
    return len(zlib.compress(_BLOCK, 6))


@functools.cache
def _grid():
    import numpy

    return numpy.linspace(0.0, 9.0, 200_000), numpy.empty(200_000)


def _waves():
    import numpy

    grid, out = _grid()
    numpy.sin(grid, out=out)
    numpy.multiply(out, grid, out=out)
    return float(out[7])


SCALE = float(os.environ.get("EXAM_SCALE", "1"))  # less than 1 only to try whether programs run at all


def crunch(kernel, cpu_s):
    """Repeats a kernel until this thread used so many CPU seconds."""
    until = time.thread_time() + cpu_s * SCALE
    value = 0.0
    while time.thread_time() < until:
        value = kernel()
    return value


# --------------------------------------------------------------------------------------------------
# What programs share.


@dataclass
class Context:
    strength: float
    folder: Path
    work: Path

    def count(self, most):
        """How many of `most` have the bottleneck."""
        return round(most * self.strength)


def open_session(ctx, project, workers=2, processes=True, tasks=None, provider="local"):
    import flightlog

    target = {"provider": "local", "max_workers": workers, "processes": processes}
    if provider == "dask":
        target = {"provider": "dask", "n_workers": workers, "threads_per_worker": 1}
    manifest = {
        "version": 1,
        "project": {"name": project},
        "targets": {"here": target},
        "components": {"small": {"cpus": 1, "memory": "512MB"}},
        "tasks": {name: {"component": "small", **more} for name, more in (tasks or {}).items()},
    }
    path = ctx.work / "flightlog.yaml"
    path.write_text(json.dumps(manifest))
    return flightlog.Session.from_yaml(str(path), target="here")


@contextlib.contextmanager
def watched(project, workers=2, threads=1):
    """A Dask cluster that is there already, and watched."""
    import logging

    from distributed import Client, LocalCluster

    import flightlog

    logging.getLogger("distributed").setLevel(logging.ERROR)
    with (
        LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        client.run(_grid)
        with flightlog.watch(client, project=project):
            yield client


@contextlib.contextmanager
def slow_server():
    """A process that answers each request `DELAY BYTES` after that delay. Gives its port."""
    server = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "slow_server.py")], stdout=subprocess.PIPE, text=True
    )
    try:
        yield int(server.stdout.readline())
    finally:
        server.terminate()
        server.wait()


def ask(connection, delay_s, size=2000):
    connection.sendall(f"{delay_s} {size}\n".encode())
    left = size
    while left:
        left -= len(connection.recv(min(left, 65536)))


def command(*parts):
    """`flightlog run -- command`, which is expected to record into FLIGHTLOG_RUNS_DIR."""
    subprocess.run([str(FLIGHTLOG), "run", "--", *map(str, parts)], stdout=subprocess.DEVNULL, check=False)


def script(name, *arguments):
    command(sys.executable, SCRIPTS / name, *arguments)


def claim(path):
    """True for the first process that asks, from then on."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        Path(str(path) + f".{os.getpid()}").touch()
    except FileExistsError:
        pass
    return Path(str(path) + f".{os.getpid()}").exists()


@dataclass
class Program:
    """One question of the exam.

    kind     verdict kinds that are right at strength 1.0, and in the weak form
    truth    what is true, what would help, what would be harmful
    run      records with a context
    weak     strength of the weak form (15 to 25 % of the wall time)
    absent   kinds that are right at strength 0.0
    weak_also   kinds that are right beside `kind` in the weak form
    outside  what a process outside of the recorded program does meanwhile (neighbours, kill -9)
    """

    name: str
    kind: frozenset
    truth: str
    run: object
    weak: float = 0.25
    healthy: bool = False
    absent: frozenset = frozenset({"none"})
    weak_also: frozenset = frozenset()
    outside: object = None

    def expected(self, strength):
        if self.healthy:
            return self.kind
        if strength == 0.0:
            return self.absent
        return self.kind if strength == 1.0 else self.kind | self.weak_also


PROGRAMS: dict[str, Program] = {}


def program(*kinds, truth, weak=0.25, healthy=False, absent=("none",), weak_also=(), outside=None):
    def add(function):
        name = function.__name__
        PROGRAMS[name] = Program(
            name,
            frozenset(kinds),
            truth,
            function,
            weak,
            healthy,
            frozenset(absent),
            frozenset(weak_also),
            outside,
        )
        return function

    return add


def healthy(truth, also=()):
    return program("none", *also, truth=truth, weak=0.0, healthy=True)


# --------------------------------------------------------------------------------------------------
# Dependency chains


def integrate_member(member, cpu_s):
    return crunch(_sir, cpu_s) + member


def analyse(members):
    return sum(members)


def advance(state, hour, cpu_s):
    return state + crunch(_sir, cpu_s)


@program(
    "dependency_chain",
    truth="Hours of a forecast need one another and run alone on 2 workers. Helps: several forecasts side by side, or "
    "splitting an hour by region. Harmful: more workers.",
    weak=0.3,
)
def forecast_hours(ctx):
    # 24 tasks of 0.35 s: 20 in a chain 7.7 s, none 4.2 s (45 %); 6 in a chain 5.25 s (20 %)
    hours = ctx.count(20)
    with open_session(ctx, "forecast") as session:
        client = session.client
        members = client.map(integrate_member, range(24 - hours), cpu_s=0.35)
        state = client.submit(analyse, members)
        for hour in range(hours):
            state = client.submit(advance, state, hour, cpu_s=0.35)
        state.result()


def coarse(tile, cpu_s):
    return crunch(_waves, cpu_s)


def refine(image, level, cpu_s):
    return crunch(_waves, cpu_s) + image


def merge(tiles):
    return sum(tiles)


@program(
    "dependency_chain",
    truth="Levels of an image refinement need one another, one worker is idle. Helps: refining tiles independently. "
    "Harmful: more workers or smaller batches of the same chain.",
    weak=0.3,
)
def refinement_levels(ctx):
    # 22 tasks of 0.4 s: 18 in a chain 8 s, none 4.4 s (45 %); 5 in a chain 5.4 s (19 %)
    levels = ctx.count(18)
    with watched("refinement") as client:
        tiles = client.map(coarse, range(22 - levels), cpu_s=0.4, pure=False)
        image = client.submit(merge, tiles, pure=False)
        for level in range(levels):
            image = client.submit(refine, image, level, cpu_s=0.4, pure=False)
        image.result()


# --------------------------------------------------------------------------------------------------
# The interpreter lock


def parse_log(part, cpu_s):
    return crunch(_parse, cpu_s)


def compress_block(part, cpu_s):
    return crunch(_deflate, cpu_s)


@program(
    "interpreter_lock",
    truth="Pure Python on 2 threads runs on one core. Helps: processes. Harmful: more threads.",
)
def logs_on_threads(ctx):
    # 24 tasks of 0.3 s: all in Python 7.2 s, none 3.6 s (50 %); 6 of them 4.5 s (20 %)
    python = ctx.count(24)
    with open_session(ctx, "logs", processes=False) as session:
        client = session.client
        client.gather(client.map(compress_block, range(24 - python), cpu_s=0.3))
        client.gather(client.map(parse_log, range(python), cpu_s=0.3))


def count_words(part, cpu_s):
    return crunch(_parse, cpu_s)


def sample_field(part, cpu_s):
    return crunch(_waves, cpu_s)


@program(
    "interpreter_lock",
    truth="Pure Python on the 2 threads of one Dask worker runs on one core. Helps: 2 workers with one thread each. "
    "Harmful: more threads per worker.",
)
def words_on_dask_threads(ctx):
    # as logs_on_threads
    python = ctx.count(24)
    with watched("words", workers=1, threads=2) as client:
        client.gather(client.map(sample_field, range(24 - python), cpu_s=0.3, pure=False))
        client.gather(client.map(count_words, range(python), cpu_s=0.3, pure=False))


@program(
    "interpreter_lock",
    truth="A ThreadPoolExecutor runs pure Python on one core. Helps: ProcessPoolExecutor. Harmful: more threads.",
)
def pool_of_threads(ctx):
    # as logs_on_threads, in spans of a plain recording
    import flightlog

    python = ctx.count(24)

    def score(kernel, document):
        with flightlog.span("score", document=document):
            return crunch(kernel, 0.3)

    with flightlog.record("documents"), ThreadPoolExecutor(2) as pool:
        with flightlog.span("score_packed"):
            list(pool.map(functools.partial(score, _deflate), range(24 - python)))
        with flightlog.span("score_plain"):
            list(pool.map(functools.partial(score, _parse), range(python)))


# --------------------------------------------------------------------------------------------------
# Oversubscription


def whiten(block, cpu_s, threads, wall_s):
    """Products of matrices: for so many CPU seconds on one thread, or with too many threads until `wall_s` are over."""
    import numpy
    from threadpoolctl import threadpool_limits

    matrix = numpy.random.default_rng(block).standard_normal((256, 256))
    begun, until = time.monotonic(), time.thread_time() + cpu_s * SCALE
    with threadpool_limits(threads):
        while time.monotonic() < begun + wall_s if threads > 1 else time.thread_time() < until:
            matrix = matrix @ matrix.T
            matrix /= abs(matrix).max()
    return float(matrix[0, 0])


@program(
    "oversubscription",
    truth="Each of 2 workers multiplies matrices with 6 BLAS threads on 2 cores, many times slower than with one. Helps: one "
    "BLAS thread per worker. Harmful: more workers.",
)
def blas_threads(ctx):
    # 24 tasks of 0.3 s with one thread (3.6 s), 8 tasks of 1 s with 6 threads each (4 s, 53 %), weak 2 (1 s, 22 %); what these do
    # takes a small part of that with one thread
    many = ctx.count(8)
    with open_session(ctx, "whitening") as session:
        client = session.client
        client.gather([client.submit(whiten, i, 0.3, 1, 0.0) for i in range(24)])
        client.gather([client.submit(whiten, i, 0.0, 6, 1.0) for i in range(many)])


def fit_fold(fold, cpu_s):
    return crunch(_orbit, cpu_s)


@program(
    "oversubscription",
    truth="8 processes of joblib share 2 cores. Helps: n_jobs=2, as fast with a quarter of the memory. Harmful: more jobs.",
    weak=0.17,
    weak_also=("none",),
)
def joblib_jobs(ctx):
    # time is not lost by it; each process waits 3/4 (weak, 3 processes: 1/3) of its time for a core
    from joblib import Parallel, delayed

    import flightlog

    jobs = 2 + ctx.count(6)
    with flightlog.record("crossvalidation"), flightlog.span("cross_validate", jobs=jobs):
        Parallel(n_jobs=jobs)(delayed(fit_fold)(fold, 0.5) for fold in range(24))


def price_option(seed, cpu_s):
    return crunch(_orbit, cpu_s)


@program(
    "oversubscription",
    truth="8 worker processes compute on 2 cores. Helps: max_workers 2. Harmful: more workers.",
    weak=0.17,
    weak_also=("none",),
)
def eight_workers(ctx):
    # as joblib_jobs
    with open_session(ctx, "options", workers=2 + ctx.count(6)) as session:
        session.client.gather(session.client.map(price_option, range(30), cpu_s=0.4))


# --------------------------------------------------------------------------------------------------
# Neighbours: processes outside of the recorded program


def start_neighbours(count):
    burn = "while True: sum(range(10000))"
    return [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(count)]


def neighbours(strong, weak, weak_s):
    """`strong` busy processes all the time, or `weak` of them for `weak_s` seconds after the start of the work."""

    def outside(ctx, inner):
        if ctx.strength == 0.0:
            return
        while not (ctx.work / "begun").exists() and inner.poll() is None:
            time.sleep(0.02)
        others = start_neighbours(strong if ctx.strength == 1.0 else weak)
        try:
            inner.wait(None if ctx.strength == 1.0 else weak_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for other in others:
                other.kill()
                other.wait()

    return outside


def propagate(cell, cpu_s):
    return crunch(_orbit, cpu_s)


@program(
    "busy_machine",
    truth="3 processes of somebody else share the 2 cores with 2 workers. Helps: another time or machine. Harmful: more "
    "workers; rewriting the tasks.",
    outside=neighbours(3, 2, 2.2),
)
def neighbours_of_sweep(ctx):
    # 16 tasks of 0.4 s: alone 3.2 s, with 3 neighbours 8 s (60 %), with 2 for 2.2 s 4.2 s (24 %, less their start)
    with open_session(ctx, "propagation") as session:
        session.client.gather(session.client.map(propagate, range(2), cpu_s=0.01))
        (ctx.work / "begun").touch()
        session.client.gather(session.client.map(propagate, range(16), cpu_s=0.4))


@program(
    "busy_machine",
    truth="4 processes of somebody else share the 2 cores with a single-threaded script. Helps: another time or machine. "
    "Harmful: threads or processes for the script.",
    outside=neighbours(4, 4, 1.7),
)
def neighbours_of_script(ctx):
    # 3.6 s alone, with 4 neighbours about 9 s (60 %), with 4 for 1.7 s about 4.5 s (21 %)
    script("relax.py", 3.6, ctx.work / "begun")


# --------------------------------------------------------------------------------------------------
# Moving data


def regrid(field, cell, cpu_s):
    return crunch(_waves, cpu_s) + float(field[0])


@program(
    "serialization",
    truth="Each of 16 calls carries the same array of 150 MB to a worker process. Helps: writing it once and passing "
    "its path, or loading it in the worker. Harmful: more workers.",
)
def array_to_each_task(ctx):
    import numpy

    field = numpy.ones(max(1, int(ctx.strength * FIELD_MB * 125_000)))
    with open_session(ctx, "regrid") as session:
        session.client.gather([session.client.submit(regrid, field, cell, 0.4) for cell in range(16)])


FIELD_MB = 150


def track_particles(seed, rows, cpu_s):
    crunch(_orbit, cpu_s)
    return [{"id": row, "x": row * 0.5, "label": f"p{row}"} for row in range(rows)]


@program(
    "serialization",
    truth="Each task gives back a list of many small dictionaries, which takes longer to pickle and read than to compute. "
    "Helps: arrays, or summaries made in the task. Harmful: more workers, smaller tasks with the same data.",
    weak=0.2,
)
def rows_from_each_task(ctx):
    rows = int(ctx.strength * RESULT_ROWS)
    with open_session(ctx, "particles") as session:
        futures = session.client.map(track_particles, range(16), rows=rows, cpu_s=0.35)
        for future in futures:
            len(future.result())


RESULT_ROWS = 450_000


@program(
    "serialization",
    truth="An array of 80 MB goes with each of 16 calls through the scheduler. Helps: client.scatter once. Harmful: more "
    "workers, each of which needs the copies.",
)
def array_through_scheduler(ctx):
    import warnings

    import numpy

    warnings.simplefilter("ignore")
    with watched("regrid-dask") as client:
        futures = []
        for cell in range(16):
            field = numpy.full(max(1, int(ctx.strength * DASK_MB * 125_000)), float(cell))
            futures.append(client.submit(regrid, field, cell, 0.35, pure=False))
        client.gather(futures)


DASK_MB = 80


# --------------------------------------------------------------------------------------------------
# Tiny tasks


def likelihood(point, cpu_s=0.0001):
    return crunch(_tiny, cpu_s)


def _tiny():
    return math.exp(-0.5 * math.fsum(x * 0.01 for x in range(40)))


def likelihoods(points, cpu_s=0.0001):
    return [likelihood(point, cpu_s) for point in range(points)]


@program(
    "handover",
    truth="Tasks of 0.1 ms each cost more to hand over than to run. Helps: some hundred points per task. Harmful: more "
    "workers.",
)
def grid_of_points(ctx):
    tiny = ctx.count(TINY)
    with open_session(ctx, "grid") as session:
        client = session.client
        client.gather(client.map(likelihoods, [(64_000 - tiny) // 20] * 20))
        client.gather(client.map(likelihood, range(tiny)))


TINY = 6000


@program(
    "handover",
    truth="Tasks of 0.1 ms each cost Dask about 1 ms. Helps: partitions of some hundred points. Harmful: more workers.",
)
def dask_grid_of_points(ctx):
    tiny = ctx.count(DASK_TINY)
    with watched("grid-dask") as client:
        client.gather(client.map(likelihoods, [(64_000 - tiny) // 20] * 20, pure=False))
        client.gather(client.map(likelihood, range(tiny), pure=False))


DASK_TINY = 4000


# --------------------------------------------------------------------------------------------------
# Stragglers, imbalance, slow workers


def solve_ode(stiffness, cpu_s):
    return crunch(_orbit, cpu_s)


@program(
    "stragglers",
    truth="The last of 21 solves takes 15 times as long as the others, on one worker. Helps: starting it first, a better "
    "solver for it, splitting it. Harmful: more workers.",
    weak=0.18,
)
def stiff_solve_at_the_end(ctx):
    # 20 of 0.3 s (3 s), then one of 4.5 s: 7.5 s and 3.15 s without (58 %); weak 1.06 s: 4.05 s (22 %)
    times = [0.3] * 20 + [0.3 + 4.2 * ctx.strength]
    with open_session(ctx, "stiff") as session:
        client = session.client
        futures = [client.submit(solve_ode, number, cpu_s=cpu_s) for number, cpu_s in enumerate(times)]
        client.gather(futures)


def evaluate(individual, cpu_s):
    return crunch(_sir, cpu_s)


@program(
    "stragglers",
    "idle_workers",
    truth="Each of 7 generations waits for one individual that takes 7 times as long. Helps: asynchronous evolution, or "
    "starting long ones first. Harmful: larger steps between generations with more workers.",
    weak=0.15,
)
def generations(ctx):
    # a generation: 5 of 0.15 s and one of 1.0 s on 2 workers, 1.3 s, without 0.45 s (65 %); weak 0.28 s: 0.58 s (22 %)
    with watched("evolution") as client:
        for _ in range(7):
            times = [0.15] * 5 + [0.15 + 0.85 * ctx.strength]
            client.gather([client.submit(evaluate, i, t, pure=False) for i, t in enumerate(times)])


def simulate_slab(slab, cells, cpu_s):
    return crunch(_waves, cpu_s)


@program(
    "idle_workers",
    "stragglers",
    truth="The domain is split into 2 slabs of unequal work. Helps: more, smaller slabs. Harmful: more workers for the "
    "same 2 slabs.",
    weak=0.27,
)
def unequal_slabs(ctx):
    # 4 rounds of 1.8 s of work: halves 0.9 s, 95 % in one 1.71 s (47 %); weak 62 % in one 1.12 s (20 %)
    large = 0.5 + 0.45 * ctx.strength
    with open_session(ctx, "slabs") as session:
        for _ in range(4):
            futures = [
                session.client.submit(simulate_slab, "north", round(large * 1000), cpu_s=1.8 * large),
                session.client.submit(
                    simulate_slab, "south", round((1 - large) * 1000), cpu_s=1.8 * (1 - large)
                ),
            ]
            session.client.gather(futures)


def render(frame, marker, factor, cpu_s):
    return crunch(_orbit, cpu_s * (factor if claim(marker) else 1.0))


@program(
    "slow_workers",
    truth="One of 2 workers is 8 times slower than the other for the same tasks. Helps: another worker in its place. "
    "Harmful: smaller tasks, since none of them is long by itself.",
    weak=0.1,
)
def slow_node(ctx):
    # 48 tasks of 0.15 s: 3.6 s on two good workers, 6.4 s with one 8 times slower (44 %), 4.5 s with 1.7 times (21 %)
    factor = 1 + 7 * ctx.strength
    marker = str(ctx.work / "slow")
    with open_session(ctx, "render") as session:
        futures = [session.client.submit(render, frame, marker, factor, 0.15) for frame in range(48)]
        session.client.gather(futures)


def read_and_fit(spectrum, marker, extra_s, cpu_s):
    if claim(marker):
        time.sleep(extra_s)
    return crunch(_waves, cpu_s)


@program(
    "slow_workers",
    truth="One of 2 Dask workers waits for its slow disk in every task. Helps: moving its data, or another worker. Harmful: "
    "smaller tasks.",
    weak=0.1,
)
def dask_slow_worker(ctx):
    # as slow_node
    marker = str(ctx.work / "slow")
    with watched("spectra") as client:
        extra_s = 0.15 * 7 * ctx.strength
        client.gather([client.submit(read_and_fit, i, marker, extra_s, 0.15, pure=False) for i in range(48)])


# --------------------------------------------------------------------------------------------------
# Start-up


@program(
    "cold_starts",
    truth="Each worker process builds a table when it imports the module. Helps: building it once and saving it, or only "
    "where it is needed. Harmful: more workers, or workers for each batch.",
)
def table_at_import(ctx):
    # 18 tasks of 0.4 s (3.6 s) after an import of 3.5 s (49 %), weak 0.9 s (20 %)
    subprocess.run(
        [sys.executable, str(SCRIPTS / "table_sweep.py"), str(ctx.strength), str(ctx.work)], check=True
    )


@functools.cache
def load_model(cpu_s):
    return crunch(_sir, cpu_s)


def predict(sample, model_s, cpu_s):
    return load_model(model_s) + crunch(_orbit, cpu_s)


@program(
    "cold_starts",
    truth="The first task of each worker loads the model, as long as 11 tasks take. Helps: keeping workers, a smaller model "
    "file, more work per worker. Harmful: more workers, each of which loads it.",
)
def model_in_first_task(ctx):
    # 20 tasks of 0.36 s (3.6 s), 4 s in the first of each worker (53 %), weak 1 s (22 %)
    with open_session(ctx, "predict") as session:
        session.client.gather(session.client.map(predict, range(20), model_s=4.0 * ctx.strength, cpu_s=0.36))


# --------------------------------------------------------------------------------------------------
# The program between, and before, its tasks


def simulate_path(path, cpu_s):
    return crunch(_orbit, cpu_s)


@program(
    "program_alone",
    truth="The program computes a posterior between batches while both workers are idle. Helps: making that a task, or "
    "submitting the next batch first. Harmful: more workers.",
)
def posterior_between_batches(ctx):
    # 5 rounds: 4 tasks of 0.4 s (0.8 s), then 0.9 s alone (53 %), weak 0.225 s (22 %)
    with open_session(ctx, "calibration") as session:
        for _ in range(5):
            session.client.gather(session.client.map(simulate_path, range(4), cpu_s=0.4))
            crunch(_sir, 0.9 * ctx.strength)


@program(
    "program_alone",
    truth="The program sleeps after each batch for the file system to settle. Helps: not to sleep, or to submit the next "
    "batch meanwhile. Harmful: more workers.",
)
def pause_between_batches(ctx):
    # as posterior_between_batches, asleep
    with watched("batches") as client:
        for _ in range(5):
            client.gather(client.map(simulate_path, range(4), cpu_s=0.4, pure=False))
            time.sleep(0.9 * ctx.strength)


@program(
    "before_tasks",
    "program_alone",
    truth="The program builds a mesh for a long time before its first task. Helps: keeping the mesh, building it in "
    "parallel. Harmful: more workers, which wait as well.",
)
def mesh_before_tasks(ctx):
    # 20 tasks of 0.36 s (3.6 s) after 4 s (53 %), weak 1 s (22 %)
    import flightlog

    with open_session(ctx, "mesh") as session:
        with flightlog.span("build_mesh"):
            crunch(_orbit, 4.0 * ctx.strength)
        session.client.gather(session.client.map(simulate_path, range(20), cpu_s=0.36))


def score_design(design, cpu_s):
    return crunch(_orbit, cpu_s)


@program(
    "one_at_a_time",
    truth="Each design is submitted after the result of the last one, on 2 workers. Helps: submitting all, then gathering. "
    "Harmful: more workers.",
)
def result_after_each_submit(ctx):
    # 24 tasks of 0.33 s: one by one 7.9 s, together 4 s (50 %); 6 one by one 5 s (20 %)
    singly = ctx.count(24)
    with open_session(ctx, "designs") as session:
        client = session.client
        client.gather(client.map(score_design, range(24 - singly), cpu_s=0.33))
        for design in range(24 - singly, 24):
            client.submit(score_design, design, cpu_s=0.33).result()


def fetch_tile(tile):
    time.sleep(0.25)
    return tile


@program(
    "one_at_a_time",
    truth="Tiles are fetched one after another, though 4 threads are there. Helps: client.map, then gather. Harmful: more "
    "workers or threads.",
    weak=0.22,
)
def fetch_and_wait(ctx):
    # 64 waits of 0.25 s on 4 threads: 4 s; 24 one by one 8.5 s (53 %), 5 one by one 4.9 s (19 %)
    singly = ctx.count(24)
    with watched("tiles", workers=2, threads=2) as client:
        client.gather(client.map(fetch_tile, range(64 - singly), pure=False))
        for tile in range(singly):
            client.submit(fetch_tile, tile, pure=False).result()


# --------------------------------------------------------------------------------------------------
# Loading and waiting


@program(
    "data_loading",
    truth="Each step of a training waits longer for its batch than it computes. Helps: loading ahead. Harmful: a larger "
    "model, more epochs, more threads for the step.",
)
def training_waits_for_batches(ctx):
    # 48 steps of 0.08 s (3.8 s), each after 0.09 s of waiting (53 %), weak 0.0225 s (22 %)
    import torch

    import flightlog

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with slow_server() as port, socket.create_connection(("127.0.0.1", port)) as storage:
        torch_step(model, optimizer, torch.randn(256, 64), 0.1)
        with flightlog.record("training") as run:
            for epoch in range(4):
                with flightlog.span("epoch", epoch=epoch):
                    for batch in range(12):
                        with flightlog.span("load_batch"):
                            ask(storage, 0.09 * ctx.strength)
                            data = torch.randn(256, 64)
                        with flightlog.span("train_step"):
                            loss = torch_step(model, optimizer, data, 0.08)
                        run.metric("loss", loss, step=epoch * 12 + batch)


def torch_step(model, optimizer, data, cpu_s):
    target = data[:, :4].sum(dim=1, keepdim=True)
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        optimizer.zero_grad()
        loss = ((model(data) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
    return float(loss)


@program(
    "data_loading",
    "waiting_span",
    truth="A script fetches each shard over HTTP before it fits it. Helps: fetching ahead, or keeping shards on disk. "
    "Harmful: a faster model.",
)
def script_fetches_shards(ctx):
    # 24 shards: fit 0.16 s (3.8 s), fetch 0.18 s (53 %), weak 0.045 s (22 %)
    script("fit_shards.py", 0.18 * ctx.strength)


@program(
    "waiting_span",
    "data_loading",
    truth="Each site waits for an answer of the archive before it is fitted. Helps: asking for all sites at once. Harmful: "
    "a faster fit, more CPUs.",
)
def queries_to_archive(ctx):
    # 12 sites: fit 0.32 s (3.8 s), query 0.36 s (53 %), weak 0.09 s (22 %)
    import flightlog

    with slow_server() as port, socket.create_connection(("127.0.0.1", port)) as archive:
        with flightlog.record("sites"):
            for site in range(12):
                with flightlog.span("query_archive", site=site):
                    ask(archive, 0.36 * ctx.strength)
                with flightlog.span("fit_profile", site=site):
                    crunch(_orbit, 0.32)


@program(
    "waiting_span",
    truth="A script starts an external solver, which mostly waits for its licence. Helps: asking the licence server "
    "less often, solving several cases side by side. Harmful: more CPUs for the solver.",
)
def solver_waits_for_licence(ctx):
    # 8 cases: 0.5 s of post-processing (4 s), 0.55 s in the solver (52 %), weak 0.14 s (22 %)
    script("licensed.py", 0.55 * ctx.strength)


@program(
    "waiting_span",
    "data_loading",
    truth="Each frame is waited for until the camera has written its file. Helps: processing frames meanwhile, a faster "
    "camera. Harmful: faster processing, more CPUs.",
)
def frames_from_camera(ctx):
    # 12 frames, which come every 0.72 s and are processed in 0.34 s: 8.6 s (53 %); weak every 0.435 s (22 %)
    import flightlog

    period_s = 0.34 + 0.38 * ctx.strength
    camera = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "camera.py"), str(ctx.work), "12", str(period_s)]
    )
    if ctx.strength == 0.0:
        camera.wait()
    with flightlog.record("frames"):
        for frame in range(12):
            path = ctx.work / f"frame-{frame:03}.dat"
            with flightlog.span("read_frame", frame=frame):
                while not path.exists():
                    time.sleep(0.01)
                path.read_bytes()
            with flightlog.span("find_stars", frame=frame):
                crunch(_orbit, 0.34)
    camera.wait()


# --------------------------------------------------------------------------------------------------
# Locks


def append_result(number, path, locked, cpu_s):
    if not locked:
        return crunch(_orbit, cpu_s)
    with open(path, "a") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        value = crunch(_orbit, cpu_s)
        shared.write(f"{number} {value}\n")
    return value


@program(
    "taking_turns",
    "lock_waits",
    truth="Tasks hold the lock of one shared file while they compute. Helps: a file for each task, or locking only to "
    "write. Harmful: more workers.",
)
def shared_result_file(ctx):
    # 22 tasks of 0.35 s: all locked 7.7 s, none 3.85 s (50 %); 6 locked 4.8 s (20 %)
    locked = ctx.count(22)
    path = str(ctx.work / "results.txt")
    with open_session(ctx, "results") as session:
        client = session.client
        client.gather([client.submit(append_result, i, path, False, 0.35) for i in range(22 - locked)])
        client.gather([client.submit(append_result, i, path, True, 0.35) for i in range(locked)])


_DEVICE = threading.Lock()


def measure(channel, exclusive):
    with _DEVICE if exclusive else contextlib.nullcontext():
        time.sleep(0.25)
    return channel


@program(
    "lock_waits",
    "taking_turns",
    truth="4 threads wait for the lock of one device. Helps: one request for several channels, a second device. Harmful: "
    "more threads, processes.",
    weak=0.22,
)
def lock_of_device(ctx):
    # 64 waits of 0.25 s on 4 threads: 4 s; 24 under a lock 8.5 s (53 %), 5 under a lock 4.9 s (19 %)
    locked = ctx.count(24)
    with open_session(ctx, "channels", workers=4, processes=False) as session:
        client = session.client
        client.gather([client.submit(measure, i, False) for i in range(64 - locked)])
        client.gather([client.submit(measure, i, True) for i in range(locked)])


# --------------------------------------------------------------------------------------------------
# Memory


_KEPT = []


def analyse_image(image, keep_mb, cpu_s):
    if keep_mb:
        _KEPT.append(bytearray(b"x") * int(keep_mb * 1e6))
    return crunch(_orbit, cpu_s)


@program(
    "memory_growth",
    "memory_pressure",
    truth="Each task leaves 80 MB in its worker (weak: 16 MB), which costs no time before memory is full. Helps: letting go of "
    "images, new workers now and then. Harmful: more workers, longer runs.",
    weak=0.2,
    weak_also=("none",),
)
def images_kept_by_workers(ctx):
    with open_session(ctx, "images") as session:
        session.client.gather(
            session.client.map(analyse_image, range(40), keep_mb=80 * ctx.strength, cpu_s=0.25)
        )


@program(
    "memory_growth",
    "memory_pressure",
    truth="A simulation appends a copy of 25 MB (weak: 5 MB) to a list at each step, which costs hardly any time before memory "
    "is full. Helps: writing states to disk, keeping every tenth. Harmful: longer runs, finer steps.",
    weak=0.2,
    weak_also=("none",),
)
def history_of_states(ctx):
    import flightlog

    history = []
    with flightlog.record("states") as run:
        for step in range(120):
            with flightlog.span("advance_state", step=step):
                crunch(_orbit, 0.05)
                history.append(bytearray(b"x") * int(25e6 * ctx.strength))
            run.metric("energy", 1.0 + 0.01 * math.sin(step), step=step)


# --------------------------------------------------------------------------------------------------
# Failures


def download(scene, fails, folder, cpu_s):
    crunch(_deflate, cpu_s)
    if fails:
        try:
            (Path(folder) / f"tried-{scene}").touch(exist_ok=False)
        except FileExistsError:
            return scene
        raise ConnectionResetError(104, "archive closed the connection")
    return scene


@program(
    "failed_work",
    truth="All scenes (weak: 5 of 20) are done twice, because the archive closes the first connection. Helps: fewer "
    "connections at once, resuming. Harmful: more workers, more retries.",
)
def connections_that_break(ctx):
    # 20 attempts of 0.35 s 3.5 s, 40 attempts 7 s and the pauses (50 %), weak 25 attempts 4.4 s (20 %)
    fails = ctx.count(20)
    with open_session(ctx, "scenes", tasks={"download": {"retries": 3}}) as session:
        client = session.client
        client.gather([client.submit(download, i, i % 20 < fails, str(ctx.work), 0.35) for i in range(20)])


@program(
    "failed_work",
    truth="Half of the fits (weak: a fifth) fail after all their iterations because of a singular Hessian. Helps: better "
    "start values or a bound. Harmful: retrying, more iterations.",
    weak=0.4,
)
def fits_that_fail(ctx):
    # 20 fits of 0.4 s one after another: 10 fail (50 %), 4 fail (20 %)
    import flightlog

    failing = ctx.count(10)
    with flightlog.record("fits") as run:
        for number in range(20):
            try:
                with run.task("fit", subject=number):
                    crunch(_sir, 0.4)
                    if number % 2 and number // 2 < failing:
                        raise ArithmeticError("Hessian is singular after 500 iterations")
            except ArithmeticError:
                pass


def read_station(station, hangs, cpu_s):
    if hangs:
        ours, theirs = socket.socketpair()
        ours.settimeout(25)
        Path(hangs).touch()
        ours.recv(1)
    return crunch(_parse, cpu_s)


def kill_when_hung(ctx, inner):
    """The batch system ends the job some time after its last task has hung up."""
    while not (ctx.work / "hung").exists() and inner.poll() is None:
        time.sleep(0.02)
    try:
        inner.wait(4.5 * ctx.strength)
    except subprocess.TimeoutExpired:
        os.killpg(inner.pid, signal.SIGKILL)


@program(
    "stuck_tasks",
    "hung_tasks",
    truth="The last of 30 stations never answers, until the job is killed. Helps: a timeout for the socket or the task. Harmful: a "
    "longer time limit.",
    weak=0.24,
    outside=kill_when_hung,
)
def station_never_answers(ctx):
    # 30 tasks of 0.2 s (3 s), then 4.5 s of nothing (60 %), weak 1.1 s (26 %)
    hung = str(ctx.work / "hung") if ctx.strength else ""
    with open_session(ctx, "stations") as session:
        client = session.client
        client.gather([client.submit(read_station, i, hung if i == 29 else "", 0.2) for i in range(30)])


@program(
    "failed_work",
    "stuck_tasks",
    "hung_tasks",
    truth="One of 30 stations never answers and is ended by its timeout. Helps: a shorter timeout, or asking that station first. "
    "Harmful: retries, a longer timeout.",
    weak=0.24,
)
def station_times_out(ctx):
    # as station_never_answers
    hung = str(ctx.work / "hung") if ctx.strength else ""
    with open_session(ctx, "stations") as session:
        client = session.client
        futures = [client.submit(read_station, i, "", 0.2) for i in range(29)]
        futures.append(
            client.submit(read_station, 29, hung, 0.2, timeout=max(4.5 * ctx.strength, 1.0) if hung else 60.0)
        )
        client.gather(futures, errors="return")


# --------------------------------------------------------------------------------------------------
# Caches


@program(
    "cache_misses",
    truth="A cached step is computed again in each round, because the time of the request is one of its arguments. Helps: "
    "ignore=['requested_at']. Harmful: a larger cache, a longer ttl.",
)
def time_in_cache_key(ctx):
    # 5 rounds of 5 regions: fit 0.15 s (3.75 s), preparing the first time 0.2 s (1 s), and again 20 times (4 s, 46 %), weak
    # 5 times (1 s, 17 %)
    import flightlog

    @flightlog.cacheable
    def prepare_region(region, requested_at):
        return crunch(_parse, 0.2)

    again = ctx.count(20)
    calls = 0
    with flightlog.record("regions"):
        for round_number in range(5):
            for region in range(5):
                calls += 1
                late = round_number > 0 and calls > 25 - again
                with flightlog.span("region", region=region, round=round_number):
                    prepare_region(region, time.time() if late else 0.0)
                    with flightlog.span("fit"):
                        crunch(_orbit, 0.15)


def simulate_short(scenario, cpu_s):
    return crunch(_sir, cpu_s)


def simulate_long(scenario, cpu_s):
    return crunch(_sir, cpu_s)


def score_scenario(value, round_number, cpu_s):
    return crunch(_orbit, cpu_s)


@program(
    "cache_misses",
    truth="Results expire before they are needed again, since their ttl is 0.3 s. Helps: a longer ttl. Harmful: more "
    "workers, clearing the cache.",
)
def short_ttl(ctx):
    # 4 rounds of 8 scenarios on 2 workers: scoring 0.8 s a round, simulating 1.6 s once (4.8 s), again in 3 rounds 4.8 s
    # (50 %), weak 2 of 8 scenarios 1.2 s (20 %)
    short = ctx.count(8)
    tasks = {"simulate_short": {"cache": {"ttl": "0.3s"}}, "simulate_long": {"cache": True}}
    with open_session(ctx, "scenarios", tasks=tasks) as session:
        client = session.client
        for round_number in range(4):
            values = client.gather(
                [client.submit(simulate_short if i < short else simulate_long, i, 0.4) for i in range(8)]
            )
            client.gather([client.submit(score_scenario, v, round_number, 0.2) for v in values])


@program(
    "costly_cache",
    truth="A cache looks up a step by the content of an array, which takes longer than the step itself. Helps: no cache for "
    "it, or a key by name. Harmful: caching more, a larger cache.",
)
def cache_of_fast_step(ctx):
    import numpy

    import flightlog

    @flightlog.cacheable
    def contrast(image):
        return float(image[::64].max() - image[::64].min())

    calls = ctx.count(CACHED_CALLS)
    images = [numpy.random.default_rng(i).random(IMAGE_MB * 125_000) for i in range(4)]
    with flightlog.record("contrast"):
        for number in range(40):
            with flightlog.span("segment", image=number):
                crunch(_orbit, 0.1)
            for _ in range(calls * (number + 1) // 40 - calls * number // 40):
                contrast(images[number % 4])


CACHED_CALLS = 80
IMAGE_MB = 80


# --------------------------------------------------------------------------------------------------
# Training that went wrong


def descend(run, steps, lr_at, bad_at=None):
    """Regression by stochastic gradient descent, with a loss at each step."""
    import numpy

    import flightlog

    rng = numpy.random.default_rng(5)
    scales = numpy.linspace(0.4, 1.0, 30)
    truth = rng.standard_normal(30)
    weights = numpy.zeros(30)
    for step in range(steps):
        with flightlog.span("train_step", step=step):
            data = rng.standard_normal((128, 30)) * scales
            target = data @ truth + 0.1 * rng.standard_normal(128)
            if step == bad_at:
                data[3, 4] = numpy.nan  # a corrupt record
            error = data @ weights - target
            weights -= lr_at(step) * data.T @ error / 128
            crunch(_waves, 0.04)
        run.metric("loss", float((error**2).mean()), step=step)


@program(
    "not_finite",
    truth="A corrupt record makes the loss NaN for the rest of the training, which computes on in vain. Helps: checking inputs, "
    "stopping at NaN. Harmful: more epochs.",
)
def corrupt_record(ctx):
    # 150 steps of 0.04 s: NaN after 20 % (weak: 80 %) of them
    import flightlog

    bad_at = round(150 * (1 - 0.8 * ctx.strength)) if ctx.strength else None
    with flightlog.record("regression") as run:
        descend(run, 150, lambda step: 0.3, bad_at)


@program(
    "diverging",
    truth="The learning rate is raised beyond what is stable, and the loss grows without end. Helps: a smaller learning rate. "
    "Harmful: more steps, warm-up to the same rate.",
    weak=0.33,
)
def learning_rate_too_high(ctx):
    # 150 steps of 0.04 s: it grows during the last 60 % (weak: 20 %) of them, to far more than 100 times
    import flightlog

    stable = round(150 * (1 - 0.6 * ctx.strength))
    with flightlog.record("regression") as run:
        descend(run, 150, lambda step: 0.3 if step < stable else 2.4)


# --------------------------------------------------------------------------------------------------
# Healthy programs


@healthy("Equal tasks keep 2 workers busy to the end.")
def balanced_sweep(ctx):
    with open_session(ctx, "sweep") as session:
        session.client.gather(session.client.map(propagate, range(36), cpu_s=0.35))


def call_service(request):
    time.sleep(0.4)
    return request


@healthy("12 threads wait for a remote service side by side, which is what they are for.")
def remote_calls(ctx):
    with open_session(ctx, "service", workers=12, processes=False) as session:
        session.client.gather(session.client.map(call_service, range(180)))


@healthy("One thread assembles and solves, all the time on a CPU; nothing waits.")
def single_solver(ctx):
    import flightlog

    with flightlog.record("heat") as run:
        for step in range(16):
            with flightlog.span("solve", step=step):
                with flightlog.span("assemble"):
                    crunch(_orbit, 0.12)
                with flightlog.span("iterate"):
                    crunch(_sir, 0.25)
            run.metric("residual_error", 0.5**step, step=step)


@healthy("A short program does its work in one go.")
def short_program(ctx):
    import flightlog

    with flightlog.record("short"), flightlog.span("integrate"):
        crunch(_sir, 0.8)


def predict_small(sample, cpu_s):
    return load_model(0.15) + crunch(_orbit, cpu_s)


@healthy("Each worker loads a small model once, 0.15 s in a run of 7 s.")
def small_model(ctx):
    with open_session(ctx, "predict-small") as session:
        session.client.gather(session.client.map(predict_small, range(36), cpu_s=0.36))


@healthy("A training whose batches are in memory, with a loss that falls and rises a little now and then.")
def good_training(ctx):
    import torch

    import flightlog

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = torch.randn(12, 256, 64)
    torch_step(model, optimizer, batches[0], 0.05)
    with flightlog.record("good-training") as run:
        for epoch in range(6):
            with flightlog.span("epoch", epoch=epoch):
                for number in range(12):
                    with flightlog.span("load_batch"):
                        time.sleep(0.002)
                        batch = batches[number].clone()
                    with flightlog.span("train_step"):
                        loss = torch_step(model, optimizer, batch, 0.08)
                    run.metric("loss", loss, step=epoch * 12 + number)
            run.metric("accuracy", 1 - 0.5 ** (epoch + 1), step=epoch)


@healthy(
    "2 of 40 tasks fail at once and are retried, 3 are cancelled before they begin: none of it costs time."
)
def few_retries(ctx):
    with open_session(ctx, "few", tasks={"download": {"retries": 2}, "flaky": {"retries": 2}}) as session:
        client = session.client
        futures = [client.submit(flaky, i, i in (4, 9), str(ctx.work), 0.35) for i in range(38)]
        spare = [client.submit(flaky, 100 + i, False, str(ctx.work), 0.35) for i in range(3)]
        for future in spare:
            client.cancel(future)
        client.gather(futures)


def flaky(number, fails, folder, cpu_s):
    if fails:
        with contextlib.suppress(FileExistsError):
            (Path(folder) / f"tried-{number}").touch(exist_ok=False)
            raise ConnectionResetError(104, "try again")
    return crunch(_deflate, cpu_s)


@healthy("Threads compute in NumPy and zlib, which let go of the interpreter: both cores are busy.")
def threads_in_numpy(ctx):
    with open_session(ctx, "fields", processes=False) as session:
        client = session.client
        client.gather([client.submit(sample_field if i % 2 else compress_block, i, 0.35) for i in range(32)])


def pairwise(left, right, cpu_s):
    return crunch(_orbit, cpu_s) + left + right


@healthy(
    "A reduction by pairs has dependencies, but always enough side by side for 2 workers, but for its last few short steps."
)
def reduction_tree(ctx):
    with watched("reduction") as client:
        level = client.map(coarse, range(32), cpu_s=0.35, pure=False)
        while len(level) > 1:
            level = [
                client.submit(pairwise, a, b, 0.03, pure=False)
                for a, b in zip(level[::2], level[1::2], strict=True)
            ]
        level[0].result()


@healthy("A monitor polls for alarms twice a second and handles them; it is there to wait.")
def alarm_monitor(ctx):
    import flightlog

    with flightlog.record("monitor"):
        for number in range(14):
            with flightlog.span("poll_alarms"):
                time.sleep(0.4)
            with flightlog.span("handle", number=number):
                crunch(_parse, 0.1)


@healthy("2 processes of joblib share 24 equal fits on 2 cores.")
def joblib_two(ctx):
    from joblib import Parallel, delayed

    import flightlog

    with flightlog.record("two-jobs"), flightlog.span("cross_validate"):
        Parallel(n_jobs=2)(delayed(fit_fold)(fold, 0.5) for fold in range(26))


@healthy(
    "A shell pipeline of three single-threaded steps, each of which needs the last and computes all the time."
)
def shell_pipeline(ctx):
    command("sh", SCRIPTS / "pipeline.sh", sys.executable, SCRIPTS / "relax.py")


@healthy("The first run with a cache computes everything once, as it must; repeated calls are hits.")
def first_run_of_cache(ctx):
    tasks = {"simulate_long": {"cache": True}}
    with open_session(ctx, "first-cache", tasks=tasks) as session:
        client = session.client
        client.gather([client.submit(simulate_long, i, 0.4) for i in range(30)])
        client.gather([client.submit(simulate_long, i, 0.4) for i in range(30)])


@healthy(
    "Memory grows while the data is read and then stays; the log-likelihood, which is to grow, grows a hundredfold."
)
def memory_that_settles(ctx):
    import flightlog

    data = []
    with flightlog.record("sampler") as run:
        with flightlog.span("generate_data"):
            for _ in range(5):
                data.append(bytearray(b"x") * 60_000_000)
                crunch(_parse, 0.1)
        for step in range(60):
            with flightlog.span("sample", step=step):
                crunch(_orbit, 0.1)
            run.metric("log_likelihood", 1.08**step, step=step)


@healthy("Tasks of very different sizes, the longest first, so that both workers end together.")
def longest_first(ctx):
    times = [
        2.0,
        1.6,
        1.2,
        1.0,
        0.9,
        0.8,
        0.7,
        0.6,
        0.5,
        0.5,
        0.4,
        0.4,
        0.3,
        0.3,
        0.3,
        0.2,
        0.2,
        0.2,
        0.1,
        0.1,
        0.1,
    ]
    with open_session(ctx, "sizes") as session:
        session.client.gather([session.client.submit(solve_ode, i, cpu_s=t) for i, t in enumerate(times)])


# --------------------------------------------------------------------------------------------------


def main(arguments):
    if arguments == ["--list"]:
        for entry in PROGRAMS.values():
            print(
                f"{entry.name:28} weak {entry.weak:<5} {'healthy' if entry.healthy else ', '.join(sorted(entry.kind))}"
            )
        return
    work = None
    if arguments[0] == "--inner":  # the recorded program, beside what happens outside of it
        work, arguments = Path(arguments[1]), arguments[2:]
    name, strength, folder = arguments[0], float(arguments[1]), Path(arguments[2]).resolve()
    chosen = PROGRAMS[name]
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["FLIGHTLOG_RUNS_DIR"] = str(folder)
    if work is not None:
        os.chdir(work)
        chosen.run(Context(strength, folder, work))
        return
    with tempfile.TemporaryDirectory(prefix="exam-", ignore_cleanup_errors=True) as temporary:
        work = Path(temporary)
        os.environ["FLIGHTLOG_CACHE_DIR"] = str(work / "cache")
        ctx = Context(strength, folder, work)
        os.chdir(work)
        try:
            if chosen.outside is None:
                chosen.run(ctx)
            else:
                inner = subprocess.Popen(
                    [
                        sys.executable,
                        str(Path(__file__).resolve()),
                        "--inner",
                        temporary,
                        *arguments[:2],
                        str(folder),
                    ],
                    start_new_session=True,
                )
                try:
                    chosen.outside(ctx, inner)
                    inner.wait(50)
                finally:
                    if inner.poll() is None:
                        os.killpg(inner.pid, signal.SIGKILL)
                        inner.wait()
        finally:
            os.chdir("/")


if __name__ == "__main__":
    main(sys.argv[1:])
