"""Reading through NVML: a FakeNvml that answers like the library, and directories like the kernel's."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from launch.preflight.gpus import COMPLETED, GPU_IS_LOST, Gpu, judge
from launch.preflight.nvml import allocated, bus, from_nvml, process
from resiliency.health import Status


class FakeNvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class FakeFabricInfo(SimpleNamespace):
    state, status = COMPLETED, 0


class FakeNvml:
    """Answers of an H100; ``broken``: error numbers by name of the function."""

    NVMLError = FakeNvmlError
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230

    def __init__(self, gpus: int = 2, **broken: int) -> None:
        self.gpus, self.broken = gpus, broken

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "broken"):

            def fail(*_: object) -> None:
                raise FakeNvmlError(self.broken[name])

            return fail
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=85_520_809_984, used=0)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=b"00000000:19:00.0")

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        return 5 if (kind, counter) != (1, 0) else 0  # corrected ones, and old ones, do not count

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        return 3, 1, 0, 0

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 18:
            raise FakeNvmlError(2)
        return 1

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 1

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> list[Any]:
        assert fields == [230]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=4))]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=None)]

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 33

    def nvmlDeviceGetTemperatureThreshold(self, handle: int, kind: int) -> int:
        return 87


def test_all_that_is_told() -> None:
    reading = from_nvml(FakeNvml(), 2)
    mine = process(os.getpid(), Path("/proc"))
    assert reading.gpus[1] == Gpu(
        1, "00000000:19:00.0", 85_520_809_984, 0, 0, False, False, (True,) * 18, None, None, 1, 33, 87,
        recovery=4, processes=(mine,),
    )  # fmt: skip
    found = {check.name: check.status for check in judge(reading, 2)}
    assert [name for name, status in found.items() if status is not Status.OK] == [
        "gpu_recovery", "gpu_processes",
    ]  # fmt: skip


def test_a_driver_that_tells_no_recovery_action() -> None:
    reading = from_nvml(FakeNvml(1, nvmlDeviceGetFieldValues=3), 1)
    assert reading.gpus[0].recovery is None
    assert "gpu_recovery" not in {check.name for check in judge(reading, 1)}


def test_a_process_by_its_name_and_state(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) b) D 1 2 3\n")
    assert process(7, tmp_path) == "7 a) b (D)"
    assert process(8, tmp_path) == "8"


def test_what_is_not_supported_is_not_known() -> None:
    names = ("MemoryInfo", "RemappedRows", "TotalEccErrors", "NvLinkState", "Temperature")
    reading = from_nvml(FakeNvml(1, **{f"nvmlDeviceGet{name}": 3 for name in names}), 1)
    gpu = reading.gpus[0]
    assert (gpu.memory_total, gpu.remap_failed, gpu.ecc_volatile, gpu.links) == (None, None, None, ())
    assert not gpu.error


def test_a_lost_gpu_whoever_tells_it() -> None:
    for name in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetTemperature"):
        reading = from_nvml(FakeNvml(1, **{name: GPU_IS_LOST}), 1)
        assert reading.gpus[0].error == GPU_IS_LOST
        assert judge(reading, 1)[0].category == "gpu_off_bus"


def test_no_driver() -> None:
    reading = from_nvml(FakeNvml(nvmlInit=9), 8)
    assert (reading.error, reading.gpus) == (9, ())


def device(
    root: Path, name: str, kind: str, vendor: str = "0x10de", config: bytes = b"\xde\x10\x30\x23"
) -> None:
    (root / name).mkdir()
    for file, text in (("vendor", vendor), ("class", kind)):
        (root / name / file).write_text(text + "\n")
    (root / name / "config").write_bytes(config + bytes(60))


def test_the_pci_bus(tmp_path: Path) -> None:
    device(tmp_path, "0000:19:00.0", "0x030200")
    device(tmp_path, "0000:3b:00.0", "0x030200", config=b"\xff" * 4)
    device(tmp_path, "0000:05:00.0", "0x068000")  # an NVSwitch
    device(tmp_path, "0000:06:00.0", "0x030000", vendor="0x1a03")  # the board's own screen
    assert bus(tmp_path) == (2, ("0000:3b:00.0",))
    assert bus(tmp_path / "missing") == (None, ())


def test_what_slurm_gave() -> None:
    assert allocated({"SLURM_JOB_GPUS": "0,2-4"}) == 4
    assert allocated({"SLURM_GPUS_ON_NODE": "8"}) == 8
    assert allocated({"SLURM_STEP_GPUS": "gpu:8"}) is None
    assert allocated({}) is None
