"""The one error type of dev-cluster and its exit codes.

Has the shape of `resiliency.errors.TrainmasterError` (message, hint) without importing it: this
package runs before anything is installed. `cli.py` prints it; nothing else may print or exit.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2  # argparse's own
EXIT_NOT_UP = 3
EXIT_NEEDS_ROOT = 4
EXIT_NOT_INSTALLED = 5
EXIT_CONFLICT = 6

EXIT_CODES = {
    EXIT_OK: "done, or already so",
    EXIT_FAILED: "something failed; the message says what and where its log is",
    EXIT_USAGE: "the command line could not be understood",
    EXIT_NOT_UP: "the cluster is not (fully) up",
    EXIT_NEEDS_ROOT: "this verb needs root",
    EXIT_NOT_INSTALLED: "Slurm, munge or MariaDB is not installed",
    EXIT_CONFLICT: "the cluster is up with other settings, or a port is taken",
}


class DevClusterError(Exception):
    """What happened, and in `hint` the next step; `code` is the process's exit code."""

    def __init__(self, message: str, *, hint: str = "", code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
