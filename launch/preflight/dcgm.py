"""DCGM's own word on the node's GPUs, where ``dcgmi`` is installed and its host engine runs.

Asks for the health that DCGM has watched; starts no diagnosis. ``tests/launch/preflight/test_dcgm.py``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Final

from resiliency.health import Check, Status

from .settings import CheckPlace
from .site import first_line, run_bounded

_WORDS: Final = {"healthy": Status.OK, "warning": Status.WARN, "failure": Status.CRITICAL}
#: What DCGM's texts name, and the node fault it is.
_CATEGORIES: Final = (
    (("double bit", "row remap", "uncorrectable", "sram"), "gpu_ecc"),
    (("nvlink", "nvswitch"), "gpu_nvlink"),
    (("fabric manager",), "fabric_manager"),
    (("off the bus", "lost"), "gpu_off_bus"),
)


def probe(place: CheckPlace, deadline: float) -> Sequence[Check]:
    program = shutil.which("dcgmi")
    if program is None:
        return []
    code, output, error = run_bounded([program, "health", "--check", "--json"], deadline)
    if error:
        return [Check("dcgm", Status.UNKNOWN, f"dcgmi could not be run: {error}")]
    return [judge(code, output)]


def judge(code: int | None, output: bytes) -> Check:
    """From the JSON text of ``dcgmi health --check --json``."""
    if code is None:
        return Check("dcgm", Status.UNKNOWN, "dcgmi did not answer in time")
    try:
        data = json.loads(output)
    except (ValueError, RecursionError):
        return Check("dcgm", Status.UNKNOWN, f"dcgmi ended with {code}: {first_line(output) or 'no answer'}")
    pairs = list(_values(data))
    status = next((_WORDS.get(v.lower()) for k, v in pairs if k.lower() == "overall health"), None)
    if status is None:
        return Check("dcgm", Status.UNKNOWN, "dcgmi tells no overall health (are its watches on?)")
    if status is Status.OK:
        return Check("dcgm", status, "healthy")
    texts = [f"{k}: {v}" for k, v in pairs if k.lower() != "overall health" and v.lower() not in _WORDS]
    said = first_line("; ".join(texts).encode()) or status.value.lower()
    category = ""
    if status is Status.CRITICAL:
        low = " ".join(texts).lower()
        category = next((name for words, name in _CATEGORIES if any(word in low for word in words)), "")
    return Check("dcgm", status, said, tuple(first_line(t.encode()) for t in texts[:16]), category=category)


def _values(data: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every text in the answer with the name it has: its layout differs between versions."""
    if depth > 20:
        return
    if isinstance(data, dict):
        if isinstance(data.get("value"), str):
            yield name, data["value"]
        for key, value in data.items():
            if key != "value" or not isinstance(value, str):
                yield from _values(value, name if key == "children" else str(key), depth + 1)
    elif isinstance(data, list):
        for value in data:
            yield from _values(value, name, depth + 1)
    elif isinstance(data, str):
        yield name, data
