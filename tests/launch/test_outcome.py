"""Which rank's end is the attempt's."""

from __future__ import annotations

import pytest

from launch.outcome import RankEnd, speaker


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 0], 0),
        ([0, 75], 75),
        ([75, 1], 1),
        ([1, 76, 17], 76),
        ([1, 17, 16], 17),
        ([137, 16, 93], 16),
        ([1, 93], 93),
        ([139, 1], 139),  # the earliest of equal standing
    ],
)
def test_priority(codes: list[int], expected: int) -> None:
    ends = [RankEnd(n, code, float(n)) for n, code in enumerate(codes)]
    said = speaker(ends)
    assert said is not None and said.code == expected
    assert speaker(list(reversed(ends))) == said


def test_what_we_killed_ourselves_explains_nothing() -> None:
    killed = RankEnd(0, 137, 1.0, killed=True)
    failed = RankEnd(1, 1, 2.0, "ValueError: x")
    assert speaker([killed, failed]) == failed
    assert speaker([killed]) == killed
    assert speaker([]) is None


def test_an_exception_explains_more_than_a_vanished_neighbour() -> None:
    gone, shown = RankEnd(0, 137, 1.0), RankEnd(1, 1, 2.0, "RuntimeError: NCCL")
    assert speaker([gone, shown]) == shown
