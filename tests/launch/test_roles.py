"""Argument lists and environments of a node's processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.config import StageConfig, read_stage_config
from launch.placeholders import fill
from launch.roles import (
    Place,
    Process,
    build,
    choose_launcher,
    role_environment,
    warm_environment,
    warm_modules,
)

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


def test_the_world_of_a_cycle_may_be_smaller_than_the_stages(run_dir: RunDir) -> None:
    it = config(run_dir, program=["-m", "x"], nodes=3, ranks_per_node=2, launcher="none")
    place = Place("n1", 1, 2, "127.0.0.1", 23456)
    ranks = build(it, place, {}, run_dir=run_dir.root, link=2, local_dir=run_dir.root)
    assert [(p.rank, p.env["WORLD_SIZE"]) for p in ranks] == [(2, "4"), (3, "4")]
    it = config(run_dir, program=["-m", "x"], nodes=3, ranks_per_node=2, launcher="torchrun")
    (only,) = build(it, place, {}, run_dir=run_dir.root, link=2, local_dir=run_dir.root)
    assert only.argv[list(only.argv).index("--nnodes") + 1] == "2"


def test_each_cycle_has_a_rendezvous_of_its_own(run_dir: RunDir) -> None:
    it = config(run_dir, program=["-m", "x"], nodes=2, launcher="torchrun")

    def identity(cycle: str) -> str:
        env = {"TRAINMASTER_ATTEMPT": "local/1.0", "TRAINMASTER_CYCLE": cycle}
        place = Place("n0", 0, 2, "127.0.0.1", 23456)
        (only,) = build(it, place, env, run_dir=run_dir.root, link=1, local_dir=run_dir.root)
        return str(only.argv[list(only.argv).index("--rdzv-id") + 1])

    assert (identity("0"), identity("4")) == ("local-1.0-0", "local-1.0-4")


@pytest.mark.parametrize(
    ("kind", "hang", "seconds"),
    [
        ("pretrain", {}, 2700),
        ("pretrain", {"floor": 30, "first": 100}, 300),
        ("pretrain", {"detect": False}, None),
        ("command", {}, None),
    ],
)
def test_nvrx_looks_for_hangs_long_after_us_or_not_at_all(
    run_dir: RunDir, kind: str, hang: dict[str, Any], seconds: float | None
) -> None:
    it = config(
        run_dir,
        kind=kind,
        program=["-m", "x"],
        ranks_per_node=2,
        launcher="ft_launcher",
        recovery={"hang": hang},
    )
    processes(run_dir, it)
    found = json.loads((run_dir.root / "ft.yaml").read_text())["fault_tolerance"]
    assert found["rank_heartbeat_timeout"] == found["initial_rank_heartbeat_timeout"] == seconds


# -- warm --------------------------------------------------------------------------------------


def warm_argv(run_dir: RunDir, it: StageConfig, **env: str) -> list[str]:
    place = Place("n0", 0, it.launch.nodes, "127.0.0.1", 23456)
    found = build(
        it, place, {"TRAINMASTER_WARM": "/s", **env}, run_dir=run_dir.root, link=1, local_dir=run_dir.root
    )
    return list(found[0].argv)


def test_with_a_warm_server_launcher_and_ranks_ask_it(run_dir: RunDir) -> None:
    it = config(run_dir, program=["-m", "x"], ranks_per_node=2, launcher="torchrun", warm=["y"])
    argv = warm_argv(run_dir, it)
    cut = argv.index("--no-python")
    assert argv[1:3] == argv[cut + 2 : cut + 4] == ["-I", "-S"]
    assert argv[: argv.index("--")].count("--warm") == argv[cut:].count("--warm") == 1
    assert argv[argv.index("--") + 1 :][:2] == ["-m", "torch.distributed.run"]
    assert warm_modules(it) == ["torch.distributed.run", "y"]


def test_a_single_rank_of_a_program_asks_it_too(run_dir: RunDir) -> None:
    it = config(run_dir, program=["-m", "x"], warm=["y"])
    assert "--warm" in warm_argv(run_dir, it) and warm_modules(it) == ["y"]
    assert "--warm" not in processes(run_dir, it)[0].argv


def test_in_a_container_nothing_is_warm(run_dir: RunDir) -> None:
    container = {"runtime": "apptainer", "image": "train.sif"}
    it = config(run_dir, program=["-m", "x"], warm=["y"], launcher="torchrun", container=container)
    assert "--warm" not in warm_argv(run_dir, it) and warm_modules(it) == []


def test_what_needs_no_imports_needs_no_server(run_dir: RunDir) -> None:
    assert warm_modules(config(run_dir, argv=["true"])) == []


def test_a_command_is_warm_if_its_python_is_the_servers(run_dir: RunDir, tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python"  # the same interpreter in another environment
    other.parent.mkdir()
    other.symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "pyvenv.cfg").write_text("")
    mine = os.path.dirname(sys.executable)
    for command, path, listed, expected in (
        ("python", mine, ["y"], True),
        (sys.executable, "", ["y"], True),
        ("python", mine, [], False),
        ("python", str(other.parent), ["y"], False),
        (str(other), mine, ["y"], False),
        ("bash", "/bin", ["y"], False),
        ("python", "/nowhere", ["y"], False),
    ):
        it = config(run_dir, argv=[command, "train.py"], ranks_per_node=2, launcher="torchrun", warm=listed)
        argv = warm_argv(run_dir, it, PATH=path)
        rank = argv[argv.index("--no-python") :]
        assert ("--warm" in rank) == expected, (command, path, listed)
        assert "--exec" in rank and rank[-2:] == [command, "train.py"]


def test_the_server_has_the_ranks_variables(run_dir: RunDir) -> None:
    it = config(run_dir, program=["-m", "x"], ranks_per_node=2, launcher="torchrun", env={"MINE": "1"})
    base = {"PATH": "/bin", "PYTHONSAFEPATH": "1"}
    server = warm_environment(it, base)
    ranks = role_environment(it, base, {"TRAINMASTER_RUN": "r"})
    (only,) = build(it, Place("n", 0, 1, "h", 1), ranks, run_dir=run_dir.root, link=1, local_dir=run_dir.root)
    assert dict(only.env) == {**server, "TRAINMASTER_RUN": "r"}
    assert server["OMP_NUM_THREADS"] == "1" and server["MINE"] == "1"
    assert warm_environment(config(run_dir, argv=["x"]), {"OMP_NUM_THREADS": "5"})["OMP_NUM_THREADS"] == "5"


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
