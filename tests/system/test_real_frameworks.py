"""What is assumed of the real frameworks, on the CPU: attributes that exist, and looking that wakes nothing
up."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.system


def said(program: str) -> list[str]:
    """The lines that a program prints."""
    words = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=100).stdout.splitlines()


def test_torch_has_what_its_allocators_are_read_by():
    assert said(
        """
        import torch
        from flightlog.samplers.frameworks import TorchCuda
        allocator = TorchCuda(torch)
        print(torch.cuda.memory_stats_as_nested_dict(0), list(allocator.devices()), allocator.snapshot())
        print(torch.cuda.is_initialized(), callable(torch.cuda.memory._snapshot), callable(torch.cuda.mem_get_info))
        print(torch.OutOfMemoryError.__module__, torch.OutOfMemoryError.__name__)
        print(all(callable(getattr(torch.mps, name)) for name in ("current_allocated_memory",
              "driver_allocated_memory", "recommended_max_memory")))
        """
    ) == ["{} [] None", "False True True", "torch OutOfMemoryError", "True"]


def test_torch_on_the_cpu_is_the_hosts_memory_and_grows_with_a_tensor():
    assert said(
        """
        from flightlog.samplers.frameworks import find_allocator
        print(find_allocator())
        import torch
        allocator = find_allocator(gpu=False)
        before = allocator.read(-1)
        kept = torch.ones(50_000_000)
        after = allocator.read(-1)
        print(allocator.name, after.allocated_bytes - before.allocated_bytes > 150_000_000)
        print(after.peak_allocated_bytes >= after.allocated_bytes, after.device_total_bytes > after.device_used_bytes)
        """
    ) == ["None", "torch.cpu True", "True True"]


def test_an_out_of_memory_of_the_real_class_leaves_a_bundle(tmp_path):
    program = f"""
        import torch, flightlog
        from flightlog.devices import load_telemetry_events
        from flightlog.record.device.oom import bundles
        with flightlog.record("oom", runs_dir={str(tmp_path)!r}, sample_interval_s=None) as run:
            with flightlog.track_device_memory("torch") as tracker:
                tracker.sample()
                try:
                    with flightlog.span("epoch"):
                        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
                except torch.OutOfMemoryError:
                    pass
        [folder] = bundles(run.path)
        print(load_telemetry_events(folder / "events.jsonl", strict=True)[-1].event_type)
        """
    assert said(program) == ["error"]


def test_jax_is_left_asleep_until_the_program_wakes_it():
    assert said(
        """
        import os
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax
        from jax._src import xla_bridge
        from flightlog.samplers.frameworks import find_allocator
        print(find_allocator("jax"), xla_bridge.backends_are_initialized())
        jax.numpy.ones(3).block_until_ready()
        print(find_allocator("jax").name, jax.local_devices()[0].memory_stats())
        """
    ) == ["None False", "jax.cpu None"]
