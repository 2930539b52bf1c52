"""How a role gets into a container: srun options (pyxis) or words before its command (Apptainer).

Pure: words in, words out, nothing is quoted since nothing goes through a shell. Takes the
``container`` of stage.json as it is. ``tests/launch/test_container.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from resiliency.errors import SpecError

PYXIS: Final = "pyxis"
APPTAINER: Final = "apptainer"


def container_srun_args(
    container: Mapping[str, Any] | None,
    *,
    workdir: str | None = None,
    env_names: Sequence[str] = (),
) -> list[str]:
    """Options of the srun that starts the role; none unless the runtime is pyxis.

    ``workdir``: where the role starts (else the image's own). ``env_names``: variables that win
    over the image's of the same name; the others reach the role anyway, where the image has none.
    """
    if container is None or _runtime(container) != PYXIS:
        return []
    words = [f"--container-image={_image(container)}"]
    mounts = [":".join(part for part in mount if part) for mount in _mounts(container)]
    if mounts:
        words.append(f"--container-mounts={','.join(mounts)}")
    if workdir is not None:
        words.append(f"--container-workdir={workdir}")
    if env_names:
        words.append(f"--container-env={','.join(env_names)}")
    return [*words, *map(str, container.get("extra_args", ()))]


def container_wrap(
    container: Mapping[str, Any] | None,
    argv: Sequence[str],
    *,
    workdir: str | None = None,
    gpus: bool = False,
) -> list[str]:
    """The command of the role; the same words again unless the runtime is Apptainer.

    ``gpus``: whether the role uses NVIDIA GPUs (``--nv``).
    """
    if container is None or _runtime(container) != APPTAINER:
        return list(argv)
    words = ["apptainer", "exec"]
    if gpus:
        words.append("--nv")
    for mount in _mounts(container):
        words += ["--bind", ":".join(part for part in mount if part)]
    if workdir is not None:
        words += ["--pwd", workdir]
    # Apptainer takes nothing behind the image for an option of its own
    return [*words, *map(str, container.get("extra_args", ())), _image(container), *argv]


def _runtime(container: Mapping[str, Any]) -> str:
    runtime = str(container.get("runtime", ""))
    if runtime not in (PYXIS, APPTAINER):
        raise SpecError(f"container: {runtime!r} is no runtime", hint=f"use {PYXIS} or {APPTAINER}")
    return runtime


def _image(container: Mapping[str, Any]) -> str:
    image = str(container.get("image", ""))
    if not image or image.startswith("-"):
        raise SpecError(
            f"container: {image!r} is no image",
            hint="a path (./image.sqsh, image.sif) or a reference such as docker://ubuntu",
        )
    return image


def _mounts(container: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """``src:dst[:flags]`` as three parts. Neither runtime has a way to quote "," or ":"."""
    mounts = []
    for mount in map(str, container.get("mounts", ())):
        source, _, rest = mount.partition(":")
        target, _, flags = rest.partition(":")
        if not source or not target or "," in mount or ":" in flags:
            raise SpecError(
                f"container: the mount {mount!r} is not src:dst or src:dst:ro",
                hint="paths with a comma or colon cannot be mounted; link them from elsewhere",
            )
        mounts.append((source, target, flags))
    return mounts
