"""sbatch scripts from the Jinja2 templates in ``templates/sbatch`` or a site's own folder.

Nothing a user writes can break out of its quotes: a template may print a value only through one of
the filters here, and a value that came by no filter is an error, not text (``finalize``).
``tests/orchestrator/test_slurm_render.py`` (golden files, shellcheck, hostile values run by bash).
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from resiliency import contract
from resiliency.errors import SpecError

from .base import JobSpec
from .slurm.fields import time_limit

if TYPE_CHECKING:
    from jinja2 import Environment

SHIPPED: Final = Path(__file__).resolve().parents[2] / "templates" / "sbatch"
TEMPLATE: Final = "job.sbatch.j2"

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: What needs no quotes on an #SBATCH line. Slurm splits the line at blanks, ends it at "#", and
#: within double quotes takes a backslash as an escape; nothing is expanded (22.05 and 24.11).
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=,@%+^~&|*()\[\]{}<>!?;$`-]+")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: bash keeps these itself: exporting them fails, or the value does not reach the program.
_BASH_OWNS: Final = frozenset(
    {
        "_",
        "BASHOPTS",
        "BASHPID",
        "BASH_ALIASES",
        "BASH_ARGC",
        "BASH_ARGV",
        "BASH_ARGV0",
        "BASH_CMDS",
        "BASH_COMMAND",
        "BASH_LINENO",
        "BASH_SOURCE",
        "BASH_SUBSHELL",
        "BASH_VERSINFO",
        "COMP_WORDBREAKS",
        "DIRSTACK",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "HISTCMD",
        "LINENO",
        "OPTIND",
        "PPID",
        "PWD",
        "OLDPWD",
        "RANDOM",
        "SECONDS",
        "SHELLOPTS",
        "SHLVL",
        "SRANDOM",
        "UID",
    }
)
_OPTION: Final = re.compile(r"(--[a-z][a-z0-9-]*)(?:=(.+))?")
#: Options the product sets and relies on; a profile that repeated one would break a promise
#: (--array would start a link twice, --wait would block, --comment would lose the job).
_RESERVED: Final = frozenset(
    {
        "--array",
        "--comment",
        "--chdir",
        "--clusters",
        "--dependency",
        "--error",
        "--export",
        "--help",
        "--hold",
        "--input",
        "--job-name",
        "--kill-on-invalid-dep",
        "--no-kill",
        "--no-requeue",
        "--nodes",
        "--ntasks",
        "--ntasks-per-node",
        "--open-mode",
        "--output",
        "--parsable",
        "--quiet",
        "--requeue",
        "--signal",
        "--test-only",
        "--time",
        "--usage",
        "--version",
        "--wait",
        "--wrap",
    }
)


class Checked(str):
    """Text that one of the filters has made safe where it stands."""

    __slots__ = ()


def render(job: JobSpec, *, template: str = TEMPLATE, template_dir: Path | None = None) -> str:
    """The script of a job. Raises SpecError for a value that cannot be written safely.

    ``template_dir``: a site's folder; its templates replace those shipped, file by file.
    """
    from jinja2 import TemplateError, TemplateSyntaxError

    parsed = contract.parse_token(job.token)
    if parsed is None:
        raise SpecError(f"{job.token!r} is not the token of a link")
    run, stage, link = parsed
    for name in job.env:
        _check_variable(name)
    for path in (job.chdir, job.output):
        if not path.is_absolute():
            raise SpecError(f"{job.token}: {path} must be an absolute path")
    if not job.argv:
        raise SpecError(f"{job.token}: there is no command to run")
    values = {
        "job": job,
        "run": run,
        "stage": stage,
        "link": link,
        "comment": contract.COMMENT_PREFIX + job.token,
        "time": time_limit(job.time_limit_s) if job.time_limit_s is not None else None,
        "signal": f"B:USR2@{job.signal_lead_s}" if job.signal_lead_s is not None else None,
        "extra": [_extra(option) for option in job.extra_directives],
    }
    where = template_dir or SHIPPED
    try:
        text = _environment(template_dir).get_template(template).render(values)
    except TemplateError as error:
        at = ""
        if isinstance(error, TemplateSyntaxError):
            at = f" ({error.name}, line {error.lineno})"
        raise SpecError(
            f"the sbatch template in {where} cannot be used{at}: {error}",
            hint="every value needs a filter (sh, directive, pattern, remark or site);"
            " compare with the shipped templates/sbatch",
        ) from error
    return text


@functools.lru_cache(maxsize=4)  # compiling takes 30 times as long as rendering
def _environment(template_dir: Path | None) -> Environment:
    import jinja2

    if template_dir is not None and not template_dir.is_dir():
        raise SpecError(
            f"the template folder {template_dir} does not exist",
            hint="correct `template_dir` in clusters.yaml, or take it out",
        )
    folders = [SHIPPED] if template_dir is None else [template_dir, SHIPPED]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters.update(sh=quoted, directive=directive, pattern=pattern, remark=remark, site=site)
    return environment


def _finalize(value: Any) -> Any:
    import jinja2

    if isinstance(value, Checked):
        return value
    if isinstance(value, jinja2.Undefined):
        raise jinja2.UndefinedError(f"{value._undefined_name} is not defined")
    raise jinja2.TemplateRuntimeError(f"{value!r} is printed without a filter")


def quoted(value: object) -> Checked:
    """One word of the shell, whatever it holds."""
    text = _text(value)
    if "\0" in text:
        raise SpecError(f"{text!r} holds a NUL character, which no program can be given")
    return Checked(shlex.quote(text))


def directive(value: object) -> Checked:
    """The value of an option on an #SBATCH line, in double quotes where needed."""
    text = _text(value)
    if _CONTROL.search(text):
        raise SpecError(
            f"{text!r} cannot stand on an #SBATCH line: it holds a line break or control character",
            hint="choose a name or path without it",
        )
    if _PLAIN.fullmatch(text):
        return Checked(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return Checked(f'"{escaped}"')


def pattern(value: object) -> Checked:
    """A path for ``--output``: as :func:`directive`, and Slurm leaves each ``%`` as it is."""
    text = _text(value)
    if "\\" in text:
        # In a file name pattern a backslash turns replacement off, and is itself lost.
        raise SpecError(
            f"{text!r} cannot be a log file of Slurm's: it holds a backslash",
            hint="choose a runs directory without it",
        )
    return directive(text.replace("%", "%%"))


def remark(value: object) -> Checked:
    """Text in a comment: one line, whatever it holds."""
    text = str(value).encode(errors="replace").decode()
    return Checked(" ".join(_CONTROL.sub(" ", text).split()))


def site(value: object) -> Checked:
    """A line of the site's own shell code, as it is. Never for anything from an experiment."""
    return Checked(_text(value))


def _text(value: object) -> str:
    text = str(value)  # first: it makes an undefined value say its name
    if not isinstance(value, (str, int, Path)) or isinstance(value, bool):
        raise SpecError(f"{value!r} is no text or number that a script could hold")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{text!r} is not valid UTF-8", hint="choose a name or path that is") from error
    return text


def _check_variable(name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise SpecError(f"env: {name!r} is not the name of an environment variable")
    if name in _BASH_OWNS:
        raise SpecError(f"env: {name} belongs to bash and cannot be set for a program")


def _extra(option: str) -> Mapping[str, str | None]:
    match = _OPTION.fullmatch(option)
    if not match:
        raise SpecError(
            f"extra_directives: {option!r} is not a long option of sbatch",
            hint="write it as --name or --name=value",
        )
    if match[1] in _RESERVED:
        raise SpecError(
            f"extra_directives: {match[1]} is set by Trainmaster itself",
            hint="use the experiment's or profile's own key for it",
        )
    return {"name": match[1], "value": match[2]}
