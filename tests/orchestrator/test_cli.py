"""The command line: what it documents is what it does, and how it ends when something is wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import orchestrator.cli
from orchestrator.cli.common import EXIT_CODES
from orchestrator.cli.main import VERBS, app
from resiliency import errors

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "orchestrator"]


def tree(
    command: click.Command = app, path: tuple[str, ...] = (), parent: click.Context | None = None
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its path, the top one first."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, parent=parent, info_name=path[-1] if path else "x")
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, f"{name} is listed and cannot be loaded"
            yield from tree(found, (*path, name), context)


COMMANDS = dict(tree())
IDS = [" ".join(path) or "(top)" for path in COMMANDS]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TRAINMASTER_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}


def run(env: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *argv], env=env, text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL
    )


# --- what is documented ---------------------------------------------------------------------------


def section(path: tuple[str, ...]) -> str:
    """What docs/cli.md says about one command."""
    title = " ".join(["python -m orchestrator", *path])
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    found = re.search(rf"^#+ `{re.escape(title)}`$(.*?)(?=^#|\Z)", page, re.M | re.S)
    assert found, f"docs/cli.md has no section for {title}: run scripts/cli-docs"
    return found[1]


@pytest.mark.parametrize("path", COMMANDS, ids=IDS)
def test_every_verb_option_and_argument_is_in_the_docs(path: tuple[str, ...]) -> None:
    listed = re.findall(r"^\* `([^`]+)`: \S", section(path), re.M)
    words = {word.strip(",") for row in listed for word in row.split()}
    for param in COMMANDS[path].params:
        names = [*param.opts, *param.secondary_opts] if param.param_type_name == "option" else [param.metavar]
        assert words >= set(names), f"{names}: run scripts/cli-docs"


def test_the_docs_are_what_the_program_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "cli-docs"), "--check"], text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", COMMANDS, ids=IDS)
def test_help_explains_every_parameter_and_ends_with_an_example(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"])
    assert shown.exit_code == 0
    example = re.search(r"\n\n  (Example.*)\Z", shown.output, re.S)
    assert example, shown.output
    # The example is of this command, or of one below it.
    assert " ".join(["python -m orchestrator", *path]) in " ".join(example[1].split())
    for param in COMMANDS[path].params:
        about = param.help if isinstance(param, click.Option) else vars(param)["about"]
        assert about and about.rstrip().endswith("."), param.name
    assert CliRunner().invoke(app, [*path, "-h"]).output == shown.output


def test_the_table_of_verbs_says_what_each_verb_says_of_itself() -> None:
    said = {path[0]: (command.help or "").splitlines()[0] for path, command in tree() if len(path) == 1}
    assert said == VERBS


def test_no_verb_is_forgotten() -> None:
    modules = Path(orchestrator.cli.__file__).parent.glob("*.py")
    is_verb = re.compile(r"^(?:def command\(|command = )", re.M)
    assert {path.stem for path in modules if is_verb.search(path.read_text(encoding="utf-8"))} == set(VERBS)


def family(kind: type[errors.TrainmasterError]) -> Iterator[type[errors.TrainmasterError]]:
    yield kind
    for sub in kind.__subclasses__():
        yield from family(sub)


def test_the_exit_codes_in_the_docs_are_those_in_the_program() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", page, re.M))
    assert {int(code): meaning for code, meaning in rows.items()} == EXIT_CODES
    # A stage program's own are a contract with its supervisor (resiliency.exitcodes), not with a shell; they
    # are only known here when another test loaded them.
    own = [
        kind
        for kind in family(errors.TrainmasterError)
        if not kind.__module__.startswith(("models.", "resiliency.fence"))
    ]
    assert {kind.exit_code for kind in own} <= set(EXIT_CODES)


# --- a wrong command line -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["statsu"], "No such command 'statsu'. Did you mean 'status'?"),
        (["ledger", "rebiuld"], "No such command 'rebiuld'. Did you mean 'rebuild'?"),
        (["qqqq"], "No such command 'qqqq'."),
        (["--bogus"], "--bogus"),
        (["status", "--folow"], "--follow"),
        (["submit"], "Missing argument 'EXPERIMENT'"),
        (["logs", "--lines", "few"], "'--lines' / '-n'"),
        (["logs", "--lines", "-1"], "'--lines' / '-n'"),
        (["status", "one", "two"], "unexpected extra argument"),
        (["ledger", "export", "--format"], "--format"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_is_2_and_names_what_is_wrong(
    argv: list[str], says: str, env: dict[str, str]
) -> None:
    done = run(env, *argv)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("argv", [[], ["ledger"]], ids=["nothing", "ledger"])
def test_without_a_verb_the_help_is_shown_and_it_is_2(argv: list[str], env: dict[str, str]) -> None:
    done = run(env, *argv)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr == run(env, *argv, "--help").stdout


# --- how a command ends ---------------------------------------------------------------------------


def test_an_error_is_one_message_with_the_next_step_and_its_exit_code(env: dict[str, str]) -> None:
    done = run(env, "status", "nothing-like-it")
    assert done.returncode == errors.NotFound.exit_code
    assert re.fullmatch(r"error: no run 'nothing-like-it' .*\n  next: .*\n", done.stderr)
    assert done.stdout == ""


def test_every_fault_of_a_file_is_listed(env: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text("name: x\nstagse: {}\nsedd: 1\n")
    done = run(env, "validate", str(path))
    assert done.returncode == errors.SpecError.exit_code
    assert f"{path}:2: stagse" in done.stderr and f"{path}:3: sedd" in done.stderr


def test_an_unexpected_error_shows_where_and_no_values(env: dict[str, str]) -> None:
    code = (
        "import orchestrator.cli.version as version\n"
        "from orchestrator.cli.main import app\n"
        "def broken(name):\n"
        "    key = 'local' + '-variable'\n"
        # in pieces: from 3.13 on a traceback also shows the source that -c was given
        "    raise ValueError('token=' + ('hun' + 'ter22') * 2 + '\\nsecond line')\n"
        "version._installed = broken\n"
        "app(['version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "internal error: ValueError: token=[redacted]"
    assert "Traceback" in done.stderr and ", in broken" in done.stderr
    assert "local-variable" not in done.stderr and "hunter22" not in done.stderr
    assert done.stdout == ""


def test_ctrl_c_is_130(env: dict[str, str], tmp_path: Path) -> None:
    pipe = tmp_path / "exp.yaml"
    os.mkfifo(pipe)
    process = subprocess.Popen([*PROGRAM, "validate", str(pipe)], env=env, text=True, stderr=subprocess.PIPE)
    with pipe.open("w"):  # returns when the command has opened it, which then waits for what we write
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "interrupted\n"


@pytest.mark.parametrize("argv", [["schema"], ["clusters"]], ids=["plain", "table"])
def test_a_reader_that_has_seen_enough_is_no_error(argv: list[str], env: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*PROGRAM, *argv], env=env, stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b""


# --- cold start -----------------------------------------------------------------------------------


def loaded(env: dict[str, str], *argv: str) -> set[str]:
    """Modules that a command has loaded by its end."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('\\n'.join(sys.modules), file=sys.stderr))\n"
        "from orchestrator.cli.main import app\n"
        "app(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], env=env, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines())


def test_help_loads_no_verb(env: dict[str, str]) -> None:
    modules = loaded(env, "--help")
    assert "orchestrator.cli.commands" in modules
    assert modules & {f"orchestrator.cli.{name}" for name in VERBS} == set()


def test_a_verb_loads_no_other_verb(env: dict[str, str]) -> None:
    modules = loaded(env, "status")
    assert modules & {f"orchestrator.cli.{name}" for name in VERBS} == {"orchestrator.cli.status"}


def test_status_loads_only_what_it_shows(env: dict[str, str]) -> None:
    late = {"pydantic", "omegaconf", "yaml", "jinja2", "sqlite3", "rich", "typer", "orchestrator.control"}
    assert loaded(env, "status") & late == set()
    Path(env["TRAINMASTER_HOME"]).mkdir()
    from metrics.ledger import Ledger

    Ledger.open(Path(env["TRAINMASTER_HOME"]) / "ledger.db").close()
    modules = loaded(env, "status")
    assert "sqlite3" in modules
    assert modules & (late - {"sqlite3"} | {"metrics.ledger.ingest", "resiliency.state"}) == set()
