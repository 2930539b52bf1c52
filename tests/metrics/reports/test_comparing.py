"""Two summaries side by side."""

from __future__ import annotations

from dataclasses import replace

from metrics.accounting.values import Summary
from metrics.reports.comparing import compare

from .conftest import Make


def changed(summary: Summary, name: str, **values: object) -> Summary:
    figures = tuple(replace(one, **values) if one.name == name else one for one in summary.figures)  # type: ignore[arg-type]
    return replace(summary, figures=figures)


def test_a_run_is_like_itself(make: Make) -> None:
    summary = make()
    rows = compare(summary, summary).records()
    assert {row["what"] for row in rows} == {"figure", "share"}
    assert all(row["difference"] == 0 and row["ratio"] in (1, None) and not row["apart"] for row in rows)
    assert sum(row["first"] for row in rows if row["what"] == "share" and row["name"] != "chained") > 0.999  # type: ignore[misc]


def test_differences_and_what_is_not_known(make: Make) -> None:
    summary = make()
    ettr = summary.figure("ettr")
    assert ettr is not None and ettr.value
    other = changed(changed(summary, "ettr", value=ettr.value / 2), "lost_steps", value=None)
    found = {row["name"]: row for row in compare(summary, other).records() if row["what"] == "figure"}
    assert found["ettr"]["ratio"] == 0.5 and found["ettr"]["difference"] == -ettr.value / 2
    assert (found["lost_steps"]["second"], found["lost_steps"]["difference"]) == (None, None)
    assert "tflops_per_gpu" not in found  # neither knows it


def test_intervals_that_do_not_meet_are_said(make: Make) -> None:
    low = changed(make(), "mttf_hours", value=2.0, low=1.0, high=3.0)
    cases = [((4.0, 9.0), 1), ((2.5, 9.0), 0), ((4.0, None), 1), ((None, 0.5), 1), ((None, None), None)]
    for (start, end), apart in cases:
        other = changed(low, "mttf_hours", low=start, high=end)
        for rows in (compare(low, other).records(), compare(other, low).records()):
            (row,) = [row for row in rows if row["name"] == "mttf_hours"]
            assert row["apart"] == apart, (start, end)
