"""What ``cancel`` and ``resume`` tell: the stages they were about, and what the reconcile after them did."""

from __future__ import annotations

from collections.abc import Sequence

from ..control import Report
from .common import emit, note, say
from .show import report_data, report_lines


def tell(run: str, did: str, stages: Sequence[str], nothing: str, report: Report, *, json: bool) -> None:
    """``did``: cancelled or resumed; ``nothing``: why there may be no stage. Problems: to standard error."""
    if json:
        emit({"run": run, did: list(stages), **report_data(report)})
    else:
        say(f"{run}: {did} {', '.join(stages) if stages else f'nothing ({nothing})'}")
        for line in list(report_lines(report))[1:]:
            say(line)
    for problem in report.problems:
        note(f"problem: {problem}")
