"""The virtual environment itself: create it, ask pip, install, and stamp what is done."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .choose import SetupError

STAMP = ".trainmaster-setup.json"
BORROWED = "trainmaster-borrowed.pth"


def fingerprint(root: Path, request: list[str]) -> str:
    """Changes when what decides the environment's contents does: the project file, this tool, the
    Python that makes it, and the user's wishes."""
    digest = hashlib.sha256()
    sources = sorted((root / "scripts" / "setupenv").glob("*.py"))
    for path in [root / "pyproject.toml", *sources]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for word in [str(root), sys.version, sys.base_prefix, *request]:
        digest.update(word.encode() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class Venv:
    """One virtual environment; `root` is the project it serves."""

    path: Path
    root: Path

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    def usable(self) -> bool:
        """True if its Python starts and can reach pip: a moved or half-made one can not."""
        if not self.python.exists():
            return False
        done = subprocess.run(
            [str(self.python), "-m", "pip", "--version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        return done.returncode == 0

    def create(self, borrow: list[str]) -> None:
        """Make it, or repair it in place: what is installed in it stays.

        borrow: folders of packages of the Python it is made from that it shall see too; [] if none.
        """
        for link in self.path.glob("bin/python*"):
            if link.is_symlink() and not link.exists():  # `venv` would leave it dangling
                link.unlink()
        command = [sys.executable, "-m", "venv", str(self.path)]
        if borrow:
            command.append("--system-site-packages")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise SetupError(
                f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[-400:]}",
                hint="on Debian and Ubuntu: apt-get install python3-venv",
            )
        if not self.usable():
            raise SetupError(f"{self.path} is broken and could not be repaired", hint=f"rm -r {self.path}")
        # A venv made from a venv sees only the base installation, so name its folders.
        if borrow and sys.prefix != sys.base_prefix:
            for site in self.path.glob("lib/python*/site-packages"):
                (site / BORROWED).write_text("\n".join(borrow) + "\n")

    def _pip(self, args: list[str], quiet: bool) -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")
        environment.pop("PIP_REQUIRE_VIRTUALENV", None)
        return subprocess.run(
            [str(self.python), "-m", "pip", *args],
            cwd=self.root,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=quiet,
        )

    def would_install(self, args: list[str]) -> list[str]:
        """Names, with dashes, of the distributions that `pip install args` would bring.

        Raises SetupError with pip's last error line if it cannot be resolved.
        """
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            done = self._pip(["install", "--dry-run", "--quiet", "--report", str(report), *args], quiet=True)
            if done.returncode:
                errors = [x for x in done.stderr.splitlines() if x.startswith("ERROR")]
                raise SetupError((errors or [f"pip exited {done.returncode}"])[0])
            found = json.loads(report.read_text())["install"]
        return [item["metadata"]["name"].lower().replace("_", "-") for item in found]

    def install(self, args: list[str]) -> None:
        """`pip install args`, its output shown."""
        done = self._pip(["install", "--progress-bar", "off", "--quiet", *args], quiet=False)
        if done.returncode:
            raise SetupError(
                f"`pip install {' '.join(args)}` failed (exit {done.returncode})",
                hint="pip's own message stands above; run `make setup` again once it is mended",
            )

    # -- the stamp ---------------------------------------------------------------------------

    def done(self, fingerprint: str) -> set[str] | None:
        """Extras that were installed under this fingerprint; None: not set up, or any doubt."""
        try:
            stamp = json.loads((self.path / STAMP).read_text())
            return set(stamp["extras"]) if stamp["fingerprint"] == fingerprint else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def stamp(self, fingerprint: str, extras: set[str]) -> None:
        """Written last, so that an interrupted set-up is begun again."""
        text = json.dumps({"fingerprint": fingerprint, "extras": sorted(extras)}, indent=1)
        temporary = self.path / (STAMP + ".new")
        temporary.write_text(text + "\n")
        temporary.replace(self.path / STAMP)
