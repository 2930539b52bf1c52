"""`setup-env`: puts the steps in order and tells the user what was chosen and why."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from . import choose, machine
from .choose import SetupError
from .venv import Venv, fingerprint

ROOT = Path(__file__).resolve().parents[2]

EPILOG = f"""environment:
  TORCH             what to install, default {choose.DEFAULT_TORCH}
  TORCH_INDEX_URL   package index to take torch from (PyTorch's CPU builds, a site's mirror)
  TORCH_ALLOW_CUDA  1: a CUDA build is welcome on a machine without a GPU

A torch that is already there, in the environment or in the Python that runs this, is kept.

exit codes: 0 done, or already so; 1 it could not be done, the message says why; 2 usage

example:
  scripts/setup-env --extra train --extra dev
"""


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="setup-env",
        description="Create or refresh the project's virtual environment.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where (default: .venv)")
    made.add_argument(
        "--extra",
        action="append",
        default=[],
        choices=["train", "dev"],
        help="extra of pyproject.toml to install; may be repeated (default: none, a login node)",
    )
    return made


def ensure_torch(venv: Venv, request: choose.Request, own: str | None) -> str:
    """Install torch unless there is one; its version, e.g. "2.13.0+cpu"."""
    if own:
        say(f"torch {own} is already there, left as it is")
        return own
    has_gpu = machine.has_nvidia_gpu()
    reasons: list[str] = []
    for candidate in choose.candidates(request, has_gpu):
        if candidate.guarded:
            try:
                names = venv.would_install(candidate.pip_args())
            except SetupError as error:
                reasons.append(f"{candidate.spec}: {error}")
                continue
            heavy = choose.cuda_packages(names)
            if heavy:
                some = ", ".join(heavy[:3]) + (f" and {len(heavy) - 3} more" * (len(heavy) > 3))
                reasons.append(f"{candidate.spec} is a CUDA build: it brings {some}")
                continue
        say(f"installing {candidate.spec}" + (" for this machine's GPU" if has_gpu else ""))
        venv.install(candidate.pip_args())
        version = machine.torch_version(venv.python)
        if version is None:
            raise SetupError(f"pip installed {candidate.spec}, yet no torch is there")
        return version
    raise choose.refusal(request, reasons)


def set_up(venv: Venv, extras: set[str], request: choose.Request) -> None:
    words = [request.spec, request.index_url or "", str(request.allow_cuda)]
    mark = fingerprint(ROOT, words)
    usable = venv.usable()
    before = venv.done(mark) if usable else None
    if before is not None and extras <= before:
        say(f"{venv.path} is up to date")
        return
    wanted = extras | (before or set())

    if usable and (other := machine.python_version(venv.python)) != sys.version.split()[0]:
        say(f"{venv.path} keeps its Python {other}; remove it to change that")
    torch = machine.torch_version(venv.python) if usable else None
    this = Path(sys.executable)
    borrowed = machine.torch_version(this) if "train" in wanted and torch is None else None
    if borrowed or not usable:
        say(f"making {venv.path} with {this} ({sys.version.split()[0]})")
        venv.create(machine.site_folders(this) if borrowed else [])
        torch = machine.torch_version(venv.python)
    if "train" in wanted:
        torch = ensure_torch(venv, request, torch)

    spec = f"[{','.join(sorted(wanted))}]" if wanted else ""
    say(f"installing trainmaster{spec}")
    with tempfile.TemporaryDirectory() as folder:
        limits = Path(folder) / "constraints.txt"
        limits.write_text("\n".join(choose.constraints(torch, machine.glibc())) + "\n")
        venv.install(["--constraint", str(limits), "--editable", f".{spec}"])
    after = machine.torch_version(venv.python)
    if torch and after != torch:
        raise SetupError(f"torch changed from {torch} to {after} behind the constraint")
    venv.stamp(mark, wanted)
    say("done")


def main() -> int:
    arguments = parser().parse_args()
    request = choose.Request(
        spec=os.environ.get("TORCH", "").strip() or choose.DEFAULT_TORCH,
        index_url=os.environ.get("TORCH_INDEX_URL", "").strip() or None,
        allow_cuda=os.environ.get("TORCH_ALLOW_CUDA", "").strip() not in ("", "0"),
    )
    venv = Venv(Path(os.path.abspath(arguments.venv)), ROOT)
    try:
        set_up(venv, set(arguments.extra), request)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        if error.hint:
            print(f"setup: {error.hint}", file=sys.stderr)
        return 1
    return 0
