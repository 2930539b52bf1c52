"""A probe of hardware that is not there is no failure, whatever it prints."""

from __future__ import annotations

from pathlib import Path

from resiliency.triage.api import triage_paths

NVRX = """[2026-12-01 06:03:18,740] [ERROR] [ft_launcher12335@n1] NVML Error: NVML Shared Library Not Found
Traceback (most recent call last):
  File "/venv/pynvml.py", line 3190, in _LoadNvmlLibrary
    nvmlLib = CDLL("libnvidia-ml.so.1")
OSError: libnvidia-ml.so.1: cannot open shared object file: No such file or directory

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/venv/nvidia_resiliency_ext/shared_utils/health_check.py", line 71, in get_gpu_pci_mapping
    self.pynvml.nvmlInit()
pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found

[2026-12-01 06:03:18,741] [ERROR] [ft_launcher12335@n1] Failed to shut down NVML: Uninitialized
[2026-12-01 06:03:24,227] [ERROR] [ft_launcher12335@n1] failed (exitcode: -9) local_rank: 0 (pid: 12346)
"""


def test_nvrx_s_probe_is_not_the_cause_of_a_killed_rank(tmp_path: Path) -> None:
    (tmp_path / "n1.log").write_text(NVRX)
    found = triage_paths([tmp_path])
    assert found.category != "code_error", found.as_json()


def test_an_error_of_its_own_beside_it_is(tmp_path: Path) -> None:
    own = 'Traceback (most recent call last):\n  File "train.py", line 3, in f\n    g()\nValueError: no\n'
    (tmp_path / "n1.log").write_text(NVRX.replace("[2026-12-01 06:03:24", own + "[2026-12-01 06:03:24"))
    assert triage_paths([tmp_path]).category == "code_error"
