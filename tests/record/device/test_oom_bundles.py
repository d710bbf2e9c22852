"""Out of memory leaves a bundle: complete or not there, bounded in number and size, and never in the
program's way."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.fake_frameworks import GIB, FakeTorch, OutOfMemoryError, cuda_stats
from hypothesis import given
from hypothesis import strategies as st

import flightlog
from flightlog.devices import load_telemetry_events, telemetry_event_to_dict, validate_telemetry_record
from flightlog.record.device import oom
from flightlog.record.device.oom import bundles, shortened, take_slot, write_snapshot
from flightlog.record.device.tracker import DeviceMemoryTracker, DeviceSource, Options
from flightlog.record.failure import is_out_of_memory
from flightlog.record.limits import TrackingLimits
from flightlog.samplers.frameworks import TorchCuda
from flightlog.store.run import Run

MESSAGE = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
    "12.50 GiB is free."
)


def segment(total: int, *blocks: tuple[int, str]) -> dict[str, Any]:
    active = sum(size for size, state in blocks if state != "inactive")
    return {
        "device": 0,
        "address": 1,
        "total_size": total,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "segment_type": "large",
        "stream": 0,
        "blocks": [{"size": size, "state": state, "address": 1} for size, state in blocks],
    }


SNAPSHOT = {
    "segments": [
        segment(20, (20, "active_allocated")),
        segment(100, (30, "active_allocated"), (60, "inactive"), (10, "active_allocated")),
    ],
    "device_traces": [[{"action": "oom"}]],
}


@pytest.fixture
def torch() -> FakeTorch:
    fake = FakeTorch()
    fake.cuda.started = True
    fake.cuda.stats[0] = cuda_stats(60 * GIB, 66 * GIB, peak=64 * GIB, split=GIB, ooms=1)
    fake.cuda.blocks = SNAPSHOT
    return fake


@pytest.fixture
def tracked(recorded, torch):
    """A run with a tracker that samples only when told to."""

    class Tracked:
        def __enter__(self) -> Any:
            self.recording = recorded()
            self.run = self.recording.__enter__()
            source = DeviceSource("auto", find=lambda _wanted: TorchCuda(torch), driver=lambda: None)
            self.tracker = DeviceMemoryTracker(self.run, Options(snapshot_bytes=1 << 20), source)
            oom.register(self.run.recorder, self.tracker)
            return self

        def __exit__(self, *error: Any) -> None:
            self.tracker.stop()
            self.recording.__exit__(None, None, None)

    return Tracked()


def bundle(run: Any, number: int = 0) -> dict[str, Any]:
    return json.loads((bundles(run.path)[number] / "bundle.json").read_text())


def test_an_out_of_memory_that_passes_through_spans_leaves_one_bundle_that_loads(tracked):
    with tracked as t:
        for _ in range(3):
            t.tracker.sample()
        with pytest.raises(OutOfMemoryError), t.run.span("train", seed=4), t.run.span("epoch"):
            raise OutOfMemoryError(MESSAGE)
    [folder] = bundles(t.run.path)
    assert sorted(os.listdir(folder)) == ["bundle.json", "events.jsonl", "snapshot.json", "snapshot.pickle"]
    events = load_telemetry_events(folder / "events.jsonl", strict=True)
    assert [e.event_type for e in events] == ["start", "sample", "sample", "sample", "error"]
    found = bundle(t.run)
    assert [span["name"] for span in found["spans"]] == ["train", "epoch"]
    assert found["spans"][0]["tags"] == {"seed": 4}
    assert (found["message"], found["error_type"]) == (MESSAGE, "torch.OutOfMemoryError")
    assert (found["requested_bytes"], found["device_id"], found["context"]) == (20 * GIB, 0, "epoch")
    assert found["allocator"] == {
        "allocated_bytes": 60 * GIB,
        "reserved_bytes": 66 * GIB,
        "active_bytes": 60 * GIB,
        "inactive_bytes": 6 * GIB,
        "peak_allocated_bytes": 64 * GIB,
        "peak_reserved_bytes": 66 * GIB,
        "inactive_split_bytes": GIB,
    }
    assert found["device"] == {
        "used_bytes": 20 * GIB,
        "free_bytes": 60 * GIB,
        "total_bytes": 80 * GIB,
        "source": "driver",
    }
    assert found["session_id"] == t.tracker.session_id
    assert "raise OutOfMemoryError(MESSAGE)" in found["traceback"]
    assert pickle.loads((folder / "snapshot.pickle").read_bytes()) == SNAPSHOT
    error = next(e for e in Run(t.run.path).events("devices") if e.event_type == "error")
    assert error.metadata["oom"] is True
    assert error.metadata["message"] == MESSAGE
    validate_telemetry_record(telemetry_event_to_dict(error))


def test_an_out_of_memory_that_passes_through_a_task_names_it(tracked):
    with tracked as t:
        with pytest.raises(OutOfMemoryError), t.run.task("fit") as task:
            raise OutOfMemoryError(MESSAGE)
    assert (bundle(t.run)["task"], bundle(t.run)["task_id"]) == ("fit", task.span_id)
    assert len(bundles(t.run.path)) == 1


def test_an_out_of_memory_that_passes_through_the_trackers_block_alone_is_seen(recorded, torch, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    with recorded() as run:
        with pytest.raises(OutOfMemoryError), flightlog.track_device_memory(interval_s=30):
            raise OutOfMemoryError(MESSAGE)
    assert bundle(run)["message"] == MESSAGE


def test_an_out_of_memory_that_nobody_tracked_leaves_what_can_still_be_known(recorded, torch, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    with recorded() as run:
        with pytest.raises(OutOfMemoryError), run.span("epoch"):
            raise OutOfMemoryError(MESSAGE)
    [event] = load_telemetry_events(bundles(run.path)[0] / "events.jsonl", strict=True)
    assert (event.event_type, event.context, event.allocator_allocated_bytes) == ("error", "epoch", 60 * GIB)
    assert bundle(run)["snapshot"]["complete"] is True


def test_a_framework_that_answers_no_more_still_leaves_the_error_and_the_spans(recorded, torch, monkeypatch):
    def broken(_device: int) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    torch.cuda.memory_stats_as_nested_dict = broken
    monkeypatch.setitem(sys.modules, "torch", torch)
    with recorded() as run:
        with pytest.raises(OutOfMemoryError), run.span("epoch"):
            raise OutOfMemoryError(MESSAGE)
    assert (bundle(run)["message"], [span["name"] for span in bundle(run)["spans"]]) == (MESSAGE, ["epoch"])


def test_without_any_framework_the_bundle_holds_the_error_and_the_spans(recorded, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # another test may have loaded the real one
    with recorded() as run:
        with pytest.raises(OutOfMemoryError), run.span("epoch"):
            raise OutOfMemoryError(MESSAGE)
    assert (bundle(run)["message"], [span["name"] for span in bundle(run)["spans"]]) == (MESSAGE, ["epoch"])
    assert load_telemetry_events(bundles(run.path)[0] / "events.jsonl") == []


def test_the_exception_and_its_frames_are_not_kept_alive(tracked):
    class Tensor:
        pass

    def use() -> weakref.ref[Tensor]:
        tensor = Tensor()
        try:
            with tracked.run.span("epoch"):
                raise OutOfMemoryError(MESSAGE)
        except OutOfMemoryError:
            return weakref.ref(tensor)

    with tracked:
        left = use()
        gc.collect()
        assert left() is None


def test_the_first_five_are_kept_and_later_ones_are_counted(tracked):
    with tracked as t:
        for number in range(TrackingLimits.max_bundles + 3):
            with pytest.raises(OutOfMemoryError), t.run.span(f"epoch {number}"):
                raise OutOfMemoryError(MESSAGE)
        left_out = t.run.recorder.counts["oom_bundles_left_out"]
    assert [bundle(t.run, n)["context"] for n in range(TrackingLimits.max_bundles)] == [
        f"epoch {n}" for n in range(TrackingLimits.max_bundles)
    ]
    assert (len(bundles(t.run.path)), left_out) == (TrackingLimits.max_bundles, 3)
    assert (
        sum(e.event_type == "error" for e in Run(t.run.path).events("devices"))
        == TrackingLimits.max_bundles + 3
    )


def test_a_bundle_holds_the_last_events_and_not_all(tracked):
    with tracked as t:
        for _ in range(TrackingLimits.max_recent_events + 50):
            t.tracker.sample()
        folder = t.tracker.dump("on request")
    events = load_telemetry_events(folder / "events.jsonl")
    assert (len(events), events[-1].event_type) == (TrackingLimits.max_recent_events, "error")
    assert bundle(t.run)["oom"] is False


def test_a_snapshot_that_is_too_large_is_left_out_and_said(tracked, torch):
    torch.cuda.blocks = {
        "segments": [segment(n, *[(n, "inactive")] * 50) for n in range(3000)],
        "device_traces": [],
    }
    with tracked as t:
        t.tracker.snapshot_bytes = 64 << 10
        folder = t.tracker.dump()
    assert not (folder / "snapshot.pickle").exists()
    assert bundle(t.run)["snapshot"]["complete"] is False
    assert "would be larger than" in bundle(t.run)["snapshot"]["note"]
    short = json.loads((folder / "snapshot.json").read_bytes())
    assert (short["segments_total"], short["segments"][0]["total_size"]) == (3000, 2999)
    assert sum(file.stat().st_size for file in folder.iterdir() if "snapshot" in file.name) <= 64 << 10


def test_all_bundles_of_a_run_stay_below_their_limit(tracked, monkeypatch):
    monkeypatch.setattr(TrackingLimits, "max_bundle_bytes", 5000)
    with tracked as t:
        for _ in range(50):
            t.tracker.sample()
        assert t.tracker.dump("larger than all that is left, and still the first") is not None
        assert t.tracker.dump("no room") is None
    assert len(bundles(t.run.path)) == 1


@given(st.integers(0, 5000), st.lists(st.lists(st.integers(0, 100), max_size=5), max_size=20))
def test_snapshot_files_never_take_more_than_they_may(tmp_path_factory, limit, sizes):
    folder = tmp_path_factory.mktemp("snapshot")
    snapshot = {"segments": [segment(sum(s), *[(n, "inactive") for n in s]) for s in sizes]}
    said = write_snapshot(folder, snapshot, limit)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= limit
    assert sorted(os.listdir(folder)) == sorted(said["files"])
    if said["complete"]:
        assert pickle.loads((folder / "snapshot.pickle").read_bytes()) == snapshot


def test_a_snapshot_in_short_says_what_is_held_and_what_is_free():
    short = shortened(SNAPSHOT)
    assert (short["segments_total"], short["total_size"], short["active_size"], short["blocks"]) == (
        2,
        120,
        60,
        4,
    )
    assert (short["largest_free_block"], short["free_in_split_segments"], short["history_entries"]) == (
        60,
        60,
        1,
    )
    assert [s["total_size"] for s in short["segments"]] == [100, 20]
    assert shortened({"segments": [None, {}], "device_traces": 3})["segments_total"] == 1


def test_a_place_is_taken_once_whoever_asks_and_one_that_is_left_half_done_is_no_bundle(tmp_path: Path):
    first, second = take_slot(tmp_path), take_slot(tmp_path)
    assert (first.number, second.number) == (1, 2)
    (first.folder / "bundle.json").write_text("{}")
    assert bundles(tmp_path) == []
    kept = first.keep("20261115T151200Z")
    assert bundles(tmp_path) == [kept]
    second.give_up()
    assert take_slot(tmp_path).number == 2
    assert [take_slot(tmp_path, reserve=1).number for _ in range(2)] == [3, 4]
    assert take_slot(tmp_path, reserve=1) is None
    assert take_slot(tmp_path).number == TrackingLimits.max_bundles
    assert take_slot(tmp_path) is None


@pytest.mark.parametrize("gives_up", [False, True], ids=["all keep theirs", "two of three give up"])
def test_places_are_shared_out_among_all_who_ask_at_once(tmp_path: Path, gives_up: bool):
    from concurrent.futures import ThreadPoolExecutor

    def fill(number: int) -> str | None:
        slot = take_slot(tmp_path)
        if slot is None:
            return None
        for name in range(20):
            (slot.folder / str(name)).write_bytes(b"x")
        if gives_up and number % 3:
            return slot.give_up()
        return slot.keep("20261115T151200Z").name

    with ThreadPoolExecutor(8) as pool:
        kept = sorted(filter(None, pool.map(fill, range(120))))
    assert len(kept) == TrackingLimits.max_bundles or (gives_up and len(kept) < TrackingLimits.max_bundles)
    assert kept == [path.name for path in bundles(tmp_path)] == sorted(os.listdir(tmp_path / "oom"))


def test_a_full_disk_leaves_no_half_bundle_and_the_program_its_own_exception(
    recorded, torch, tmp_path, caplog
):
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], check=False)
    if mounted.returncode != 0:
        pytest.skip("no mounts are allowed here")
    try:
        torch.cuda.blocks = {"segments": [], "device_traces": [os.urandom(1 << 20) for _ in range(12)]}
        with recorded(runs_dir=disk) as run:
            source = DeviceSource("auto", find=lambda _wanted: TorchCuda(torch), driver=lambda: None)
            tracker = DeviceMemoryTracker(run, Options(), source)
            oom.register(run.recorder, tracker)
            with pytest.raises(OutOfMemoryError), run.span("epoch"):
                raise OutOfMemoryError(MESSAGE)
            assert bundles(run.path) == []
            assert list((run.path / "oom").iterdir()) == []
            assert "No space left on device" in caplog.text
            # A process that is just being started may have what was removed open for a moment longer.
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            torch.cuda.blocks = SNAPSHOT
            assert tracker.dump("there is room again") is not None
            tracker.stop()
        assert len(bundles(run.path)) == 1
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture
def observed(tracked, torch, monkeypatch):
    """A run whose tracker has attached torch's observer."""
    monkeypatch.setattr(oom, "_attached_in", None)
    monkeypatch.setattr(oom, "_listener", None)
    monkeypatch.setattr(oom, "_unclaimed", deque(maxlen=TrackingLimits.max_bundles))
    monkeypatch.setitem(sys.modules, "torch", torch)
    with tracked as t:
        t.tracker.sample()
        t.tracker.sample()
        [observer] = torch.observers
        yield SimpleNamespace(
            run=t.run, tracker=t.tracker, ran_out=lambda size=20 * GIB: observer(0, size, 80 * GIB, GIB)
        )


def test_an_out_of_memory_that_the_program_catches_itself_is_seen_by_torchs_observer(observed):
    with observed.run.span("epoch"):
        observed.ran_out()
    found = bundle(observed.run)
    assert (found["seen_by"], found["raised"], found["requested_bytes"]) == ("allocator", None, 20 * GIB)
    assert (found["context"], found["device_id"], found["free_bytes"]) == ("epoch", 0, GIB)


def test_a_device_that_was_never_read_is_not_given_the_figures_of_another(observed, torch):
    torch.observers[0](1, 20 * GIB, 80 * GIB, GIB)
    found = bundle(observed.run)
    assert (found["device_id"], found["requested_bytes"], found["free_bytes"]) == (1, 20 * GIB, GIB)
    assert "allocator" not in found
    assert "device" not in found


def test_what_the_observer_saw_and_then_was_raised_is_one_bundle_with_the_exceptions_words(observed):
    def allocate() -> None:
        observed.ran_out()
        raise OutOfMemoryError(MESSAGE)

    with pytest.raises(OutOfMemoryError), observed.run.span("epoch"):
        allocate()
    assert len(bundles(observed.run.path)) == 1
    found = bundle(observed.run)
    assert (found["seen_by"], found["raised"], found["message"]) == ("allocator", True, MESSAGE)


def test_what_torch_meets_and_gets_around_leaves_a_place_for_what_is_raised(observed):
    for _ in range(TrackingLimits.max_bundles + 2):
        observed.ran_out()
    assert len(bundles(observed.run.path)) == TrackingLimits.max_bundles - 1
    other = "CUDA out of memory. Tried to allocate 3.00 GiB."
    with pytest.raises(OutOfMemoryError), observed.run.span("epoch"):
        raise OutOfMemoryError(other)
    assert (bundle(observed.run, -1)["message"], len(bundles(observed.run.path))) == (
        other,
        TrackingLimits.max_bundles,
    )


def test_an_exception_whose_own_bundle_had_no_room_completes_none_of_an_earlier_one(observed):
    for _ in range(TrackingLimits.max_bundles):
        observed.ran_out()
    with pytest.raises(OutOfMemoryError), observed.run.span("epoch"):
        raise OutOfMemoryError(MESSAGE)
    found = [bundle(observed.run, n).get("raised") for n in range(TrackingLimits.max_bundles - 1)]
    assert found == [None] * (TrackingLimits.max_bundles - 1)
    assert bundle(observed.run, -1)["message"] == MESSAGE


def test_of_several_threads_that_run_out_each_exception_completes_the_bundle_of_its_own(observed):
    seen, done = threading.Semaphore(0), threading.Event()

    def work(size: int) -> None:  # as autograd has threads of its own
        observed.ran_out(size)
        seen.release()
        done.wait(60)

    threads = [threading.Thread(target=work, args=(s,)) for s in (20 * GIB, 7 * GIB + 12_345, 20 * GIB)]
    for thread in threads:
        thread.start()
        assert seen.acquire(timeout=60)
    for size in (7, 20):
        with pytest.raises(OutOfMemoryError), observed.run.span(f"of {size}"):
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size}.00 GiB.")
    done.set()
    for thread in threads:
        thread.join()
    assert [
        (found["requested_bytes"], found["raised"]) for found in (bundle(observed.run, n) for n in range(3))
    ] == [(20 * GIB, None), (7 * GIB + 12_345, True), (20 * GIB, True)]


def test_a_bundle_that_hangs_in_one_thread_holds_no_other_thread_up(tracked, torch, monkeypatch):
    monkeypatch.setattr(TrackingLimits, "bundle_lock_timeout_s", 0.01)
    hangs, goes_on = threading.Event(), threading.Event()

    def snapshot() -> Any:
        hangs.set()
        goes_on.wait(60)
        return SNAPSHOT

    torch.cuda.memory._snapshot = snapshot
    with tracked as t:
        first = threading.Thread(target=t.tracker.dump)
        first.start()
        try:
            assert hangs.wait(60)
            with pytest.raises(OutOfMemoryError), t.run.span("epoch"):
                raise OutOfMemoryError(MESSAGE)
            assert bundles(t.run.path) == []
        finally:
            goes_on.set()
            first.join()
        assert t.run.recorder.counts["oom_bundles_left_out"] == 1
    assert len(bundles(t.run.path)) == 1


def test_an_observer_that_is_left_over_tells_nobody(observed, torch):
    observed.tracker.stop()
    observed.ran_out()
    assert bundles(observed.run.path) == []


def test_an_old_torch_is_not_observed_for_its_allocator_would_be_locked(recorded, torch, monkeypatch):
    monkeypatch.setattr(oom, "_attached_in", None)
    torch.__version__ = "2.1.2+cu121"
    with recorded() as run:
        assert oom.observe(torch, run.recorder) is False
        torch.__version__, torch.cuda.started = "2.13.0", False
        assert oom.observe(torch, run.recorder) is False
    assert torch.observers == []


def error_named(name: str, module: str, text: str) -> Exception:
    return type(name, (RuntimeError,), {"__module__": module})(text)


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (OutOfMemoryError(MESSAGE), True),
        (
            error_named(
                "JaxRuntimeError", "jax.errors", "RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes"
            ),
            True,
        ),
        (error_named("XlaRuntimeError", "jaxlib.xla_extension", "INTERNAL: something else"), False),
        (error_named("ResourceExhaustedError", "tensorflow.python.framework.errors_impl", "OOM"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8.0 GB)"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("we ran out of memory cards"), False),
        (error_named("OutOfMemoryError", "shop.stock", "no memory left to sell"), False),
        (MemoryError(), False),
        (ValueError("CUDA out of memory"), False),
        (None, False),
    ],
    ids=str,
)
def test_an_out_of_memory_is_told_by_its_class_or_by_what_it_says(error, is_one):
    assert is_out_of_memory(error) is is_one


def test_an_exception_whose_text_cannot_be_had_is_no_out_of_memory():
    class Silent(RuntimeError):
        def __str__(self) -> str:
            raise ValueError

    assert is_out_of_memory(Silent()) is False


def test_secrets_in_the_environment_stay_out_of_the_bundle(tracked, monkeypatch):
    monkeypatch.setenv("NCCL_TOKEN", "hunter2hunter2")
    monkeypatch.setenv("SLURM_JWT", "hunter2hunter2")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    with tracked as t:
        folder = t.tracker.dump()
    assert "hunter2" not in (folder / "bundle.json").read_text()
    assert bundle(t.run)["environment"]["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
