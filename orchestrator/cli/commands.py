"""What click does not do by itself: arguments that explain themselves, groups that load a verb when it runs.

Written against click 8.1 and later, and so relies on none of what later versions added (help of
arguments, ``NoSuchCommand``). ``tests/orchestrator/test_cli.py``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import click

from .common import errors_shown


class Argument(click.Argument):
    """An argument with a line of its own in ``--help``. ``kind`` is shown as options show their metavar."""

    def __init__(self, *declarations: Any, about: str, kind: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.about = about
        self.kind = kind

    def make_metavar(self, *_context: click.Context) -> str:
        name = f"{{{self.human_readable_name}}}" if self.required else f"[{self.human_readable_name}]"
        return name + ("..." if self.nargs != 1 else "")

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{self.human_readable_name}'"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        about = f"{self.about}  [required]" if self.required else self.about
        return f"{self.human_readable_name} {self.kind}", about


class Verb(click.Command):
    """A command whose help lists arguments before options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, kind in (("Arguments", click.Argument), ("Options", click.Option)):
            params = [param for param in self.get_params(ctx) if isinstance(param, kind)]
            rows = [row for param in params if (row := param.get_help_record(ctx))]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def verb(example: str) -> Callable[[Callable[..., None]], Verb]:
    """Make a function a verb; ``example`` ends its help."""
    return click.command(cls=Verb, epilog=example)


def argument(name: str, *, kind: str, about: str, **attributes: Any) -> Callable[[Any], Any]:
    """A positional argument of a verb."""
    return click.argument(name, cls=Argument, kind=kind, about=about, **attributes)


class Group(click.Group):
    """A group that says what it can do when it gets no verb, and names the nearest for a wrong one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of a story, not of the alphabet

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, known, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """The top of the command line: verbs are modules of a package, each with a ``command``.

    ``verbs``: name → first line of its help. Only the verb that is asked for is imported.
    """

    def __init__(self, *, package: str, verbs: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.package = package
        self.verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        found: click.Command = importlib.import_module(f"{self.package}.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        room = formatter.width - 6 - max(map(len, self.verbs))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, _short(about, room)) for name, about in self.verbs.items()],
            )

    def invoke(self, ctx: click.Context) -> Any:
        with errors_shown():
            return super().invoke(ctx)


def _short(about: str, room: int) -> str:
    """As click shortens the help of a command that is loaded."""
    return click.Command(name=None, help=about).get_short_help_str(room)
