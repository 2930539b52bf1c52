"""House rules that no linter knows: size, docstrings, links, dependencies, floors, the wheel."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")  # mypy brings it

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("orchestrator", "launch", "models", "metrics", "resiliency", "templates")
LIGHT = ("orchestrator", "launch", "metrics", "resiliency")
HEAVY = ("torch", "megatron", "nvidia_resiliency_ext", "transformer_engine", "numpy", "tokenizers")
MAX_LINES = 400
pytestmark = pytest.mark.xdist_group("house")


def tracked() -> list[Path]:
    """What is committed, or would be by `git add .`."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    out = subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return sorted(ROOT / name for name in out.split("\0") if name and (ROOT / name).is_file())


def texts() -> list[tuple[str, str]]:
    """(path from the root, contents) of all text files."""
    found = []
    for path in tracked():
        try:
            found.append((str(path.relative_to(ROOT)), path.read_text()))
        except UnicodeDecodeError:
            continue
    return found


def modules() -> list[tuple[str, str]]:
    """All product modules: the packages and the scripts written in Python."""
    return [
        (name, text)
        for name, text in texts()
        if not name.startswith("tests/")
        and (name.endswith(".py") or (name.startswith("scripts/") and "python3" in text[:30]))
    ]


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# --- size and shape -------------------------------------------------------------------------------


def test_no_module_is_over_the_limit() -> None:
    sizes = {name: text.count("\n") for name, text in modules()}
    assert len(sizes) > 50
    assert {name: n for name, n in sizes.items() if n > MAX_LINES} == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [name for name, text in modules() if not ast.get_docstring(ast.parse(text))]
    assert silent == []


def test_nothing_names_one_machines_paths_or_a_package_registry() -> None:
    """Split here, so that this file does not name them either."""
    hosts = ["py" + "pi.org", "python" + "hosted.org", "registry." + "npmjs", "deb." + "debian.org"]
    hosts += ["download." + "pytorch.org", "conda." + "anaconda.org"]
    paths = ["/" + "work/", "/" + "root/", str(ROOT) + "/", str(Path.home()) + "/"]
    pattern = re.compile(
        "|".join([*map(re.escape, hosts), *(rf"(?<![\w.~}}-]){re.escape(p)}" for p in paths)])
    )
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


# --- documents ------------------------------------------------------------------------------------


def test_relative_links_lead_somewhere() -> None:
    broken = []
    for name, text in texts():
        if not name.endswith(".md"):
            continue
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.S)):
            if re.match(r"[a-z]+:|#", target):
                continue
            if not (ROOT / name).parent.joinpath(target.split("#")[0]).exists():
                broken.append(f"{name}: {target}")
    assert broken == []


def test_every_dependency_has_a_row_with_licence_and_reason() -> None:
    needs = list(project()["dependencies"])
    for extra in project()["optional-dependencies"].values():
        needs += extra
    named = {re.match(r"[\w.-]+", need)[0].lower() for need in needs}
    rows = {}
    for line in (ROOT / "docs/dependencies.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and all(cells):
            rows[cells[0].lower()] = cells
    assert named - set(rows) == set()
    stale = set(rows) - named - {"package"}
    assert {name for name in stale if not set(name) <= set("-")} == set(), "row without package"


def test_ci_runs_the_readmes_test_command() -> None:
    shell = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    commands = [line.split("#")[0].strip() for block in shell for line in block.splitlines()]
    tests = [command for command in commands if "test" in command.split()]
    assert tests == ["make test"]
    last = (ROOT / ".ci/run").read_text().rstrip().splitlines()[-1]
    assert last == tests[0]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_make_lists_every_target_that_the_readme_names() -> None:
    out = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    listed = dict(re.findall(r"^  make (\S+) +(\S.*)$", out.stdout, flags=re.M))
    named = set(re.findall(r"`?\bmake ([a-z]+)`?(?:\s{2,}#|`)", (ROOT / "README.md").read_text()))
    assert named and named <= set(listed)
    assert set(listed) == {"help", "setup", "demo", "test", "lint", "bench", "score", "chaos", "clean"}


# --- what a login node loads ----------------------------------------------------------------------


def loaded_after(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `code`."""
    code += "\nimport sys; print('\\n'.join(sorted({m.partition('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return set(done.stdout.split())


def import_all(package: str) -> str:
    """Code that imports every module of a package."""
    names = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name, _ in modules()
        if name.startswith(f"{package}/") and not name.endswith("__main__.py")
    ]
    assert names
    return "\n".join(f"import {name}" for name in names)


@pytest.mark.parametrize("package", LIGHT)
def test_no_module_of_a_light_package_loads_anything_heavy(package: str) -> None:
    assert loaded_after(import_all(package)) & set(HEAVY) == set()


def test_starting_the_command_line_loads_no_schema_templates_or_database() -> None:
    loaded = loaded_after("import orchestrator.cli.main")
    late = {"pydantic", "omegaconf", "jinja2", "sqlite_utils", "submitit", "yaml"}
    assert loaded & (late | set(HEAVY)) == set()


@pytest.mark.parametrize("package", ["launch", "resiliency"])
def test_the_allocation_side_needs_no_package_at_all(package: str) -> None:
    """A compute node's Python may be bare, and a supervisor on each of 512 nodes reads every
    package it imports from the shared file system at once."""
    loaded = loaded_after(import_all(package))
    third_party = {"pydantic", "omegaconf", "typer", "rich", "yaml", "jinja2", "psutil", "click"}
    assert loaded & (third_party | {"submitit", "sqlite_utils", "sqlite3"}) == set()


def test_the_base_installation_brings_no_torch() -> None:
    base = {re.match(r"[\w.-]+", need)[0].lower() for need in project()["dependencies"]}
    assert base & {"torch", "megatron-core", "numpy", "nvidia-resiliency-ext", "tokenizers"} == set()


def test_transformer_engine_is_in_no_other_extra() -> None:
    for extra, needs in project()["optional-dependencies"].items():
        assert extra == "te" or "transformer" not in " ".join(needs)


# --- the wheel ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what is tracked, so that nothing lying about gets in."""
    source = tmp_path_factory.mktemp("source")
    for path in tracked():
        target = source / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    made = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*argv, "--wheel-dir", str(made), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = made.glob("*.whl")
    return found


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    inside = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    names = [path.relative_to(ROOT) for path in tracked()]
    assert inside == {str(n) for n in names if n.parts[0] in PACKAGES}
    assert any(name.endswith(".yaml") for name in inside)
    assert any(name.endswith(".j2") for name in inside)


def test_the_installed_wheel_runs_away_from_the_repository(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    argv = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*argv, "--target", str(site), str(wheel)], check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    for argv in (
        [sys.executable, "-m", "orchestrator", "--help"],
        [sys.executable, str(site / "bin" / "trainmaster"), "--help"],
    ):
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "submit" in done.stdout
    code = "import orchestrator; print(orchestrator.__file__)"
    argv = [sys.executable, "-c", code]
    out = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert out.stdout.startswith(str(site))
