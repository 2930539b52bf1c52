"""Judges what was read of a node's GPUs; :mod:`.nvml` reads it. Pure but for :func:`probe`.

CRITICAL only for what proves the node: a lost GPU, uncorrectable memory errors, failed row remapping, a
dead link among links that work, no fabric manager. ``tests/launch/preflight/test_gpus.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from resiliency.health import Check, Status

from .settings import CheckPlace

NAMES: Final = (
    "gpu_count", "gpu_memory", "gpu_ecc", "gpu_remap", "gpu_recovery", "gpu_nvlink", "gpu_fabric",
    "gpu_clocks", "gpu_processes",
)  # fmt: skip
#: More than this on a GPU before ranks run: something else uses it.
MEMORY_USED: Final = 2 << 30
#: Less memory than this share of what the other GPUs have.
MEMORY_SHARE: Final = 0.98

#: NVML's reasons for lower clocks that speak of heat or power; others (idle, caps) are normal.
SLOWDOWN: Final = {0x8: "hardware slowdown", 0x20: "software thermal slowdown",
                   0x40: "hardware thermal slowdown", 0x80: "power brake"}  # fmt: skip
#: NVML's recovery action (nvmlDeviceGpuRecoveryAction_t): what the driver itself asks for. With the first no
#: work can go on, with the second it can, less well.
UNUSABLE: Final = {1: "reset the GPU", 2: "reboot the node", 6: "reset its PCI bus", 7: "reboot the system"}
DEGRADED: Final = {3: "drain peer-to-peer work", 4: "drain and reset", 5: "recover the IMEX domain"}
NOT_STARTED, IN_PROGRESS, COMPLETED = 1, 2, 3

#: NVML's errors, by number.
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 9, 12, 15, 16, 18


@dataclass(frozen=True)
class Gpu:
    """What was read of one GPU; None: it does not tell. ``error``: NVML's answer instead of a reading."""

    index: int
    bus: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    ecc_volatile: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    links: tuple[bool, ...] = ()
    fabric_state: int | None = None
    fabric_status: int | None = None
    reasons: int | None = None
    temperature: int | None = None
    slowdown_at: int | None = None
    error: int = 0
    recovery: int | None = None
    processes: tuple[str, ...] | None = None  # those that compute on it: id, name, state


@dataclass(frozen=True)
class Reading:
    """A node's GPUs. ``on_bus``: those the kernel sees, whoever may use them; ``error``: NVML's own."""

    gpus: tuple[Gpu, ...] = ()
    on_bus: int | None = None
    dead_on_bus: tuple[str, ...] = ()
    allocated: int | None = None
    error: int = 0
    why: str = ""


def probe(place: CheckPlace, deadline: float) -> Sequence[Check]:
    from . import nvml

    return judge(nvml.read(), place.gpus_per_node)


def judge(reading: Reading, wanted: int) -> list[Check]:
    count = _count(reading, wanted)
    if not reading.gpus:
        return [count]
    gpus = [gpu for gpu in reading.gpus if not gpu.error]
    rest = (judged(gpus) for judged in _OF_EACH)
    return [count, *(check for check in rest if check is not None)]


def _count(reading: Reading, wanted: int) -> Check:
    name = "gpu_count"
    if reading.dead_on_bus:
        said = f"{', '.join(reading.dead_on_bus)} does not answer on the PCI bus"
        if sum(not gpu.error for gpu in reading.gpus) >= wanted:  # another job's, on a shared node
            return Check(name, Status.WARN, said)
        return Check(name, Status.CRITICAL, said, category="gpu_off_bus")
    if reading.error == VERSION_MISMATCH:
        said = "the driver in the kernel and its library are of different versions"
        return Check(name, Status.CRITICAL, said, category="driver_mismatch")
    if reading.error == DRIVER_NOT_LOADED and reading.on_bus:
        said = f"{reading.on_bus} GPUs are on the bus, but the driver is not loaded"
        return Check(name, Status.CRITICAL, said, category="driver_mismatch")
    if reading.error or reading.why:
        return Check(name, Status.UNKNOWN, f"NVML: {reading.why or f'error {reading.error}'}")
    lost = [gpu for gpu in reading.gpus if gpu.error == GPU_IS_LOST]
    if lost:
        return Check(name, Status.CRITICAL, f"{_who(lost)} is lost", _lines(lost), category="gpu_off_bus")
    reset = [gpu for gpu in reading.gpus if gpu.error == RESET_REQUIRED]
    if reset:
        said = f"{_who(reset)} needs a reset"
        return Check(name, Status.CRITICAL, said, _lines(reset), category="gpu_ecc")
    found = len(reading.gpus)
    if found >= wanted:
        unread = [gpu for gpu in reading.gpus if gpu.error]
        if unread:
            return Check(name, Status.UNKNOWN, f"{_who(unread)} cannot be read", _lines(unread))
        return Check(name, Status.OK, f"{found} GPUs")
    if reading.on_bus is not None and reading.on_bus < wanted:
        said = f"{reading.on_bus} GPUs are on the bus, {wanted} are wanted"
        # The scheduler promised them: then it is the node, and not a wrong wish.
        promised = reading.allocated is not None and reading.allocated >= wanted
        return Check(name, Status.CRITICAL, said, category="gpu_off_bus" if promised else "")
    hidden = f"; {reading.on_bus} are on the bus: hidden from this job?" if reading.on_bus else ""
    return Check(name, Status.WARN, f"{found} GPUs are seen, {wanted} are wanted{hidden}")


def _memory(gpus: Sequence[Gpu]) -> Check | None:
    known = [gpu for gpu in gpus if gpu.memory_total]
    if not known:
        return None
    usual = sorted(gpu.memory_total or 0 for gpu in known)[(len(known) - 1) // 2]
    small = [gpu for gpu in known if (gpu.memory_total or 0) < MEMORY_SHARE * usual]
    if small:
        return Check("gpu_memory", Status.WARN, f"{_who(small)} has less memory than the others")
    used = [gpu for gpu in known if (gpu.memory_used or 0) > MEMORY_USED]
    if used:
        most = max(gpu.memory_used or 0 for gpu in used) / (1 << 30)
        return Check("gpu_memory", Status.WARN, f"{_who(used)} is in use already ({most:.1f} GiB)")
    return Check("gpu_memory", Status.OK, f"{usual / (1 << 30):.0f} GiB each")


def _ecc(gpus: Sequence[Gpu]) -> Check | None:
    known = [gpu for gpu in gpus if gpu.ecc_volatile is not None]
    if not known:
        return None
    bad = [gpu for gpu in known if gpu.ecc_volatile]
    if bad:
        said = f"{_who(bad)} had {max(g.ecc_volatile or 0 for g in bad)} uncorrectable memory errors"
        return Check("gpu_ecc", Status.CRITICAL, said, _lines(bad), category="gpu_ecc")
    return Check("gpu_ecc", Status.OK, "no uncorrectable errors since the last reset")


def _remap(gpus: Sequence[Gpu]) -> Check | None:
    known = [gpu for gpu in gpus if gpu.remap_failed is not None or gpu.remap_pending is not None]
    if not known:
        return None
    failed = [gpu for gpu in known if gpu.remap_failed]
    if failed:
        said = f"{_who(failed)}: bad memory rows could not be replaced"
        return Check("gpu_remap", Status.CRITICAL, said, _lines(failed), category="gpu_ecc")
    pending = [gpu for gpu in known if gpu.remap_pending]
    if pending:
        said = f"{_who(pending)}: memory rows are replaced at the next reset"
        return Check("gpu_remap", Status.WARN, said, _lines(pending))
    return Check("gpu_remap", Status.OK, "none pending")


def _recovery(gpus: Sequence[Gpu]) -> Check | None:
    known = [gpu for gpu in gpus if gpu.recovery is not None]
    if not known:
        return None
    name = "gpu_recovery"
    asking = [gpu for gpu in known if gpu.recovery in UNUSABLE]
    if asking:
        said = f"{_who(asking)}: the driver asks to {UNUSABLE[asking[0].recovery or 0]}"
        return Check(name, Status.CRITICAL, said, _lines(asking), category="gpu_ecc")
    asking = [gpu for gpu in known if gpu.recovery]
    if asking:
        number = asking[0].recovery or 0
        said = f"{_who(asking)}: the driver asks to {DEGRADED.get(number, f'do what it calls {number}')}"
        return Check(name, Status.WARN, said, _lines(asking))
    return Check(name, Status.OK, "nothing asked for")


def _processes(gpus: Sequence[Gpu]) -> Check | None:
    """Before ranks run nobody should compute here. A warning: on a shared node it may be another's GPU."""
    known = [gpu for gpu in gpus if gpu.processes is not None]
    if not known:
        return None
    busy = [gpu for gpu in known if gpu.processes]
    if busy:
        lines = tuple(f"GPU {gpu.index}: {one}" for gpu in busy for one in gpu.processes or ())[:32]
        first = ", ".join((busy[0].processes or ())[:3])
        said = f"{_who(busy)} is used by {first}: left over from earlier work?"
        return Check("gpu_processes", Status.WARN, said, lines)
    return Check("gpu_processes", Status.OK, "none")


def _nvlink(gpus: Sequence[Gpu]) -> Check | None:
    linked = [gpu for gpu in gpus if any(gpu.links)]
    if not linked:
        return None
    usual = max(sum(gpu.links) for gpu in linked)
    # Bridged cards may lack links altogether; some that work and some that do not is a fault.
    fewer = [gpu for gpu in linked if sum(gpu.links) < usual]
    if fewer and len(fewer) * 2 < len(linked):
        said = f"{_who(fewer)} has {sum(fewer[0].links)} of {usual} links"
        return Check("gpu_nvlink", Status.CRITICAL, said, _lines(fewer), category="gpu_nvlink")
    without = [gpu for gpu in gpus if not any(gpu.links)]
    if without or fewer:
        said = f"{_who(without or fewer)} has fewer links than others"
        return Check("gpu_nvlink", Status.WARN, said, _lines(without or fewer))
    return Check("gpu_nvlink", Status.OK, f"{usual} links each")


def _fabric(gpus: Sequence[Gpu]) -> Check | None:
    """Only GPUs behind NVSwitches know of a fabric."""
    known = [gpu for gpu in gpus if gpu.fabric_state]
    if not known:
        return None
    # One GPU handed to a virtual machine is never told to join.
    sure = len(known) > 1
    failed = [gpu for gpu in known if gpu.fabric_state == COMPLETED and gpu.fabric_status]
    waiting = [gpu for gpu in known if gpu.fabric_state == NOT_STARTED]
    if failed or waiting:
        said = f"{_who(failed)} failed to join" if failed else f"{_who(waiting)} was never told to join"
        status = Status.CRITICAL if sure else Status.WARN
        said += " the NVLink fabric: is the fabric manager running?"
        return Check("gpu_fabric", status, said, category="fabric_manager" if sure else "")
    joining = [gpu for gpu in known if gpu.fabric_state == IN_PROGRESS]
    if joining:
        return Check("gpu_fabric", Status.WARN, f"{_who(joining)} is still joining the NVLink fabric")
    return Check("gpu_fabric", Status.OK, "joined")


def _clocks(gpus: Sequence[Gpu]) -> Check | None:
    known = [gpu for gpu in gpus if gpu.reasons is not None or gpu.temperature is not None]
    if not known:
        return None
    slowed = [gpu for gpu in known if (gpu.reasons or 0) & sum(SLOWDOWN)]
    if slowed:
        words = sorted({word for gpu in slowed for bit, word in SLOWDOWN.items() if (gpu.reasons or 0) & bit})
        return Check("gpu_clocks", Status.WARN, f"{_who(slowed)}: {', '.join(words)}", _lines(slowed))
    hot = [g for g in known if g.temperature is not None and g.slowdown_at and g.temperature >= g.slowdown_at]
    if hot:
        said = f"{_who(hot)} is as hot as its limit ({max(g.temperature or 0 for g in hot)} °C)"
        return Check("gpu_clocks", Status.WARN, said, _lines(hot))
    temperatures = [gpu.temperature for gpu in known if gpu.temperature is not None]
    return Check("gpu_clocks", Status.OK, f"at most {max(temperatures)} °C" if temperatures else "not slowed")


def _who(gpus: Sequence[Gpu]) -> str:
    return "GPU " + ", ".join(str(gpu.index) for gpu in gpus)


def _lines(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    return tuple(
        f"GPU {g.index} {g.bus}: ecc={g.ecc_volatile} pending={g.remap_pending} failed={g.remap_failed} "
        f"links={sum(g.links)}/{len(g.links)} reasons={g.reasons} temperature={g.temperature} error={g.error}"
        f" recovery={g.recovery}"
        for g in gpus[:16]
    )


#: In the order of :data:`NAMES`.
_OF_EACH: Final = (
    _memory, _ecc, _remap, _recovery, _nvlink, _fabric, _clocks, _processes,
)  # fmt: skip
