"""Cold start of the command line, against an interpreter that only imports its libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from figures import Figure, interleaved, report

ROUNDS = 9
AIM = 1.5


def seconds(*argv: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *argv], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["TRAINMASTER_HOME"] = home
        measures = [
            lambda: seconds("-c", "import typer, pydantic, rich"),
            lambda: seconds("-m", "orchestrator", "--help"),
            lambda: seconds("-m", "orchestrator", "status"),
        ]
        interleaved(1, measures)  # byte code and disk cache
        libraries, help_, status = interleaved(ROUNDS, measures)
    report(Figure("import typer, pydantic, rich", libraries, "s"))
    report(Figure("--help against that", help_ / libraries, "x", AIM))
    report(Figure("status against that", status / libraries, "x", AIM))


if __name__ == "__main__":
    main()
