"""sbatch scripts: golden files, shellcheck, what is refused, and hostile values run by a real bash."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from orchestrator.schedulers.base import Container, JobSpec
from orchestrator.schedulers.render import render
from resiliency.errors import SpecError

GOLDEN = Path(__file__).parent / "golden"
TOKEN = "demo-20260131-120000-0a1b.pretrain.003"
MINIMAL = JobSpec(
    token=TOKEN,
    argv=("/opt/py/bin/python3", "-m", "orchestrator.segment"),
    chdir=Path("/scratch/runs/demo"),
    output=Path("/scratch/runs/demo/link-003.log"),
)
FULL = dataclasses.replace(
    MINIMAL,
    argv=("/opt/py/bin/python3", "-m", "orchestrator.segment", "--note", "it's $HOME; `id`"),
    chdir=Path("/scratch/my runs/100%"),
    output=Path("/scratch/my runs/100%/link #3.log"),
    nodes=4,
    time_limit_s=4 * 3600 + 90,
    signal_lead_s=120,
    cpus_per_node=32,
    gpus_per_node=8,
    mem_per_node="480G",
    partition="train",
    account="robots",
    qos="high",
    constraint="[rack1|rack2]&nvme",
    reservation="maint",
    exclude=("a1", "a[7-9]"),
    nodelist=("a2", "a3"),
    exclusive=True,
    requeue=True,
    modules=("cuda/12.4", "nccl"),
    setup=("ulimit -l unlimited", 'export SCRATCH="/local/$SLURM_JOB_ID"'),
    env={"OMP_NUM_THREADS": "4", "NOTE": 'two\nlines and "quotes"', "EMPTY": ""},
    extra_directives=("--licenses=sim:2", "--overcommit", '--mail-user=a b"c'),
    about="pre-training of the tiny model",
)
JOBS = {
    "minimal": MINIMAL,
    "full": FULL,
    "pyxis": dataclasses.replace(
        MINIMAL,
        container=Container("pyxis", "images.example#team/pytorch:25.01", ("/data:/data:ro",)),
    ),
    "apptainer": dataclasses.replace(MINIMAL, container=Container("apptainer", "/images/t.sif")),
    "site": dataclasses.replace(MINIMAL, setup=("umask 007",), partition="train"),
}
SITE = GOLDEN / "site-templates"


def script(name: str) -> str:
    return render(JOBS[name], template_dir=SITE if name == "site" else None)


@pytest.mark.parametrize("name", JOBS)
def test_golden(name: str) -> None:
    """On purpose changed? UPDATE_GOLDEN=1 writes the files anew; read the diff."""
    path = GOLDEN / f"{name}.sbatch"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(script(name))
    assert script(name) == path.read_text()


@pytest.mark.parametrize("name", JOBS)
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    path = tmp_path / "job.sbatch"
    path.write_text(script(name))
    # SC2016 notes that a literal "$" in single quotes stays one, which is the point
    done = subprocess.run(["shellcheck", "--exclude=SC2016", str(path)], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""


def test_a_site_template_replaces_one_file_and_keeps_the_rest() -> None:
    text = script("site")
    assert "# Provided by the site" in text
    assert f"#SBATCH --job-name={TOKEN}" in text


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ job.token }}", "printed without a filter"),
        ("{{ job.argv | join(' ') }}", "printed without a filter"),
        ("{{ job.tokn | sh }}", "tokn"),
        ("{% set x = job.token ~ '' %}{{ x }}", "printed without a filter"),
        ("{{ (job.token | sh) ~ job.token }}", "printed without a filter"),
        ("{% if %}", "job.sbatch.j2, line 1"),
        ("{{ none | directive }}", "no text"),
    ],
)
def test_a_template_cannot_print_what_no_filter_made_safe(template: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "job.sbatch.j2").write_text(template)
    with pytest.raises(SpecError, match=says):
        render(MINIMAL, template_dir=tmp_path)


def test_a_missing_template_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="gone"):
        render(MINIMAL, template_dir=tmp_path / "gone")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"partition": "a\n#SBATCH --uid=0"}, "line break"),
        ({"account": "a\0"}, "control character"),
        ({"chdir": Path("/a\nb")}, "line break"),
        ({"output": Path("/a\\b")}, "backslash"),
        ({"chdir": Path("-")}, "absolute"),
        ({"chdir": Path("/\udcff")}, "UTF-8"),
        ({"argv": ("a", "\udcff")}, "UTF-8"),
        ({"argv": ("a", "b\0c")}, "NUL"),
        ({"argv": ()}, "no command"),
        ({"env": {"A B": "x"}}, "not the name"),
        ({"env": {"A=$(id)": "x"}}, "not the name"),
        ({"env": {"UID": "0"}}, "belongs to bash"),
        ({"token": "$(id)"}, "not the token"),
        ({"extra_directives": ("--array=1-9",)}, "set by Trainmaster"),
        ({"extra_directives": ("--wrap=id",)}, "set by Trainmaster"),
        ({"extra_directives": ("-p x",)}, "long option"),
        ({"extra_directives": ("--a=b\n#SBATCH --uid=0",)}, "long option"),
        ({"extra_directives": ("--licenses --uid=0",)}, "long option"),
    ],
)
def test_refused(change: dict, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        render(dataclasses.replace(MINIMAL, **change))


DUMP = "import json,os,sys;json.dump([sys.argv[1:],dict(os.environ),os.getcwd()],sys.stdout)"
#: Any text a file system, argument or variable can hold: everything but NUL and lone surrogates.
ANY = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=30)
NASTY = st.sampled_from(
    ["'; id; '", '"', "$(id)", "`id`", "a\nb", "\\", "\\'", "-n", "--", "!!", "#", "{{ 1 }}", "~",
     "*", "{% raw %}", "\r\n", "é", "\u2028", "$'\\x41'", "EOF", "&", "|", "\t", "%j", "", " "]
)  # fmt: skip
WORDS = st.one_of(ANY, NASTY, st.tuples(NASTY, ANY).map("".join))
NAMES = st.from_regex(r"T_[A-Za-z0-9_]{0,8}", fullmatch=True)
#: Folder names: no "/", and what #SBATCH lines refuse is refused (test_refused).
FOLDERS = WORDS.map(lambda s: "".join(c for c in s if c >= " " and c not in "/\x7f\\")[:40].strip(".") or "x")


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example is a process: no shrinking
)
@given(
    argv=st.lists(WORDS, max_size=4), env=st.dictionaries(NAMES, WORDS, max_size=4),
    folder=FOLDERS, about=WORDS,
)  # fmt: skip
@example(argv=["'$(touch ../broke-out)'"], env={"T_A": "x\n#SBATCH --uid=0\n"}, folder="-", about="\nid")
def test_hostile_values_reach_the_program_as_they_are_and_nothing_else_runs(
    tmp_path: Path, argv: list[str], env: dict[str, str], folder: str, about: str
) -> None:
    chdir = tmp_path / "folders" / folder
    chdir.mkdir(parents=True, exist_ok=True)
    job = dataclasses.replace(
        MINIMAL,
        argv=(sys.executable, "-I", "-S", "-c", DUMP, *argv),
        chdir=chdir,
        output=chdir / "log",
        env=env,
        about=about,
    )
    path = tmp_path / "job.sbatch"
    path.write_text(render(job))
    outer = {"PATH": "/usr/bin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", str(path)], env=outer, capture_output=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    got_argv, got_env, got_cwd = json.loads(done.stdout)
    assert got_argv == argv
    assert {name: got_env.get(name) for name in env} == env
    assert set(got_env) - set(env) <= {*outer, "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}
    assert got_cwd == str(chdir.resolve())
    assert {path.name for path in tmp_path.iterdir()} == {"folders", "job.sbatch"}


@settings(max_examples=80, deadline=None)
@given(value=WORDS)
def test_a_value_stays_on_its_sbatch_line(value: str) -> None:
    """Read back as sbatch does: split at blanks outside quotes, stop at #, unescape in quotes."""
    try:
        text = render(dataclasses.replace(MINIMAL, reservation=value))
    except SpecError:
        assert any(c < " " or c == "\x7f" for c in value)
        return
    lines = [line for line in text.split("\n") if line.startswith("#SBATCH --reservation=")]
    assert [as_sbatch_reads(line) for line in lines] == [["--reservation=" + value]]
    others = [line for line in text.split("\n") if line.startswith("#SBATCH")]
    assert len(others) == len([x for x in render(MINIMAL).split("\n") if "#SBATCH" in x]) + 1


def as_sbatch_reads(line: str) -> list[str]:
    """The words of an #SBATCH line, after sbatch's _get_next_opt."""
    words, word, quote, started = [], "", "", False
    rest = iter(line.removeprefix("#SBATCH"))
    for char in rest:
        if char == "\\":
            word, started = word + next(rest, ""), True
        elif quote:
            quote, word = ("", word) if char == quote else (quote, word + char)
        elif char in "\"'":
            quote, started = char, True
        elif char == "#":
            break
        elif char in " \t":
            words, word, started = ([*words, word], "", False) if started else (words, "", False)
        else:
            word, started = word + char, True
    return [*words, word] if started else words


def test_cd_to_a_folder_that_is_gone_stops_before_the_program_starts(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text(render(dataclasses.replace(MINIMAL, chdir=tmp_path / "gone")))
    done = subprocess.run(["bash", str(path)], capture_output=True, text=True)
    assert done.returncode == 76
    assert "gone" in done.stderr


def test_a_module_that_does_not_load_stops_before_the_program_starts(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text(render(dataclasses.replace(MINIMAL, chdir=tmp_path, modules=("no/such",))))
    bash = ["bash", "-c", f"module() {{ echo module $*; false; }}; export -f module; exec bash {path}"]
    done = subprocess.run(bash, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (76, "module load no/such\n")
