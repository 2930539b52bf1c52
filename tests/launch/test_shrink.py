"""With how many nodes a stage can go on."""

from __future__ import annotations

from typing import Any

import pytest

from launch.config import read_stage_config
from launch.shrink import largest

from .conftest import RunDir


def config(run_dir: RunDir, *, spec: dict[str, Any] | None = None, **launch: Any):
    run_dir.stage(argv=["x"], stage=spec or {}, **launch)
    return read_stage_config(run_dir.paths.stage_config("work"))


@pytest.mark.parametrize(
    ("nodes", "least", "usable", "expected"),
    [
        (4, None, 4, 4),
        (4, None, 6, 4),
        (4, None, 3, None),
        (4, 2, 3, 3),
        (4, 2, 1, None),
        (4, 1, 1, 1),
        (4, 4, 3, None),
    ],
)
def test_a_command_goes_on_with_what_is_left(
    run_dir: RunDir, nodes: int, least: int | None, usable: int, expected: int | None
) -> None:
    assert largest(config(run_dir, nodes=nodes, min_nodes=least), usable) == expected


@pytest.mark.parametrize(
    ("parallel", "batch", "usable", "expected"),
    [
        ({}, 8, 3, 2),  # 8 sequences cannot be shared by 3 replicas
        ({}, 12, 3, 3),
        ({"tensor": 2}, 8, 3, 2),  # 3 ranks hold no whole model of 2
        ({"tensor": 2, "pipeline": 2}, 8, 3, None),
        ({"expert": 2}, 12, 3, 2),
    ],
)
def test_training_keeps_its_split_and_its_global_batch(
    run_dir: RunDir, parallel: dict[str, int], batch: int, usable: int, expected: int | None
) -> None:
    spec = {"parallel": parallel, "train": {"global_batch_size": batch, "micro_batch_size": 1}}
    assert largest(config(run_dir, spec=spec, nodes=4, min_nodes=1), usable) == expected
