"""``init``: write a starter experiment."""

from __future__ import annotations

from pathlib import Path

import click

from .commands import argument, verb
from .common import say


def starters() -> dict[str, str]:
    """Name → first comment line of each starter experiment shipped in ``templates/experiments``."""
    from importlib import resources

    found = {}
    for item in sorted(resources.files("templates").joinpath("experiments").iterdir(), key=lambda i: i.name):
        if item.name.endswith(".yaml"):
            first = item.read_text(encoding="utf-8").splitlines()[0]
            found[item.name.removesuffix(".yaml")] = first.lstrip("# ").strip()
    return found


@verb("Example: python -m orchestrator init quickstart my-experiment.yaml")
@argument("starter", metavar="STARTER", kind="<str>", required=False, about="Which one; none: list them.")
@argument(
    "output",
    metavar="FILE",
    kind="<path>",
    type=Path,
    required=False,
    about="Default: STARTER.yaml here.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(starter: str | None, output: Path | None, force: bool) -> None:
    """Write a starter experiment to edit; without a name, list what there is."""
    from importlib import resources

    from resiliency import durable
    from resiliency.errors import NotFound, StorageError

    known = starters()
    if starter is None:
        for name, about in known.items():
            say(f"{name:16}{about}")
        say("\nwrite one with: python -m orchestrator init NAME [FILE]")
        return
    if starter not in known:
        raise NotFound(f"no starter {starter!r}", hint=f"one of: {', '.join(known)}")
    text = (
        resources.files("templates")
        .joinpath("experiments")
        .joinpath(f"{starter}.yaml")
        .read_text(encoding="utf-8")
    )
    target = output or Path(f"{starter}.yaml")
    if force:
        durable.write_atomic(target, text, mode=0o644)
    elif not durable.create_exclusive(target.absolute(), text, mode=0o644):
        raise StorageError(f"{target} exists", hint="give another name, or --force to replace it")
    say(f"wrote {target}; next: python -m orchestrator plan {target}")
