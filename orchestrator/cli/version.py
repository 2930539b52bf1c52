"""``version``: what is installed."""

from __future__ import annotations

import platform

from .. import __version__
from .commands import verb
from .common import emit, say
from .options import json_option

_PACKAGES = (
    "torch",
    "megatron-core",
    "nvidia-resiliency-ext",
    "transformer-engine",
    "submitit",
    "sqlite-utils",
)


def _installed(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@verb("Example: python -m orchestrator version --json")
@json_option
def command(json: bool) -> None:
    """Print the version of Trainmaster, Python and the packages it drives."""
    data = {"trainmaster": __version__, "python": platform.python_version()}
    data |= {name: _installed(name) or "not installed" for name in _PACKAGES}
    if json:
        emit(data)
        return
    for name, value in data.items():
        say(f"{name:24}{value}")
