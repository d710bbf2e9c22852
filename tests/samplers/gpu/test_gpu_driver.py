"""The way to a driver, and what it says where there is none."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from builders.fake_nvml import CODES, FakeGpu, FakeNvml
from fake_machine import write

from flightlog.samplers.gpu.driver import (
    Depth,
    Device,
    DeviceReading,
    DriverFound,
    GpuDriver,
    find_driver,
    may_have_gpu,
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A root folder with the driver of NVIDIA loaded."""
    write(tmp_path / "proc" / "driver" / "nvidia" / "version", "NVRM version: 580\n")
    return tmp_path


def opened(machine: Path, nvml: FakeNvml, **environ: str) -> GpuDriver:
    found = find_driver(nvml=nvml, environ=environ, root=machine)
    assert found.note is None
    assert found.driver is not None
    return found.driver


def test_the_fake_has_the_names_of_the_real_module() -> None:
    public = [name for name in vars(FakeNvml) if name.startswith(("nvml", "NVML"))]
    assert [name for name in public if not hasattr(pynvml, name)] == []
    constants = [name for name in public if isinstance(getattr(FakeNvml, name), int)]
    assert {name: getattr(FakeNvml, name) for name in constants} == {
        name: getattr(pynvml, name) for name in constants
    }
    functions = [name for name in public if inspect.isfunction(getattr(FakeNvml, name))]
    for name in functions:
        ours = list(inspect.signature(getattr(FakeNvml, name)).parameters)[1:]
        assert ours == list(inspect.signature(getattr(pynvml, name)).parameters), name


def test_the_fakes_errors_are_the_real_ones() -> None:
    for name, code in CODES.items():
        assert type(pynvml.NVMLError(code)) is getattr(pynvml, f"NVMLError_{name}")


def test_a_machine_without_any_sign_of_a_gpu_has_no_driver_no_note_and_imports_nothing(
    tmp_path: Path,
) -> None:
    nvml = FakeNvml()
    assert find_driver(nvml=nvml, environ={}, root=tmp_path) == DriverFound(None, None)
    assert nvml.calls == {}
    assert not may_have_gpu({}, tmp_path)


@pytest.mark.parametrize("hidden", ["", "-1", "none"])
def test_gpus_that_are_hidden_from_the_process_are_left_alone(machine: Path, hidden: str) -> None:
    nvml = FakeNvml()
    environ = {"CUDA_VISIBLE_DEVICES": hidden}
    assert find_driver(nvml=nvml, environ=environ, root=machine) == DriverFound(None, None)
    assert nvml.calls == {}
    assert may_have_gpu({}, machine)
    assert not may_have_gpu(environ, machine)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("LibraryNotFound", "NVML Shared Library Not Found"),
        ("DriverNotLoaded", "Driver Not Loaded"),
        ("NoPermission", "Insufficient Permissions"),
        ("Unknown", "Unknown Error"),
    ],
)
def test_a_driver_that_cannot_be_opened_is_told(machine: Path, error: str, text: str) -> None:
    found = find_driver(nvml=FakeNvml(failing={"nvmlInit": error}), environ={}, root=machine)
    assert found == DriverFound(
        None,
        "a GPU of NVIDIA seems to be here (/proc/driver/nvidia/version is there), but it is not sampled: "
        f"NVML says: {text}",
    )


def test_a_missing_library_is_told_with_what_mends_it(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # how Python marks a module that is not to be had
    found = find_driver(environ={}, root=machine)
    assert found.driver is None
    assert found.note is not None
    assert found.note.endswith("pip install 'flightlog[gpu]'")


@pytest.mark.skipif(may_have_gpu(), reason="there is a GPU")
def test_the_real_library_on_a_machine_without_a_driver_gives_the_note(tmp_path: Path) -> None:
    assert find_driver(nvml=pynvml, environ={"CUDA_VISIBLE_DEVICES": "0"}, root=tmp_path) == DriverFound(
        None,
        "a GPU of NVIDIA seems to be here (CUDA_VISIBLE_DEVICES is '0'), but it is not sampled: "
        "NVML says: NVML Shared Library Not Found",
    )


def test_a_reading_holds_all_that_nvml_says(machine: Path) -> None:
    nvml = FakeNvml([FakeGpu(processes={7: 11, 8: None})])
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    assert device == Device(
        ordinal=0,
        index=0,
        uuid="GPU-aaaaaaaa-0000-0000-0000-000000000000",
        name="NVIDIA H200",
    )
    assert driver.read(device) == DeviceReading(
        memory_used_bytes=20_000,
        memory_free_bytes=129_500,
        memory_total_bytes=150_000,
        processes={7: 11, 8: None},
        utilization_percent=40.0,
        memory_bus_percent=7.0,
        power_w=300.0,
        energy_j=5000.0,
        temperature_c=61.0,
        clock_mhz=1980.0,
        memory_clock_mhz=3201.0,
        throttle_reasons=["power_cap"],
        ecc_corrected=2,
        ecc_uncorrected=0,
        pcie_sent_bytes=1_000,
        pcie_received_bytes=2_000,
    )
    assert driver.read(device, Depth.MEMORY) == DeviceReading(
        memory_used_bytes=20_000,
        memory_free_bytes=129_500,
        memory_total_bytes=150_000,
    )
    assert nvml.calls["nvmlDeviceGetPcieThroughput"] == 0


def test_a_shallow_reading_asks_for_little_and_a_tasks_for_less(machine: Path) -> None:
    nvml = FakeNvml()
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    nvml.calls.clear()
    driver.read(device, Depth.OFTEN)
    assert dict(nvml.calls) == {
        "nvmlDeviceGetMemoryInfo_v2": 1,
        "nvmlDeviceGetUtilizationRates": 1,
        "nvmlDeviceGetPowerUsage": 1,
    }
    nvml.calls.clear()
    driver.read(device, Depth.BUSY)
    assert dict(nvml.calls) == {
        "nvmlDeviceGetMemoryInfo_v2": 1,
        "nvmlDeviceGetUtilizationRates": 1,
        "nvmlDeviceGetComputeRunningProcesses": 1,
    }
    nvml.calls.clear()
    driver.read(device, Depth.MEMORY)
    assert dict(nvml.calls) == {"nvmlDeviceGetMemoryInfo_v2": 1}


QUESTIONS = {
    "nvmlDeviceGetUtilizationRates": {"utilization_percent", "memory_bus_percent"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetTotalEnergyConsumption": {"energy_j"},
    "nvmlDeviceGetComputeRunningProcesses": {"processes"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetClockInfo": {"clock_mhz", "memory_clock_mhz"},
    "nvmlDeviceGetTotalEccErrors": {"ecc_corrected", "ecc_uncorrected"},
}


@pytest.mark.parametrize(
    ("error", "asked_again"),
    [
        ("NotSupported", False),
        ("NoPermission", False),
        ("FunctionNotFound", False),
        ("Unknown", True),
        ("Timeout", True),
    ],
)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_counter_that_fails_is_unknown_alone_and_one_that_is_not_there_is_not_asked_for_again(
    machine: Path, question: str, error: str, asked_again: bool
) -> None:
    whole = opened(machine, FakeNvml())
    failing = {question: error}
    if question == "nvmlDeviceGetTemperature":
        failing["nvmlDeviceGetTemperatureV"] = error
    nvml = FakeNvml([FakeGpu(failing=failing)])
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    expected = whole.read(device)
    for _ in range(3):
        reading = driver.read(device)
        different = {
            name for name in reading.__struct_fields__ if getattr(reading, name) != getattr(expected, name)
        }
        assert different == QUESTIONS[question]
        assert [getattr(reading, name) for name in different] == [None] * len(different)
    kinds = 2 if question in ("nvmlDeviceGetClockInfo", "nvmlDeviceGetTotalEccErrors") else 1
    assert nvml.calls[question] == kinds * (3 if asked_again else 1)


def test_a_driver_without_the_second_version_of_memory_counts_its_reserve_as_used(machine: Path) -> None:
    nvml = FakeNvml(failing={"nvmlDeviceGetMemoryInfo_v2": "FunctionNotFound"})
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    for _ in range(2):
        assert driver.read(device, Depth.MEMORY) == DeviceReading(
            memory_used_bytes=20_500, memory_free_bytes=129_500, memory_total_bytes=150_000
        )
    assert nvml.calls["nvmlDeviceGetMemoryInfo_v2"] == 1


@pytest.mark.parametrize(
    "gpu",
    [
        FakeGpu(pcie_sent=None, pcie_received=None),
        FakeGpu(pcie_value_type=FakeNvml.NVML_VALUE_TYPE_UNSIGNED_INT),
    ],
    ids=["without", "of 32 bits, which wrap"],
)
def test_a_gpu_without_good_pcie_counters_is_asked_for_rates_in_deep_readings_alone(
    machine: Path, gpu: FakeGpu
) -> None:
    nvml = FakeNvml([gpu])
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    assert driver.read(device, Depth.SECOND).pcie_sent_bytes_per_s is None
    assert nvml.calls["nvmlDeviceGetPcieThroughput"] == 0
    deep = driver.read(device, Depth.RARE)
    assert (deep.pcie_sent_bytes, deep.pcie_sent_bytes_per_s) == (None, 3 * 1024)
    assert (deep.pcie_received_bytes, deep.pcie_received_bytes_per_s) == (None, 5 * 1024)


def test_drivers_before_535_tell_throttling_by_its_older_name(machine: Path) -> None:
    nvml = FakeNvml(
        [FakeGpu(reasons=0x60)], failing={"nvmlDeviceGetCurrentClocksEventReasons": "FunctionNotFound"}
    )
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    assert driver.read(device).throttle_reasons == ["thermal_software", "thermal_hardware"]


def test_a_gpu_that_is_lost_gives_nothing_but_its_name_and_is_told_once(machine: Path) -> None:
    lost, well = FakeGpu(uuid="GPU-1"), FakeGpu(uuid="GPU-2")
    nvml = FakeNvml([lost, well])
    driver = opened(machine, nvml)
    first, second = driver.devices()
    lost.failing["*"] = "GpuIsLost"
    nvml.calls.clear()
    for _ in range(2):
        assert driver.read(first) == DeviceReading()
        assert driver.read(first, Depth.MEMORY) == DeviceReading()
    assert sum(nvml.calls.values()) == 4  # one question each: there is no more to be had
    assert driver.read(second).power_w == 300.0
    assert driver.notes == ("GPU 0 (NVIDIA H200) does not answer any more: GPU is lost",)
    lost.failing.clear()
    assert driver.read(first).power_w == 300.0


def test_visible_devices_are_numbered_as_frameworks_number_them(machine: Path) -> None:
    nvml = FakeNvml([FakeGpu(uuid=f"GPU-{n}", used=n) for n in range(4)])
    driver = opened(machine, nvml, CUDA_VISIBLE_DEVICES="3,GPU-1")
    assert [(one.ordinal, one.index, one.uuid) for one in driver.devices()] == [
        (0, 3, "GPU-3"),
        (1, 1, "GPU-1"),
    ]
    assert [driver.read(one, Depth.MEMORY).memory_used_bytes for one in driver.devices()] == [3, 1]


def test_an_instance_has_its_own_memory_and_its_gpus_uuid(machine: Path) -> None:
    unknown = dict.fromkeys(
        ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption"],
        "NotSupported",
    )
    small = FakeGpu(uuid="MIG-22", name="NVIDIA H200 MIG 1g.18gb", used=5, failing=unknown)
    whole = FakeGpu(uuid="GPU-1", instances=[FakeGpu(uuid="MIG-11"), None, small])
    driver = opened(machine, FakeNvml([whole]), CUDA_VISIBLE_DEVICES="MIG-22")
    (device,) = driver.devices()
    assert (device.uuid, device.mig, device.name) == ("GPU-1", "MIG-22", "NVIDIA H200 MIG 1g.18gb")
    reading = driver.read(device)
    assert (device.mig, reading.memory_used_bytes) == ("MIG-22", 5)
    assert (reading.utilization_percent, reading.power_w, reading.energy_j) == (None, None, None)


KINDS = "GPUs of several kinds are here"


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, True),
        ({"CUDA_VISIBLE_DEVICES": "1"}, True),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1"}, False),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, False),
    ],
)
def test_numbers_that_cuda_may_give_otherwise_are_told(
    machine: Path, environ: dict[str, str], told: bool
) -> None:
    nvml = FakeNvml([FakeGpu(uuid="GPU-0", name="NVIDIA T4"), FakeGpu(uuid="GPU-1")])
    assert any(KINDS in note for note in opened(machine, nvml, **environ).notes) is told


def test_nvml_shut_down_by_somebody_else_is_opened_again(machine: Path) -> None:
    nvml = FakeNvml()
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    nvml.nvmlShutdown()
    assert driver.read(device, Depth.MEMORY) == DeviceReading()
    assert driver.read(device, Depth.MEMORY).memory_used_bytes == 20_000


def test_a_closed_driver_opens_again_when_it_is_asked(machine: Path) -> None:
    nvml = FakeNvml()
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    driver.close()
    assert nvml.open == 0
    assert driver.read(device, Depth.MEMORY).memory_used_bytes == 20_000
    assert nvml.open == 1


def test_a_forked_child_opens_nvml_for_itself_and_never_closes_the_parents(machine: Path) -> None:
    nvml = FakeNvml()
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    child = os.fork()
    if child == 0:
        try:
            nvml.calls.clear()
            driver.close()
            closed = nvml.calls["nvmlShutdown"]
            right = (
                driver.read(device, Depth.MEMORY).memory_used_bytes == 20_000
                and nvml.calls["nvmlInit"] == 1
                and closed == 0
            )
            os._exit(0 if right else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert nvml.calls["nvmlInit"] == 1


def test_drivers_that_have_dropped_a_name_tell_the_temperature_by_the_next_one(machine: Path) -> None:
    driver = opened(machine, FakeNvml(failing={"nvmlDeviceGetTemperature": "FunctionNotFound"}))
    (device,) = driver.devices()
    assert driver.read(device).temperature_c == 61.0


def test_a_child_forked_in_the_middle_of_a_question_can_ask_by_itself(machine: Path) -> None:
    nvml = FakeNvml()
    driver = opened(machine, nvml)
    (device,) = driver.devices()
    begun, answered = threading.Event(), threading.Event()
    ask, parent = nvml.nvmlDeviceGetMemoryInfo, os.getpid()

    def hanging(*args: Any) -> Any:
        if os.getpid() == parent and not answered.is_set():
            begun.set()
            answered.wait(60)
        return ask(*args)

    nvml.nvmlDeviceGetMemoryInfo = hanging  # type: ignore[method-assign]
    thread = threading.Thread(target=driver.read, args=(device,))
    thread.start()
    begun.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(42 if driver.read(device, Depth.MEMORY).memory_used_bytes == 20_000 else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    answered.set()
    thread.join()
    assert driver.read(device, Depth.MEMORY).memory_used_bytes == 20_000


def test_a_fork_between_questions_leaves_both_sides_able_to_ask(machine: Path) -> None:
    driver = opened(machine, FakeNvml())
    (device,) = driver.devices()
    child = os.fork()
    if child == 0:
        os._exit(42 if driver.read(device, Depth.MEMORY).memory_used_bytes == 20_000 else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert driver.read(device, Depth.MEMORY).memory_used_bytes == 20_000


class FakeAmd:
    """The module `amdsmi` with one answer a question."""

    AmdSmiMemoryType = SimpleNamespace(VRAM="vram")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")
    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")

    class AmdSmiLibraryException(Exception):
        err_code = 2

    def amdsmi_init(self) -> None: ...
    def amdsmi_shut_down(self) -> None: ...
    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["first", "second"]

    def amdsmi_get_gpu_asic_info(self, handle: str) -> dict[str, str]:
        return {
            "market_name": "AMD Instinct MI300X",
            "asic_serial": "0xABC0" if handle == "first" else "0xABC1",
        }

    def amdsmi_get_gpu_device_uuid(self, handle: str) -> str:
        return f"uuid of {handle}"

    def amdsmi_get_gpu_device_bdf(self, handle: str) -> str:
        return "0000:05:00.0"

    def amdsmi_get_gpu_memory_usage(self, handle: str, kind: str) -> int:
        return 30

    def amdsmi_get_gpu_memory_total(self, handle: str, kind: str) -> int:
        return 100

    def amdsmi_get_gpu_activity(self, handle: str) -> dict[str, object]:
        return {"gfx_activity": 55, "umc_activity": "N/A", "mm_activity": 0}

    def amdsmi_get_power_info(self, handle: str) -> dict[str, object]:
        return {"current_socket_power": "N/A", "average_socket_power": 200}

    def amdsmi_get_energy_count(self, handle: str) -> dict[str, object]:
        return {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1}

    def amdsmi_get_temp_metric(self, handle: str, sensor: str, metric: str) -> int:
        return 64

    def amdsmi_get_clock_info(self, handle: str, kind: str) -> dict[str, int]:
        return {"clk": 2100} if kind == "gfx" else {"cur_clk": 1300}

    def amdsmi_get_gpu_total_ecc_count(self, handle: str) -> dict[str, int]:
        raise self.AmdSmiLibraryException

    def amdsmi_get_gpu_process_list(self, handle: str) -> list[dict[str, object]]:
        return [{"pid": 5, "memory_usage": {"vram_mem": 9}}, {"pid": 6, "mem": 8}, {"pid": 7, "mem": "N/A"}]


def test_gpus_of_amd_are_read_by_their_own_library(tmp_path: Path) -> None:
    write(tmp_path / "dev" / "kfd", "")
    found = find_driver(amdsmi=FakeAmd(), environ={"ROCR_VISIBLE_DEVICES": "GPU-abc1"}, root=tmp_path)
    assert found.driver is not None
    (device,) = found.driver.devices()
    assert device == Device(
        ordinal=0,
        index=1,
        uuid="uuid of second",
        name="AMD Instinct MI300X",
    )
    assert found.driver.read(device) == DeviceReading(
        memory_used_bytes=30,
        memory_free_bytes=70,
        memory_total_bytes=100,
        processes={5: 9, 6: 8, 7: None},
        utilization_percent=55.0,
        power_w=200.0,
        energy_j=30.6,
        temperature_c=64.0,
        clock_mhz=2100.0,
        memory_clock_mhz=1300.0,
    )
    found.driver.close()
    assert found.driver.read(device, Depth.MEMORY).memory_used_bytes == 30


@pytest.mark.skipif("amdsmi" in sys.modules, reason="the library is there")
def test_a_gpu_of_amd_without_its_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    write(tmp_path / "dev" / "kfd", "")
    note = find_driver(environ={}, root=tmp_path).note
    assert note is not None
    assert note.startswith("a GPU of AMD seems to be here (/dev/kfd is there), but it is not sampled:")
