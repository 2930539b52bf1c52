"""What the logs of a failed cycle may decide, and what they may only mention."""

from __future__ import annotations

from pathlib import Path

from launch.reading import read

RANKS = {0: "a1", 1: "a2"}

IMPORT = """Traceback (most recent call last):
  File "/home/u/train.py", line 3, in <module>
    import megatron_extras
ModuleNotFoundError: No module named 'megatron_extras'
"""
NVLINK = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def test_nothing_said_is_nothing_known(tmp_path: Path) -> None:
    assert read({}, tmp_path / "e", ranks=RANKS) is None
    assert read({"a1": "  \n"}, tmp_path / "e", ranks=RANKS) is None
    assert read({"a1": "step 1 loss 2.0\nstep 2 loss 1.9\n"}, tmp_path / "e", ranks=RANKS) is None


def test_a_log_line_alone_never_stops_a_stage_for_good(tmp_path: Path) -> None:
    found = read({"a1": IMPORT}, tmp_path / "e", ranks=RANKS)
    assert found is not None and "megatron_extras" in "".join(found.evidence)
    from resiliency.taxonomy import Budget, category

    assert not found.category or category(found.category).budget is not Budget.TERMINAL


def test_last_words_are_kept_without_secrets(tmp_path: Path) -> None:
    read({"a1": IMPORT + "token=hf_abcdefghijklmnopqrstuvwxyz0123456789\n"}, tmp_path / "e", ranks=RANKS)
    kept = (tmp_path / "e" / "a1.log").read_text()
    assert "megatron_extras" in kept and "hf_abcdefghij" not in kept


def test_a_place_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert read({"a1": NVLINK}, tmp_path / "file" / "below", ranks=RANKS) is None
