"""What ``dcgmi health --check --json`` says, taken for what it is; and a program that stands for it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from launch.preflight import CheckPlace, dcgm
from launch.preflight.dcgm import judge
from resiliency.health import Status


def answer(overall: str, text: str = "") -> bytes:
    """The layout of DCGM 3."""
    gpu: dict[str, Any] = {"GPU": {"children": {"0": {"value": overall}}, "value": ""}}
    if text:
        gpu["GPU"]["children"]["Error"] = {"value": text}
    body = {"Overall Health": {"children": gpu, "value": overall}}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]}).encode()


@pytest.mark.parametrize(
    ("output", "status", "category"),
    [
        (answer("Healthy"), "OK", ""),
        (answer("Warning", "Detected 3 PCIe replays on GPU 0"), "WARN", ""),
        (answer("Failure", "GPU 0 had a row remap failure"), "CRITICAL", "gpu_ecc"),
        (answer("Failure", "NVLink 3 of GPU 2 is down"), "CRITICAL", "gpu_nvlink"),
        (answer("Failure", "something new"), "CRITICAL", ""),
        (b'{"body": {}}', "UNKNOWN", ""),
        (b"Error: unable to connect to host engine", "UNKNOWN", ""),
        (b"[" * 100_000, "UNKNOWN", ""),
        (b"null", "UNKNOWN", ""),
    ],
)
def test_its_word(output: bytes, status: str, category: str) -> None:
    found = judge(0, output)
    assert (found.status.value, found.category) == (status, category)


def test_a_real_program_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = CheckPlace("n", tmp_path, tmp_path, 1)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    assert dcgm.probe(place, time.monotonic() + 5) == []
    program = tmp_path / "dcgmi"
    program.write_text("#!/bin/sh\necho '" + answer("Warning", "hot").decode() + "'\n")
    program.chmod(0o755)
    (found,) = dcgm.probe(place, time.monotonic() + 20)
    assert found.status is Status.WARN and "hot" in found.detail
