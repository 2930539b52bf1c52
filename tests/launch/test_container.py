"""The words that put a role into a container, for both runtimes."""

from __future__ import annotations

import pytest

from launch.container import container_srun_args, container_wrap
from resiliency.errors import SpecError

PYXIS = {
    "runtime": "pyxis",
    "image": "images.example#team/pytorch:25.01",
    "mounts": ["/data:/data:ro", "/s:/t"],
}
APPTAINER = {
    "runtime": "apptainer",
    "image": "/img/x.sif",
    "mounts": ["/data:/d:ro"],
    "extra_args": ["--cleanenv"],
}


def test_without_a_container_the_command_is_left_alone() -> None:
    assert container_srun_args(None) == []
    assert container_wrap(None, ["a", "b c"]) == ["a", "b c"]


def test_pyxis_is_a_matter_of_srun() -> None:
    assert container_srun_args(PYXIS, workdir="/w d", env_names=["A", "B"]) == [
        "--container-image=images.example#team/pytorch:25.01",
        "--container-mounts=/data:/data:ro,/s:/t",
        "--container-workdir=/w d",
        "--container-env=A,B",
    ]
    assert container_srun_args({**PYXIS, "mounts": [], "extra_args": ["--container-writable"]}) == [
        "--container-image=images.example#team/pytorch:25.01",
        "--container-writable",
    ]
    assert container_wrap(PYXIS, ["a"]) == ["a"]


def test_apptainer_is_a_matter_of_the_command() -> None:
    assert container_srun_args(APPTAINER) == []
    words = container_wrap(APPTAINER, ["-x", "b c"], workdir="/w", gpus=True)
    assert words == [
        "apptainer", "exec", "--nv", "--bind", "/data:/d:ro", "--pwd", "/w", "--cleanenv",
        "/img/x.sif", "-x", "b c",
    ]  # fmt: skip
    assert "--nv" not in container_wrap(APPTAINER, ["a"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"runtime": "docker"}, "docker"),
        ({"image": ""}, "no image"),
        ({"image": "--x"}, "no image"),
        ({"mounts": ["/only"]}, "/only"),
        ({"mounts": ["/a,b:/c"]}, "comma"),
        ({"mounts": ["/a:/b:ro:x"]}, "/a:/b:ro:x"),
        ({"mounts": [":/b"]}, "src:dst"),
    ],
)
def test_what_neither_runtime_could_take_is_refused(change: dict, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        container_srun_args({**PYXIS, **change})
    if "runtime" not in change:
        with pytest.raises(SpecError, match=says):
            container_wrap({**APPTAINER, **change}, ["a"])
