"""What the model tests share: a small dataset of real text."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from tests.models.programs import Program


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few small files of real text: modules of the standard library."""
    library = Path(sysconfig.get_paths()["stdlib"])
    directory = tmp_path_factory.mktemp("corpus")
    names = ["bisect", "heapq", "fnmatch", "glob", "shlex", "textwrap", "queue", "sched", "stat"]
    names += ["colorsys", "copy", "string", "struct", "token", "types", "warnings", "weakref"]
    for name in names:
        (directory / f"{name}.py").write_text((library / f"{name}.py").read_text(encoding="utf-8"))
    return directory


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """The artifact of a text stage over ``corpus``."""
    program = Program(
        "prepare_text",
        tmp_path_factory.mktemp("text"),
        {"kind": "text", "inputs": str(corpus), "vocab_size": 320, "split": {"valid": 0.1, "test": 0.1}},
        {},
    )
    done = program.run()
    assert done.returncode == 0, done.stderr
    return program.artifact
