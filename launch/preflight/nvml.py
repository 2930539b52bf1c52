"""Reads a node's GPUs through NVML (``pynvml``, if it is installed) and the kernel's list of PCI devices.

Judges nothing, changes nothing. What a GPU does not tell is None. ``tests/launch/preflight/test_nvml.py``.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from ctypes import byref
from pathlib import Path
from typing import Any, Final

from .gpus import GPU_IS_LOST, LIBRARY_NOT_FOUND, RESET_REQUIRED, Gpu, Reading

PCI: Final = Path("/sys/bus/pci/devices")
_NVIDIA, _DISPLAY = "0x10de", ("0x0300", "0x0302")
#: More links than any GPU has; asking for one too many is an error that ends the list.
_LINKS: Final = 36


def read() -> Reading:
    on_bus, dead = bus(PCI)
    promised = allocated(os.environ)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two packages have this name; one of them complains
            import pynvml  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return Reading((), on_bus, dead, promised, LIBRARY_NOT_FOUND, "pynvml is not installed")
    return from_nvml(pynvml, on_bus, dead, promised)


def from_nvml(
    nvml: Any, on_bus: int | None, dead: tuple[str, ...] = (), promised: int | None = None
) -> Reading:
    """With the module given. It is never shut down: to begin again takes longer than all the rest."""
    try:
        nvml.nvmlInit()
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        return Reading((), on_bus, dead, promised, _number(error), str(error))
    return Reading(tuple(_gpu(nvml, index) for index in range(count)), on_bus, dead, promised)


def _gpu(nvml: Any, index: int) -> Gpu:
    fatal: list[int] = []

    def ask(name: str, *arguments: Any) -> Any:
        """One question; None when it is not answered."""
        function: Callable[..., Any] | None = getattr(nvml, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except nvml.NVMLError as error:
            if _number(error) in (GPU_IS_LOST, RESET_REQUIRED):
                fatal.append(_number(error))
            return None

    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return Gpu(index, error=_number(error))
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    rows = ask("nvmlDeviceGetRemappedRows", handle)
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    state, status = _fabric(nvml, ask, handle)
    gpu = Gpu(
        index,
        _text(getattr(ask("nvmlDeviceGetPciInfo", handle), "busId", "")),
        None if memory is None else int(memory.total),
        None if memory is None else int(memory.used),
        _int(ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0)),  # uncorrected, since the last reset
        None if rows is None else bool(rows[2]),
        None if rows is None else bool(rows[3]),
        _links(ask, handle),
        state,
        status,
        _int(reasons),
        _int(ask("nvmlDeviceGetTemperature", handle, 0)),
        _int(ask("nvmlDeviceGetTemperatureThreshold", handle, 1)),
        recovery=_recovery(nvml, ask, handle),
        processes=_processes(ask("nvmlDeviceGetComputeRunningProcesses", handle)),
    )
    return Gpu(index, gpu.bus, error=fatal[0]) if fatal else gpu


def _links(ask: Callable[..., Any], handle: Any) -> tuple[bool, ...]:
    found: list[bool] = []
    for link in range(_LINKS):
        state = ask("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        found.append(bool(state))
    return tuple(found)


def _fabric(nvml: Any, ask: Callable[..., Any], handle: Any) -> tuple[int | None, int | None]:
    kind = getattr(nvml, "c_nvmlGpuFabricInfo_t", None)
    if kind is None:
        return None, None
    info = kind()
    if ask("nvmlDeviceGetGpuFabricInfo", handle, byref(info)) is None:
        return None, None
    return int(info.state), int(info.status)


def _recovery(nvml: Any, ask: Callable[..., Any], handle: Any) -> int | None:
    """Drivers before 570 tell none."""
    field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values = ask("nvmlDeviceGetFieldValues", handle, [field]) if field is not None else None
    if not values or values[0].nvmlReturn != 0:
        return None
    return int(values[0].value.uiVal)


def _processes(found: Any) -> tuple[str, ...] | None:
    return None if found is None else tuple(process(int(one.pid), Path("/proc")) for one in found)


def process(pid: int, proc: Path) -> str:
    """``4711 python (D)``: id, name, state; an id of another namespace has neither."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
        name, _, rest = text.partition("(")[2].rpartition(")")
        shown = "".join(c if c.isprintable() else "?" for c in name)
        return f"{pid} {shown} ({rest.split()[0]})"
    except (OSError, IndexError):
        return str(pid)


def bus(root: Path) -> tuple[int | None, tuple[str, ...]]:
    """NVIDIA's GPUs on the PCI bus, and those of them that do not answer; (None, ()) without a bus."""
    try:
        devices = sorted(root.iterdir())
    except OSError:
        return None, ()
    count, dead = 0, []
    for device in devices:
        try:
            if (device / "vendor").read_text().strip() != _NVIDIA:
                continue
            if not (device / "class").read_text().startswith(_DISPLAY):
                continue
            count += 1
            with (device / "config").open("rb") as config:
                head = config.read(4)
        except OSError:
            continue
        # What has fallen off reads as all ones. One that sleeps is asked by the kernel and wakes.
        if head == b"\xff\xff\xff\xff":
            dead.append(device.name)
    return count, tuple(dead)


def allocated(environ: Mapping[str, str]) -> int | None:
    """GPUs that Slurm gave the job on this node."""
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if value := environ.get(name):
            return _listed(value)
    value = environ.get("SLURM_GPUS_ON_NODE", "")
    return int(value) if value.isdigit() else None


def _listed(text: str) -> int | None:
    """``0,2-4`` names four."""
    count = 0
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if not found:
            return None
        count += int(found[2] or found[1]) - int(found[1]) + 1
    return count


def _number(error: Any) -> int:
    value = getattr(error, "value", 999)
    return value if isinstance(value, int) else 999


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
