"""Argument lists and environments of a node's processes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.config import StageConfig, read_stage_config
from launch.placeholders import fill
from launch.roles import Place, Process, build, choose_launcher, role_environment

from .conftest import ROOT, RunDir


def config(run_dir: RunDir, **changes: Any) -> StageConfig:
    run_dir.stage(**changes)
    return read_stage_config(run_dir.paths.stage_config("work"))


def processes(run_dir: RunDir, it: StageConfig, index: int = 0) -> list[Process]:
    place = Place(f"n{index}", index, it.launch.nodes, "127.0.0.1", 23456)
    env = {"TRAINMASTER_ATTEMPT": "local/1.0"}
    return build(it, place, env, run_dir=run_dir.root, link=2, local_dir=run_dir.root)


@pytest.mark.parametrize(
    ("changes", "launcher"),
    [
        ({"argv": ["true"], "nodes": 4}, "none"),
        ({"program": ["-m", "models.pretrain"]}, "none"),
        ({"program": ["-m", "models.pretrain"], "launcher": "torchrun"}, "torchrun"),
        ({"program": ["-m", "models.pretrain"], "nodes": 2, "launcher": "none"}, "none"),
    ],
)
def test_launchers(run_dir: RunDir, changes: dict[str, Any], launcher: str) -> None:
    assert choose_launcher(config(run_dir, **changes)) == launcher


def test_auto_takes_nvrx_where_the_training_python_has_it(run_dir: RunDir, tmp_path: Path) -> None:
    for code, launcher in ((0, "ft_launcher"), (1, "torchrun")):
        python = tmp_path / f"python{code}"
        python.write_text(f"#!/bin/sh\nexit {code}\n")
        python.chmod(0o755)
        it = config(run_dir, program=["-m", "x"], ranks_per_node=2, python=str(python))
        assert choose_launcher(it) == launcher


def test_plain_ranks_know_their_place(run_dir: RunDir) -> None:
    it = config(run_dir, program=["-m", "x"], nodes=2, ranks_per_node=2, launcher="none")
    ranks = processes(run_dir, it, index=1)
    assert [p.rank for p in ranks] == [2, 3]
    last = ranks[1].env
    assert (last["RANK"], last["LOCAL_RANK"], last["WORLD_SIZE"], last["LOCAL_WORLD_SIZE"]) == (
        "3", "1", "4", "2",
    )  # fmt: skip
    assert (last["MASTER_ADDR"], last["MASTER_PORT"]) == ("127.0.0.1", "23456")
    assert ranks[0].argv[-4:] == ["-m", "x", "--config", str(it.path)]


def test_a_single_rank_gets_no_rendezvous(run_dir: RunDir) -> None:
    (only,) = processes(run_dir, config(run_dir, program=["-m", "x"]))
    assert "MASTER_ADDR" not in only.env and only.env["WORLD_SIZE"] == "1"


@pytest.mark.parametrize("launcher", ["torchrun", "ft_launcher"])
def test_launchers_meet_at_the_first_node_and_survive_a_step_wide_term(
    run_dir: RunDir, launcher: str
) -> None:
    it = config(run_dir, program=["-m", "x"], nodes=2, ranks_per_node=4, launcher=launcher, restarts_in_job=3)
    (only,) = processes(run_dir, it, index=1)
    argv = list(only.argv)

    def option(name: str) -> str:
        return argv[argv.index(name) + 1]

    assert option("--nnodes") == "2" and option("--nproc-per-node") == "4"
    assert option("--rdzv-endpoint") == "127.0.0.1:23456"
    assert option("--max-restarts") == "0"  # the supervisor restarts
    assert "is_host=0" in option("--rdzv-conf")
    assert option("--rdzv-id") == "local-1.0-0"
    assert only.rank is None and signal.SIGTERM in only.ignore
    assert "--launched" in argv[argv.index("--no-python") :]


def test_a_node_alone_takes_any_port(run_dir: RunDir) -> None:
    it = config(run_dir, program=["-m", "x"], ranks_per_node=2, launcher="torchrun")
    argv = list(processes(run_dir, it)[0].argv)
    assert argv[argv.index("--rdzv-endpoint") + 1] == "127.0.0.1:0"


def test_a_container_wraps_the_whole_process(run_dir: RunDir) -> None:
    container = {"runtime": "apptainer", "image": "train.sif", "mounts": ["/data:/data"]}
    (only,) = processes(run_dir, config(run_dir, argv=["train", "{link}"], container=container))
    assert only.argv[:2] == ["apptainer", "exec"] and only.argv[-2:] == ["train", "2"]


def test_the_user_may_set_anything_but_the_contract(run_dir: RunDir) -> None:
    it = config(run_dir, argv=["x"], env={"TRAINMASTER_RUN": "forged", "PATH": "/mine", "N": "1"})
    base = {"PATH": "/usr/bin", "KEEP": "k", "PYTHONSAFEPATH": "1"}
    env = role_environment(it, base, {"TRAINMASTER_RUN": "real"})
    assert (env["TRAINMASTER_RUN"], env["PATH"], env["KEEP"], env["N"]) == ("real", "/mine", "k", "1")
    assert "PYTHONSAFEPATH" not in env
    assert str(ROOT) in env["PYTHONPATH"]


def test_placeholders(run_dir: RunDir) -> None:
    it = config(run_dir, argv=["x"], inputs={"data": "/d/{link}"})
    words = ["{stage_dir}", "a={input:data}", "{link}{link}", "{other} {} {{link}}", "$(x)"]
    assert fill(words, it, run_dir.root, 3) == [
        str(it.stage_dir), "a=/d/{link}", "33", "{other} {} {3}", "$(x)",
    ]  # fmt: skip


PLAIN = st.text(st.characters(exclude_characters="{}"))
PIECES = st.lists(PLAIN | st.sampled_from(["{link}", "{input:data}"]))


@given(pieces=PIECES, value=st.text())
def test_only_placeholders_are_replaced_and_values_are_never_looked_at(pieces: list[str], value: str) -> None:
    it = StageConfig(
        path=Path(), run="r", name="work", kind="command", cluster="c", scheduler="local",
        stage_dir=Path("/s"), artifact_dir=Path("/a"), inputs={"data": value},  # type: ignore[dict-item]
        input_kinds={}, artifact_kind="command", launch=None, budgets=None,  # type: ignore[arg-type]
    )  # fmt: skip
    values = {"{link}": "7", "{input:data}": value}
    expected = "".join(values.get(piece, piece) for piece in pieces)
    assert fill(["".join(pieces)], it, Path("/r"), 7) == [expected]


def test_pythons_that_are_missing_are_not_asked(run_dir: RunDir) -> None:
    it = config(run_dir, program=["-m", "x"], ranks_per_node=2, python="/in/the/container/python")
    assert choose_launcher(it) in ("ft_launcher", "torchrun")
