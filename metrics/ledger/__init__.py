"""The ledger: one SQLite file made only from journals, so that it can always be made again.

Only commands on a login node open it; processes in an allocation write journals (import-linter
contract ``sql``). ``docs/ledger.md`` describes every table; ``tests/metrics/`` holds it to that.
"""

from __future__ import annotations

from .store import Ledger

__all__ = ["Ledger"]
