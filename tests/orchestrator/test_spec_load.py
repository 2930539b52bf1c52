"""Loading as a whole: defaults, paths, and no input that gives anything but an experiment or SpecError."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.spec.errors import Fault, render
from orchestrator.spec.load import load_experiment
from resiliency.errors import SpecError, StorageError
from tests.orchestrator.spec_files import GOOD, load, write

DEFAULTS = """\
name: demo
env: {A: top, B: top}
defaults:
  resources: {nodes: 4, ranks_per_node: 2, gpus_per_node: 8, time: 2h, partition: gpu}
  chain: {max_links: 7}
  env: {B: defaults, C: defaults}
  container: {runtime: pyxis, image: base}
stages:
  data: {kind: text, container: null}
  train:
    kind: pretrain
    needs: data
    model: {preset: tiny}
    train: {steps: 3}
    resources: {nodes: 2}
    env: {C: stage}
    container: {image: mine}
  test: {kind: eval, needs: train}
"""


def test_defaults_are_merged_under_every_stage(tmp_path: Path) -> None:
    stages = load(tmp_path, DEFAULTS).resolved["stages"]
    train = stages["train"]
    assert train["resources"]["nodes"] == 2
    assert (train["resources"]["gpus_per_node"], train["resources"]["time"]) == (8, "02:00:00")
    assert train["chain"]["max_links"] == 7
    assert train["env"] == {"A": "top", "B": "defaults", "C": "stage"}
    assert (train["container"]["runtime"], train["container"]["image"]) == ("pyxis", "mine")
    assert stages["data"]["container"] is None


def test_stages_of_one_process_do_not_take_over_the_training_nodes(tmp_path: Path) -> None:
    stages = load(tmp_path, DEFAULTS).resolved["stages"]
    shape = ("nodes", "ranks_per_node", "gpus_per_node")
    assert [stages["data"]["resources"][key] for key in shape] == [1, None, 0]
    assert [stages["test"]["resources"][key] for key in shape] == [1, None, 1]
    assert stages["data"]["resources"]["partition"] == "gpu"


def test_chains_of_short_stages_are_short_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    stages = load(tmp_path, GOOD).resolved["stages"]
    chains = {name: (s["chain"]["lookahead"], s["chain"]["max_links"]) for name, s in stages.items()}
    assert chains == {"data": (1, 3), "train": (2, 10)}


def test_an_experiment_is_frozen(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD).experiment
    with pytest.raises(ValueError):
        experiment.name = "other"  # type: ignore[misc]


def test_what_was_given_is_kept(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD, "stages.train.train.steps=7")
    assert loaded.text == GOOD
    assert loaded.overrides == ("stages.train.train.steps=7",)
    assert loaded.positions["stages.train.train.steps"] == 9


def test_paths_are_relative_to_the_file_and_those_of_overrides_to_where_they_are_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts").mkdir()
    here = tmp_path / "elsewhere"
    (here / "typed").mkdir(parents=True)
    monkeypatch.chdir(here)
    text = GOOD.replace("kind: text", "kind: text\n    inputs: [texts, './text*']")
    text += "  mine: {kind: command, run: [x]}\n"
    stages = load(tmp_path, text).resolved["stages"]
    assert stages["data"]["inputs"] == [str(tmp_path / "texts"), str(tmp_path / "text*")]
    assert stages["mine"]["workdir"] == str(tmp_path)
    stages = load(tmp_path, text, "stages.data.inputs=typed").resolved["stages"]
    assert stages["data"]["inputs"] == [str(here / "typed")]


def test_a_resolved_experiment_loads_to_itself(tmp_path: Path) -> None:
    import json

    first = load(tmp_path, DEFAULTS).resolved
    (tmp_path / "again").mkdir()
    again = load(tmp_path / "again", json.dumps(first)).resolved
    assert again == first


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"gone\.yaml"):
        load_experiment(tmp_path / "gone.yaml")
    with pytest.raises(StorageError):
        load_experiment(tmp_path)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_experiment(path).experiment.name == "demo"


def test_omegaconf_is_loaded_only_for_overrides_and_references(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    code = (
        "import sys\n"
        "from orchestrator.spec.load import load_experiment\n"
        f"load_experiment({str(path)!r})\n"
        "print(sorted({'omegaconf', 'rich', 'torch', 'jinja2', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


VOCABULARY = """
name stages kind text pretrain eval command needs run train steps model preset tiny env env_from
defaults resources nodes time chain vars cluster data inputs ${vars.x} ${stages} ${oc.env:HOME} ~ 1
-1 1e999 null true !!python/name:os.system *a &a <<: [ ] { } - : | > ' " # \\0 04:00 a.b
"""
WORDS = st.sampled_from(VOCABULARY.split())
SOUP = st.lists(st.one_of(WORDS, st.sampled_from(["\n", "\n  ", "\n    ", ": ", ", ", " "])), max_size=60)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), WORDS)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(WORDS, st.text(max_size=8)), inner, max_size=4)
    ),
    max_leaves=12,
)
PATHS = st.lists(st.one_of(WORDS, st.sampled_from(["train", "data", "[0]", "0"])), max_size=5).map(".".join)
RELAXED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def harmless(path: Path, *overrides: str) -> None:
    """Loads, or says what is wrong in lines a terminal can show."""
    try:
        load_experiment(path, overrides)
    except SpecError as error:
        assert error.faults and all(isinstance(f, Fault) for f in error.faults)
        assert all(line.isprintable() for line in render(error.faults))


@RELAXED
@given(st.binary(max_size=200))
def test_any_bytes(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "exp.yaml").write_bytes(raw)
    harmless(tmp_path / "exp.yaml")


@RELAXED
@given(SOUP)
def test_any_soup_of_words_that_mean_something(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "exp.yaml").write_text("".join(words))
    harmless(tmp_path / "exp.yaml")


@RELAXED
@given(TREES, st.sampled_from(["", "stages", "stages.train", "stages.train.train", "defaults", "vars"]))
def test_any_tree_of_values_anywhere(tmp_path: Path, tree: object, where: str) -> None:
    import json

    import yaml

    data: dict[str, object] = yaml.safe_load(GOOD)
    node: object = data
    *way, last = where.split(".")
    for part in way:
        node = node[part]  # type: ignore[index]
    if where:
        node[last] = tree  # type: ignore[index]
    else:
        data = tree  # type: ignore[assignment]
    (tmp_path / "exp.yaml").write_text(json.dumps(data), encoding="utf-8", errors="surrogatepass")
    harmless(tmp_path / "exp.yaml")


@RELAXED
@given(
    st.lists(
        st.one_of(
            st.text(max_size=40), st.tuples(PATHS, st.one_of(WORDS, st.text(max_size=20))).map("=".join)
        ),
        max_size=4,
    )
)
def test_any_overrides(tmp_path: Path, overrides: list[str]) -> None:
    harmless(write(tmp_path, GOOD), *overrides)


@RELAXED
@given(st.text(max_size=30), st.sampled_from(["run", "workdir", "description", "env"]))
def test_any_text_in_a_free_field_is_kept_as_it_is_or_refused(tmp_path: Path, value: str, field: str) -> None:
    import json

    base = {"kind": "command", "run": ["x"]}
    stage = {**base, "env": {"A": value}} if field == "env" else base
    stage = {**base, "run": ["x", value]} if field == "run" else stage
    data = {"name": "d", "stages": {"s": stage}}
    if field == "description":
        data["description"] = value
    (tmp_path / "exp.yaml").write_text(json.dumps(data, ensure_ascii=True))
    try:
        resolved = load_experiment(tmp_path / "exp.yaml").resolved
    except SpecError:
        return
    kept = resolved["stages"]["s"]
    got = {"run": kept["run"][-1], "env": kept["env"].get("A"), "description": resolved["description"]}
    if field in got and "${" not in value:
        assert got[field] == value
