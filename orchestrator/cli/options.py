"""Options and arguments that several verbs have, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path

import click

from .commands import argument

home_option = click.option(
    "--home",
    type=Path,
    metavar="<path>",
    envvar="TRAINMASTER_HOME",
    show_envvar=True,
    show_default="~/.trainmaster",
    help="Where the ledger and cluster profiles are.",
)
json_option = click.option("--json", is_flag=True, help="Print JSON for scripts.")
run_argument = argument(
    "run",
    metavar="RUN",
    kind="<str>",
    required=False,
    about="Run id, a prefix of it, or its directory; default: the newest.",
)
experiment_argument = argument(
    "experiment", metavar="EXPERIMENT", kind="<path>", type=Path, about="The experiment file (YAML)."
)
overrides_argument = argument(
    "overrides",
    metavar="KEY=VALUE",
    kind="<list[str]>",
    nargs=-1,
    about="Overrides such as stages.pretrain.train.lr=1e-4.",
)
cluster_option = click.option(
    "--cluster", "-c", metavar="<str>", help="Cluster profile, instead of the file's `cluster`."
)
offline_option = click.option("--offline", is_flag=True, help="Do not ask the scheduler about its limits.")
