"""resiliency.fence: whoever was overtaken saves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from resiliency import exitcodes
from resiliency.fence import Fence, StaleAttempt, overtaken_by

MINE = "exp-1.pretrain.002"


@pytest.mark.parametrize(
    ("claims", "later"),
    [
        ([], None),
        ([MINE], None),
        (["exp-1.pretrain.001", MINE], None),
        (["exp-1.pretrain.003", MINE, "exp-1.pretrain.010"], "exp-1.pretrain.010"),
        (["exp-1.sft.003", "exp-2.pretrain.003", "not a token"], None),
    ],
)
def test_only_a_later_link_of_the_same_stage_counts(claims: list[str], later: str | None) -> None:
    assert overtaken_by(MINE, claims) == later


def test_a_claim_that_appears_ends_the_attempt(tmp_path: Path) -> None:
    claims = tmp_path / "claims"
    fence = Fence.from_env({"TRAINMASTER_RUN_DIR": str(tmp_path), "TRAINMASTER_TOKEN": MINE})
    fence.check()  # no directory yet
    claims.mkdir()
    (claims / f"{MINE}.json").touch()
    fence.check()
    (claims / "exp-1.pretrain.003.json").touch()
    with pytest.raises(StaleAttempt, match=r"exp-1\.pretrain\.003 has taken over") as caught:
        fence.check()
    assert caught.value.exit_code == exitcodes.DO_NOT_RESTART


def test_a_program_run_by_hand_is_never_stale() -> None:
    Fence.from_env({}).check()
    Fence.from_env({"TRAINMASTER_RUN_DIR": "/nowhere", "TRAINMASTER_TOKEN": "no token"}).check()
