"""Checks of a node before ranks are started on it: bounded in time, and only proof fails a node.

Probing (files of the kernel, NVML, programs) is apart from judging what was read, which is pure. Imports
no torch; nothing here starts, stops or resets anything on the node. docs/preflight.md lists the checks.
``tests/launch/preflight/``.
"""

from .checks import run_checks
from .settings import CheckPlace, Settings

__all__ = ["CheckPlace", "Settings", "run_checks"]
