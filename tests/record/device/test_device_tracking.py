"""Tracking device memory: valid events in the run, and never a word to the program."""

from __future__ import annotations

import ast
import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.fake_frameworks import GIB, FakeTorch, cuda_stats

import flightlog
from flightlog.devices import load_telemetry_sessions, telemetry_event_to_dict, validate_telemetry_record
from flightlog.record.device import tracking
from flightlog.record.device.tracker import (
    DeviceMemoryTracker,
    DeviceSource,
    SamplingPace,
    identity,
    offset_to_first_rank,
)
from flightlog.record.device.tracking import NoTracker, Options, checked
from flightlog.record.limits import TrackingLimits
from flightlog.samplers.frameworks import HostMemory, TensorFlowMemory, TorchCuda
from flightlog.samplers.gpu.driver import Depth, Device, DeviceReading
from flightlog.store.run import Run

MIB = 1 << 20


class FakeDriver:
    """A driver that sees 3 GiB in use of 80."""

    notes = ()

    def devices(self) -> list[Device]:
        return [Device(ordinal=n, index=n + 4, uuid=f"GPU-{n}") for n in range(2)]

    def read(self, device: Device, depth: Depth) -> DeviceReading:
        return DeviceReading(
            memory_used_bytes=3 * GIB, memory_free_bytes=77 * GIB, memory_total_bytes=80 * GIB
        )

    def close(self) -> None:
        pass


def source_of(allocator: Any, driver: Any = None) -> DeviceSource:
    return DeviceSource("auto", find=lambda _wanted: allocator, driver=lambda: driver)


def on_cuda() -> FakeTorch:
    torch = FakeTorch()
    torch.cuda.started = True
    torch.cuda.stats[0] = cuda_stats(GIB, 2 * GIB)
    return torch


def devices_of(run: Any) -> list[Any]:
    return list(Run(run.path).events("devices"))


def told(run: Any) -> list[tuple[str, int, int, str | None]]:
    return [
        (e.event_type, e.allocator_allocated_bytes, e.allocator_change_bytes, e.context)
        for e in devices_of(run)
    ]


def test_a_session_goes_from_start_to_stop_with_the_span_as_its_context(recorded):
    torch = on_cuda()
    with recorded() as run:
        tracker = DeviceMemoryTracker(run, Options(), source_of(TorchCuda(torch), FakeDriver()))
        with run.span("train"), run.span("epoch"):
            tracker.sample()
            torch.cuda.stats[0] = cuda_stats(GIB + 100 * MIB, 2 * GIB, peak=GIB + 500 * MIB)
            tracker.sample()
        with run.task("evaluate") as task:
            torch.cuda.stats[0] = cuda_stats(GIB, 2 * GIB, peak=GIB + 500 * MIB)
            tracker.sample()
        tracker.stop()
        tracker.stop()
        tracker.sample()
    assert told(run) == [
        ("start", GIB, 0, "epoch"),
        ("sample", GIB, 0, "epoch"),
        ("allocation", GIB + 100 * MIB, 100 * MIB, "epoch"),
        ("peak", GIB + 100 * MIB, 0, "epoch"),
        ("deallocation", GIB, -100 * MIB, "evaluate"),
        ("sample", GIB, 0, None),
        ("stop", GIB, 0, None),
    ]
    events = devices_of(run)
    assert {e.session_id for e in events} == {tracker.session_id}
    assert {e.collector for e in events} == {"flightlog.torch.cuda"}
    assert {(e.device_used_bytes, e.device_free_bytes, e.device_total_bytes) for e in events} == {
        (3 * GIB, 77 * GIB, 80 * GIB)
    }
    assert events[1].metadata["span_path"] == "train/epoch"
    assert events[1].metadata["device_uuid"] == "GPU-0"
    assert events[3].metadata["peak_allocated_bytes"] == GIB + 500 * MIB
    assert events[4].metadata["task_id"] == task.span_id
    assert events[-1].metadata["peak_bytes_by_device"] == {"0": GIB + 500 * MIB}


def allocators() -> list[Any]:
    from builders.fake_frameworks import FakeTensorFlow

    fake = FakeTensorFlow({"current": 7, "peak": 9}, {})
    return [TorchCuda(on_cuda()), HostMemory("torch"), TensorFlowMemory(fake, fake.modules())]


@pytest.mark.parametrize("allocator", allocators(), ids=lambda allocator: allocator.name)
@pytest.mark.parametrize("driver", [FakeDriver(), None], ids=["driver", "no driver"])
def test_every_event_is_a_valid_record_and_its_file_loads(recorded, allocator, driver, tmp_path):
    with recorded() as run:
        tracker = DeviceMemoryTracker(
            run, Options(warning_percent=0.001, change_bytes=1), source_of(allocator, driver)
        )
        for _ in range(3):
            tracker.sample()
        tracker.dump("to see it")
        tracker.stop()
    events = devices_of(run)
    for event in events:
        validate_telemetry_record(telemetry_event_to_dict(event))
    [session] = load_telemetry_sessions(run.path / "devices.jsonl")
    assert session.summary.status == "completed"
    assert len(session.events) == len(events)


def test_what_a_framework_does_not_count_is_said_to_be_unknown(recorded):
    from builders.fake_frameworks import FakeTensorFlow

    fake = FakeTensorFlow({"current": 7, "peak": 9}, {})
    with recorded() as run:
        tracker = DeviceMemoryTracker(run, Options(), source_of(TensorFlowMemory(fake, fake.modules())))
        tracker.sample()
        tracker.stop()
    first, second = (
        next(e for e in devices_of(run) if e.event_type == "sample" and e.device_id == n) for n in (0, 1)
    )
    unknown = {
        "backend": "tensorflow",
        "supports_allocator_reserved": False,
        "supports_allocator_active": False,
        "supports_allocator_inactive": False,
    }
    assert first.metadata["memory_capabilities"] == unknown
    assert first.metadata["device_used_source"] == "allocator"
    assert (first.allocator_allocated_bytes, first.device_used_bytes, first.device_total_bytes) == (
        7,
        7,
        None,
    )
    assert second.metadata["memory_capabilities"] == unknown | {
        "supports_allocator_allocated": False,
        "supports_allocator_change": False,
        "supports_device_used": False,
    }


def test_without_a_driver_the_runtime_is_asked_for_devices_in_use_alone(recorded):
    torch = on_cuda()
    with recorded() as run:
        tracker = DeviceMemoryTracker(run, Options(), source_of(TorchCuda(torch)))
        tracker.sample()
        tracker.stop()
    assert {(e.device_id, e.device_used_bytes, e.device_total_bytes) for e in devices_of(run)} == {
        (0, 20 * GIB, 80 * GIB)
    }


class Failing:
    """A framework that cannot be read, at the second time and later."""

    name = "torch.cuda"
    capabilities = TorchCuda(FakeTorch()).capabilities

    def __init__(self, torch: FakeTorch, error: Exception) -> None:
        self._real, self._error, self.reads = TorchCuda(torch), error, 0

    def devices(self) -> Any:
        return self._real.devices()

    def read(self, device: int) -> Any:
        self.reads += 1
        if self.reads > 1:
            raise self._error
        return self._real.read(device)

    def snapshot(self) -> None:
        raise self._error


def test_a_framework_that_raises_is_told_once_and_the_program_hears_nothing(recorded, caplog):
    allocator = Failing(on_cuda(), RuntimeError("CUDA error: device-side assert triggered"))
    with recorded() as run:
        tracker = DeviceMemoryTracker(run, Options(), source_of(allocator, FakeDriver()))
        for _ in range(5):
            tracker.sample()
        assert tracker.dump("anything") is not None
        assert tracker.align() is None
        tracker.stop()
    assert [kind for kind, *_ in told(run)] == ["start", "sample", "error", "error", "stop"]
    error = devices_of(run)[2]
    assert error.metadata["message"] == "CUDA error: device-side assert triggered"
    assert [r.message for r in caplog.records if "framework's memory" in r.message] == [
        "the framework's memory could not be read: RuntimeError: CUDA error: device-side assert triggered; "
        "the program goes on, what cannot be recorded is counted"
    ]


def test_a_device_that_cannot_be_read_hides_no_other_and_a_runtime_that_raises_no_allocator(recorded, caplog):
    torch = on_cuda()
    torch.cuda.stats[1] = cuda_stats(5 * MIB, 6 * MIB)
    working = torch.cuda.memory_stats_as_nested_dict
    torch.cuda.mem_get_info = broken = lambda _device: 1 / 0
    with recorded() as run:
        tracker = DeviceMemoryTracker(run, Options(), source_of(TorchCuda(torch)))
        tracker.sample()
        torch.cuda.memory_stats_as_nested_dict = lambda device: broken(0) if device == 0 else working(device)
        tracker.sample()
        tracker.stop()
    samples = [e for e in devices_of(run) if e.event_type == "sample"]
    assert [(e.device_id, e.allocator_allocated_bytes) for e in samples] == [
        (0, GIB),
        (1, 5 * MIB),
        (1, 5 * MIB),
        (1, 5 * MIB),
    ]
    assert {(e.metadata["device_used_source"], e.device_total_bytes) for e in samples} == {
        ("allocator", None)
    }
    assert caplog.text.count("the memory of a device could not be read: ZeroDivisionError") == 1


def test_outside_a_run_tracking_is_nothing():
    with flightlog.track_device_memory() as tracker:
        assert isinstance(tracker, NoTracker)
        tracker.sample()
        assert tracker.dump() is None
        assert tracker.align() is None
    with pytest.raises(KeyError), flightlog.track_device_memory():
        raise KeyError("the program's own")


def test_with_recording_off_tracking_is_nothing(monkeypatch, recorded):
    monkeypatch.setenv("FLIGHTLOG_TELEMETRY", "0")
    with recorded(), flightlog.track_device_memory() as tracker:
        assert isinstance(tracker, NoTracker)


def test_a_block_in_which_no_framework_was_used_says_so(recorded, caplog):
    with recorded() as run:
        with flightlog.track_device_memory("jax"):
            pass
    assert told(run) == []
    assert "no device memory was recorded: the program used no jax meanwhile" in caplog.text


def test_a_second_tracker_of_a_process_is_the_first_one(recorded, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(cuda=None))
    with recorded() as run:
        with flightlog.track_device_memory(interval_s=30) as outer:
            with flightlog.track_device_memory(interval_s=5) as inner:
                assert inner is outer
            outer.sample()
            sessions = {outer.session_id}
        with flightlog.track_device_memory(interval_s=30) as later:
            later.sample()
            sessions.add(later.session_id)
    assert len(sessions) == 2
    assert {e.session_id for e in devices_of(run)} == sessions
    assert {e.sampling_interval_ms for e in devices_of(run)} == {30_000}
    assert tracking._tracking == {}


def test_tracking_again_and_again_leaves_nothing_behind(recorded, monkeypatch):
    import multiprocessing.util

    monkeypatch.setitem(sys.modules, "torch", FakeTorch(cuda=None))

    def track() -> None:
        with flightlog.track_device_memory(interval_s=30) as tracker:
            tracker.sample()

    with recorded() as run:
        track()
        kept = len(run._on_end), len(multiprocessing.util._finalizer_registry)
        for _ in range(10):
            track()
        assert (len(run._on_end), len(multiprocessing.util._finalizer_registry)) == kept
        assert tracking._tracking == {}


def test_a_driver_that_hangs_keeps_nobody_waiting_for_long(recorded, monkeypatch):
    import threading

    monkeypatch.setattr(TrackingLimits, "sample_lock_timeout_s", 0.01)
    asked, answer = threading.Event(), threading.Event()

    def hangs() -> None:
        asked.set()
        answer.wait(30)

    with recorded() as run:
        source = DeviceSource("auto", find=lambda _wanted: TorchCuda(on_cuda()), driver=hangs)
        tracker = DeviceMemoryTracker(run, Options(), source)
        stuck = threading.Thread(target=tracker.sample)
        stuck.start()
        assert asked.wait(30)
        tracker.sample()
        # From here on nobody waits any more.
        monkeypatch.setattr(TrackingLimits, "sample_lock_timeout_s", 3600)
        tracker.sample()
        tracker.dump()
        tracker.stop()
        assert run.recorder.counts["device_samples_missed"] == 2
        answer.set()
        stuck.join()


def test_what_takes_long_is_asked_for_a_tenth_of_the_time_and_at_least_every_five_seconds():
    now, cpu, taken = [0.0], [0.0], []

    def read(cost: float) -> None:
        cpu[0] += cost
        now[0] += cost
        taken.append(round(now[0] - cost, 3))

    pace = SamplingPace(lambda: now[0], lambda: cpu[0])
    for _ in range(100):
        pace.run(lambda: read(0.02))
        now[0] = round(now[0] + 0.01, 3)
    assert taken[:4] == [0.0, 0.2, 0.4, 0.6]
    now[0], taken[:] = 100.0, []
    while now[0] < 130:
        pace.run(lambda: read(2.0))
        now[0] += 0.5
    assert taken == [100.0, 107.0, 114.0, 121.0, 128.0]


def test_a_run_that_ends_first_ends_the_session(recorded, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(cuda=None))
    recording = recorded()
    run = recording.__enter__()
    tracking = flightlog.track_device_memory(interval_s=30)
    tracking.__enter__().sample()
    recording.__exit__(None, None, None)
    tracking.__exit__(None, None, None)
    assert [kind for kind, *_ in told(run)][-1] == "stop"


def test_a_forked_child_does_not_go_on_tracking(recorded, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(cuda=None))
    with recorded() as run:
        with flightlog.track_device_memory(interval_s=30) as tracker:
            tracker.sample()
            child = os.fork()
            if child == 0:
                tracker.sample()
                silent = tracker.dump() is None
                tracker.stop()
                with flightlog.track_device_memory(interval_s=30) as own:
                    own.sample()
                    os._exit(0 if silent and own is not tracker else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pids = {
        session: {e.pid for e in devices_of(run) if e.session_id == session}
        for session in {e.session_id for e in devices_of(run)}
    }
    assert pids[tracker.session_id] == {os.getpid()}
    assert {frozenset(of) for of in pids.values()} == {frozenset({os.getpid()}), frozenset({child})}


def test_options_that_make_no_sense_are_replaced_and_said(caplog):
    with caplog.at_level(logging.WARNING):
        found = checked(Options(framework="torhc", interval_s=0, warning_percent=None, change_bytes=True))
    assert found == Options(warning_percent=None)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "framework 'torhc' is not known (use auto, torch, torch.cuda, torch.rocm, torch.mps, torch.cpu, jax, "
        "jax.cpu, tensorflow, tensorflow.cpu)",
        "interval_s=0 is no positive number",
        "change_bytes=True is no positive number",
    ]
    assert checked(Options(interval_s=1e-9)).interval_s == 0.01


RANKS = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "job-7"}


def process_group(rank: Any, size: int) -> Any:
    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: size,
    )


@pytest.mark.parametrize(
    ("environ", "group", "expected"),
    [
        ({}, None, (None, 0, 0, 1)),
        (RANKS, None, ("job-7", 3, 1, 8)),
        (RANKS, process_group(5, 8), ("job-7", 5, 1, 8)),
        ({}, process_group(2, 4), (None, 2, 2, 4)),
        ({"RANK": "x", "WORLD_SIZE": "8"}, None, (None, 0, 0, 1)),
        (RANKS, process_group(9, 8), ("job-7", 3, 1, 8)),
    ],
)
def test_the_rank_is_the_process_groups_else_the_launchers_and_never_an_error(environ, group, expected):
    modules = {} if group is None else {"torch.distributed": group}
    found = identity(environ, modules)
    assert (found["job_id"], found["rank"], found["local_rank"], found["world_size"]) == expected


def test_a_process_that_becomes_a_rank_late_goes_on_as_a_session_of_that_rank(recorded, monkeypatch):
    for name in (*RANKS, "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    with recorded() as run:
        tracker = DeviceMemoryTracker(run, Options(), source_of(TorchCuda(on_cuda()), FakeDriver()))
        tracker.sample()
        monkeypatch.setitem(sys.modules, "torch.distributed", process_group(2, 4))
        for _ in range(10):
            tracker.sample()
        tracker.stop()
    sessions = [
        (s.summary.rank, s.summary.world_size, s.summary.status)
        for s in load_telemetry_sessions(run.path / "devices.jsonl")
    ]
    assert sorted(sessions) == [(0, 1, "completed"), (2, 4, "completed")]


def test_the_offset_of_a_rank_is_the_median_over_rounds():
    spoken: list[int] = []

    class Tensor:
        def __init__(self, value: int) -> None:
            self.value = value

        def item(self) -> int:
            return self.value

    def broadcast(tensor: Tensor, src: int) -> None:
        tensor.value -= 5_000_000 + (10**12 if len(spoken) < 4 else 0)
        spoken.append(tensor.value)

    group = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_backend=lambda: "gloo",
        get_rank=lambda: 1,
        barrier=lambda: None,
        broadcast=broadcast,
    )
    torch = SimpleNamespace(distributed=group, int64=None, tensor=lambda values, **_: Tensor(values[0]))
    assert offset_to_first_rank(torch, SimpleNamespace(anchor_ns=0)) == 5_000_000
    assert len(spoken) == TrackingLimits.calibration_rounds
    assert offset_to_first_rank(None, SimpleNamespace(anchor_ns=0)) is None


FAKE = """
from types import SimpleNamespace
version = SimpleNamespace(cuda=None, hip=None)
backends = SimpleNamespace(mps=None)
cuda = SimpleNamespace(is_initialized=lambda: False)
"""


@pytest.fixture
def program(tmp_path: Path):
    """Run a Python program in which `torch` is a stand-in; gives what became of it."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "torch.py").write_text(FAKE)
    (tmp_path / "lib" / "sitecustomize.py").write_text("import sys; sys.the_sites_own = True\n")
    command = [sys.executable, "-c", "from flightlog.cli.main import main; raise SystemExit(main())"]

    def run(source: str, *options: str, **environ: str) -> Any:
        file = tmp_path / "program.py"
        file.write_text(textwrap.dedent(source))
        env = {
            **os.environ,
            "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs"),
            "PYTHONPATH": str(tmp_path / "lib"),
            **environ,
        }
        words = [*command, "run", *options, "--", sys.executable, str(file)]
        return subprocess.run(words, env=env, check=False, capture_output=True, text=True, timeout=60)

    return run


def the_run(tmp_path: Path) -> Any:
    [path] = (tmp_path / "runs").iterdir()
    return Run(path)


WAIT = """
import glob, os, sys, time
import torch
deadline = time.monotonic() + 20
def recorded():
    files = glob.glob(os.environ["FLIGHTLOG_RUN"] + "/**/devices*", recursive=True)
    return any(b"sample" in open(file, "rb").read() for file in files)
while not recorded() and time.monotonic() < deadline:
    time.sleep(0.01)
"""


def test_a_program_that_knows_nothing_of_flightlog_is_tracked_inside_a_command(program, tmp_path):
    asks = "print(sys.the_sites_own, 'flightlog' in sys.modules, [p for p in sys.path if 'custom' in p])\n"
    ended = program(WAIT + asks, "--device-memory")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True True []\n", "")
    kinds = [e.event_type for e in the_run(tmp_path).events("devices")]
    assert (kinds[0], kinds[-1]) == ("start", "stop")


def test_a_framework_is_looked_for_where_it_would_have_been(program, tmp_path):
    asks = """
        import sys
        asked = []
        class Hook:
            def find_spec(self, name, path=None, target=None):
                asked.append(name)
        sys.meta_path.insert(1, Hook())  # right behind what waits for a framework
        import torch
        print("torch" in asked, "flightlog" in sys.modules)
    """
    assert program(asks, "--device-memory").stdout == "True True\n"


def test_the_thread_has_ended_before_the_interpreter_does(program, tmp_path):
    (tmp_path / "lib" / "torch.py").write_text(
        ""
    )  # a framework that never starts up: nothing is ever sampled
    asks = """
        import atexit, threading
        names = lambda: [one.name for one in threading.enumerate() if "device" in one.name]
        atexit.register(lambda: print(names()))
        import torch
        print(names())
    """
    ended = program(asks, "--device-memory")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "['flightlog-device-memory']\n[]\n", "")


@pytest.mark.parametrize("option", ["-S", "-I", "-E"])
def test_pythons_that_pass_the_start_by_run_as_ever(program, tmp_path, option):
    asks = (
        f"import subprocess, sys; subprocess.run([sys.executable, {option!r}, '-c', 'print(1)'], check=True)"
    )
    ended = program(asks, "--device-memory")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")


def test_what_every_python_starts_with_is_written_for_old_ones_too():
    source = (Path(tracking.__file__).parent / "sitecustomize" / "sitecustomize.py").read_text()
    newer = (ast.AnnAssign, ast.JoinedStr, ast.NamedExpr, ast.AsyncFunctionDef, ast.Match)
    for node in ast.walk(ast.parse(source)):
        assert not isinstance(node, newer)
        assert not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        assert not (isinstance(node, ast.arg) and node.annotation)
        assert not (
            isinstance(node, ast.FunctionDef)
            and (node.returns or node.args.kwonlyargs or node.args.posonlyargs)
        )


def test_a_program_without_a_framework_is_not_even_given_flightlog(program, tmp_path):
    ended = program("import sys; print('flightlog' in sys.modules)", "--device-memory=torch")
    assert (ended.returncode, ended.stdout) == (0, "False\n")
    assert list(the_run(tmp_path).events("devices")) == []


def test_without_the_option_nothing_is_put_in_a_commands_way(program, tmp_path):
    asks = (
        "import os, sys, torch; print(os.environ['PYTHONPATH'].count(os.pathsep), 'flightlog' in sys.modules)"
    )
    assert program(asks).stdout == "0 False\n"


def test_a_framework_that_is_not_known_is_misuse(program, tmp_path):
    ended = program("", "--device-memory=torhc")
    assert ended.returncode == 2
    assert "'torhc' is no framework whose memory can be tracked" in ended.stderr
    assert not (tmp_path / "runs").exists()


def test_launchers_and_daemonic_children_are_not_tracked(monkeypatch):
    from flightlog.record.device.tracking import is_helper

    monkeypatch.delenv("RANK", raising=False)
    assert is_helper(["python", "/usr/bin/torchrun", "--nproc-per-node", "4", "train.py"])
    assert is_helper(["python", "-u", "-m", "torch.distributed.run", "train.py"])
    assert is_helper(["python", "-X", "dev", "-um", "accelerate.commands.launch", "train.py"])
    assert not is_helper(["python", "train.py", "--lr", "0.1"])
    assert not is_helper(["python", "train.py", "--strategy", "deepspeed"])
    assert not is_helper(["python", "-c", "torchrun"])
    assert not is_helper(["python"])
    monkeypatch.setenv("RANK", "0")
    assert not is_helper(["python", "/usr/bin/torchrun", "train.py"])


def test_the_environment_asks_for_tracking_in_the_process_that_records(tmp_path):
    program = """
        import sys, types
        sys.path.insert(0, sys.argv[1])
        import torch, flightlog
        from flightlog.record.device.tracking import _tracking
        with flightlog.record("asked", sample_interval_s=None) as run:
            [tracker] = _tracking.values()
            tracker.sample()
        print(run.path)
    """
    (tmp_path / "torch.py").write_text(FAKE)
    env = {
        **os.environ,
        "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs"),
        "FLIGHTLOG_DEVICE_MEMORY": "1",
        "FLIGHTLOG_DEVICE_MEMORY_INTERVAL": "30",
    }
    words = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    ended = subprocess.run(words, env=env, check=True, capture_output=True, text=True, timeout=60)
    kinds = [
        (e.event_type, e.sampling_interval_ms) for e in Run(Path(ended.stdout.strip())).events("devices")
    ]
    assert (kinds[0], kinds[-1]) == (("start", 30_000), ("stop", 30_000))
