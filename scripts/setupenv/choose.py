"""Which torch to install, and when to leave it alone. Pure: no process, no file, no network.

Two promises, held by tests/scripts/test_setup_env.py: a torch that is already there is never
replaced, and without an NVIDIA GPU nothing is installed that brings CUDA along unless the user
said so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# The release that was tested; TORCH=torch==X.Y.Z on the command line replaces it.
DEFAULT_TORCH = "torch==2.13.0"

# What the CUDA builds of torch depend on. nvidia-ml-py and nvidia-resiliency-ext are plain Python
# or small, and wanted.
_CUDA = re.compile(r"(triton|cuda[-_.].*|nvidia[-_.](cu|nccl|nvjitlink|nvtx|nvshmem|npp|nvjpeg).*)$")


class SetupError(Exception):
    """Set-up cannot go on; `str()` says why, `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Request:
    """What the user asked for, by environment variable.

    index_url None: pip's own configuration decides where packages come from.
    """

    spec: str = DEFAULT_TORCH
    index_url: str | None = None
    allow_cuda: bool = False


@dataclass(frozen=True)
class Candidate:
    """One way of getting torch, in the order they are tried.

    guarded: install only if the resolution brings no CUDA package.
    """

    spec: str
    index_url: str | None
    guarded: bool

    def pip_args(self) -> list[str]:
        return [self.spec, *(["--index-url", self.index_url] if self.index_url else [])]


def candidates(request: Request, has_gpu: bool) -> list[Candidate]:
    """With a GPU, or the user's word: exactly what was asked for. Else a CPU build, looked at
    before it is installed: first by its local version, then plain, which finds a CPU build where
    pip is configured to, or the index given offers no other."""
    if has_gpu or request.allow_cuda:
        return [Candidate(request.spec, request.index_url, guarded=False)]
    found = []
    exact = re.fullmatch(r"torch==([0-9][0-9a-z.]*)", request.spec.replace(" ", ""))
    if exact:
        found.append(Candidate(f"torch=={exact[1]}+cpu", request.index_url, guarded=True))
    found.append(Candidate(request.spec, request.index_url, guarded=True))
    return found


def cuda_packages(names: Iterable[str]) -> list[str]:
    """Those of the distributions that only a CUDA build needs, sorted."""
    return sorted(name for name in names if _CUDA.match(name.lower()))


def refusal(request: Request, reasons: list[str]) -> SetupError:
    """No candidate would do: one message that names every way out."""
    tried = "; ".join(reasons)
    return SetupError(
        f"no CPU build of {request.spec} found ({tried})",
        hint="this machine has no NVIDIA GPU, and a CUDA build is several GB. Either\n"
        "  make setup TORCH_INDEX_URL=<index>   PyTorch's index of CPU builds, which its\n"
        "                                       'Get Started' page names, or your site's mirror\n"
        "  make setup TORCH=torch==<version>    a version that has a CPU build where pip looks\n"
        "  make setup PYTHON=<python>           a Python that has torch already\n"
        "  make setup TORCH_ALLOW_CUDA=1        take the CUDA build all the same",
    )


def constraints(torch_version: str | None, glibc: tuple[int, int] | None) -> list[str]:
    """Lines for pip's constraint file.

    The first keeps every later step from replacing torch. The second spells out what wheel tags
    say too (no source distribution is published), so that a mirror with odd tags cannot
    bring a wheel that fails at import.
    """
    lines = []
    if torch_version:
        lines.append(f"torch=={torch_version}")
    if glibc is not None and glibc < (2, 39):
        lines.append("nvidia-resiliency-ext<0.5")
    return lines
