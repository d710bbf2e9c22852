"""Framework allocators: what they say is read as it is, what they do not say is unknown, and nothing is woken
up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.fake_frameworks import FakeJax, FakeTensorFlow, FakeTorch, cuda_stats
from hypothesis import given
from hypothesis import strategies as st

from flightlog.samplers.frameworks import (
    HOST,
    AllocatorReading,
    HostMemory,
    JaxMemory,
    TensorFlowMemory,
    TorchCuda,
    TorchMps,
    find_allocator,
    whole,
)
from flightlog.samplers.limits import SamplerLimits

JAX_STATS = {
    "num_allocs": 3,
    "bytes_in_use": 10,
    "peak_bytes_in_use": 30,
    "bytes_limit": 100,
    "bytes_reserved": 0,
    "pool_bytes": 80,
    "peak_pool_bytes": 90,
    "largest_free_block_bytes": 50,
}


def cuda(**options: Any) -> TorchCuda:
    torch = FakeTorch(**options)
    torch.cuda.started = True
    torch.cuda.stats[1] = cuda_stats(100, 400, peak=250, active=120, split=60, ooms=1)
    return TorchCuda(torch)


def old_cuda() -> TorchCuda:
    """A version without the nested statistics."""
    torch = FakeTorch()
    torch.cuda.started = True
    torch.cuda.stats[1] = cuda_stats(100, 400, peak=250, active=120, split=60, ooms=1)
    nested = torch.cuda.memory_stats
    torch.cuda = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 2, memory_stats=nested, memory=torch.cuda.memory
    )
    return TorchCuda(torch)


def jax() -> JaxMemory:
    fake = FakeJax(("gpu", JAX_STATS))
    return JaxMemory(fake, fake.modules())


def tensorflow() -> TensorFlowMemory:
    fake = FakeTensorFlow({"current": 7, "peak": 9})
    return TensorFlowMemory(fake, fake.modules())


ON_CUDA = AllocatorReading(
    allocated_bytes=100,
    reserved_bytes=400,
    active_bytes=120,
    inactive_bytes=280,
    inactive_split_bytes=60,
    peak_allocated_bytes=250,
    peak_reserved_bytes=400,
    ooms=1,
)
EVERY = [
    pytest.param(cuda, "torch.cuda", [1], ON_CUDA, id="torch.cuda"),
    pytest.param(old_cuda, "torch.cuda", [1], ON_CUDA, id="torch.cuda, flat statistics"),
    pytest.param(lambda: cuda(cuda=None, hip="6.2"), "torch.rocm", [1], ON_CUDA, id="torch.rocm"),
    pytest.param(
        lambda: TorchMps(FakeTorch(mps=True)),
        "torch.mps",
        [0],
        AllocatorReading(allocated_bytes=5, reserved_bytes=9, limit_bytes=100),
        id="torch.mps",
    ),
    pytest.param(
        jax,
        "jax",
        [0],
        AllocatorReading(
            allocated_bytes=10,
            reserved_bytes=80,
            largest_free_bytes=50,
            peak_allocated_bytes=30,
            peak_reserved_bytes=90,
            limit_bytes=100,
        ),
        id="jax",
    ),
    pytest.param(
        tensorflow,
        "tensorflow",
        [0],
        AllocatorReading(allocated_bytes=7, peak_allocated_bytes=9),
        id="tensorflow",
    ),
]


@pytest.mark.parametrize(("make", "name", "devices", "reading"), EVERY)
def test_every_allocator_reads_what_its_framework_counts_and_nothing_else(make, name, devices, reading):
    allocator = make()
    assert allocator.name == name
    assert list(allocator.devices()) == devices
    assert allocator.read(devices[0]) == reading


@pytest.mark.parametrize(("make", "name", "devices", "reading"), EVERY)
def test_what_an_allocator_cannot_count_it_says_and_reads_as_unknown(make, name, devices, reading):
    able = make().capabilities
    for counter in ("allocated", "reserved", "active", "inactive"):
        if not getattr(able, counter):
            assert getattr(reading, f"{counter}_bytes") is None
            assert able.unknown()[f"supports_allocator_{counter}"] is False
        else:
            assert f"supports_allocator_{counter}" not in able.unknown()


@pytest.mark.parametrize(("make", "name", "devices", "reading"), EVERY)
def test_only_allocators_that_say_so_have_a_snapshot(make, name, devices, reading):
    allocator = make()
    assert (allocator.snapshot() is not None) == allocator.capabilities.snapshot


def test_cuda_that_the_program_has_not_started_has_no_devices_and_is_not_started():
    torch = FakeTorch()
    assert list(TorchCuda(torch).devices()) == []
    assert TorchCuda(torch).snapshot() is None
    assert torch.cuda.calls == 0


def test_a_device_is_read_from_its_first_use_on_and_never_before():
    torch = FakeTorch(4)
    torch.cuda.started = True
    allocator = TorchCuda(torch)
    assert list(allocator.devices()) == []
    torch.cuda.stats[2] = cuda_stats(1, 2)
    assert list(allocator.devices()) == [2]
    torch.cuda.stats[0] = cuda_stats(1, 2)
    seen = [list(allocator.devices()) for _ in range(SamplerLimits.unused_devices_interval + 1)]
    assert seen[0] == [2]
    assert seen[-1] == [0, 2]
    torch.cuda.stats[2] = cuda_stats(0, 0)
    assert [list(allocator.devices()) for _ in range(SamplerLimits.unused_devices_interval + 1)][-1] == [0, 2]


def test_a_sample_of_a_device_is_one_call_of_the_framework():
    torch = FakeTorch(8)
    torch.cuda.started = True
    torch.cuda.stats[0] = cuda_stats(1, 2)
    allocator = TorchCuda(torch)
    allocator.devices()
    before = torch.cuda.calls
    for _ in range(SamplerLimits.unused_devices_interval - 1):
        for device in allocator.devices():
            allocator.read(device)
    assert torch.cuda.calls - before == SamplerLimits.unused_devices_interval - 1


def test_a_backend_of_jax_that_counts_nothing_is_unknown():
    fake = FakeJax(("tpu", None), ("tpu", {"bytes_in_use": -1, "pool_bytes": 0}))
    allocator = JaxMemory(fake, fake.modules())
    assert [allocator.read(device) for device in allocator.devices()] == [AllocatorReading()] * 2


def test_the_hosts_memory_is_that_of_this_process_and_of_the_machine(tmp_path: Path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text("Name:\tpython\nVmHWM:\t  300 kB\nVmRSS:\t  200 kB\n")
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  600 kB\n")
    now = [5.0]
    memory = HostMemory("torch", proc=tmp_path, clock=lambda: now[0])
    assert memory.read(HOST) == AllocatorReading(
        allocated_bytes=200 * 1024,
        peak_allocated_bytes=300 * 1024,
        device_used_bytes=400 * 1024,
        device_free_bytes=600 * 1024,
        device_total_bytes=1000 * 1024,
    )
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemAvailable:  500 kB\n")
    now[0] = 5.9
    assert memory.read(HOST).device_free_bytes == 600 * 1024
    now[0] = 6.0
    assert memory.read(HOST).device_free_bytes == 500 * 1024
    (tmp_path / "meminfo").unlink()
    now[0] = 7.0
    assert memory.read(HOST) == AllocatorReading(allocated_bytes=200 * 1024, peak_allocated_bytes=300 * 1024)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()))
def test_a_counter_is_a_whole_number_from_zero_or_unknown(value):
    found = whole(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        assert found is None
    else:
        assert found == int(value)


def found(wanted: str, modules: dict[str, Any], *, gpu: bool = True) -> str | None:
    allocator = find_allocator(wanted, modules=modules, gpu=gpu)
    return None if allocator is None else allocator.name


def test_the_framework_that_is_imported_is_found_and_none_is_imported_for_it():
    assert found("auto", {}) is None
    assert found("torch", {}) is None
    on_cpu = FakeTorch(cuda=None)
    assert found("auto", {"torch": on_cpu}) == "torch.cpu"
    assert found("jax", {"torch": on_cpu}) is None
    assert found("auto", {"torch": FakeTorch(cuda=None, mps=True)}) == "torch.mps"


def test_torch_for_cuda_is_found_when_the_program_starts_cuda_and_is_the_host_where_there_is_no_gpu():
    torch = FakeTorch()
    assert found("auto", {"torch": torch}) is None
    assert found("auto", {"torch": torch}, gpu=False) == "torch.cpu"
    torch.cuda.started = True
    assert found("auto", {"torch": torch}) == "torch.cuda"
    assert found("torch.cpu", {"torch": torch}) == "torch.cpu"
    assert found("torch.cuda", {"torch": FakeTorch()}) == "torch.cuda"


def test_a_framework_in_the_middle_of_its_import_is_not_there_yet():
    torch = FakeTorch(cuda=None)
    torch.__spec__ = SimpleNamespace(_initializing=True)
    assert found("auto", {"torch": torch}) is None
    torch.__spec__ = SimpleNamespace(_initializing=False)
    assert found("auto", {"torch": torch}) == "torch.cpu"


def test_an_accelerator_of_one_framework_counts_before_the_host_of_another():
    fake = FakeJax(("gpu", JAX_STATS))
    assert found("auto", {"torch": FakeTorch(cuda=None), **fake.modules()}) == "jax"


def test_jax_and_tensorflow_that_have_not_started_are_left_alone():
    for fake in (FakeJax(("gpu", JAX_STATS), started=False), FakeTensorFlow({"current": 1}, started=False)):
        assert found("auto", fake.modules()) is None


def test_jax_and_tensorflow_without_accelerators_are_the_host():
    assert found("auto", FakeJax(("cpu", None)).modules()) == "jax.cpu"
    assert found("auto", FakeTensorFlow().modules()) == "tensorflow.cpu"
