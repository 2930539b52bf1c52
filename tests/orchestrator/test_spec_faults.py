"""One message a fault: line, key, what was expected, the nearest valid word; all of them at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.clusters import builtin
from orchestrator.spec.errors import Fault, nearest, refuse, render
from tests.orchestrator.spec_files import faults, lines, one


def stage(fields: str, kind: str = "command") -> str:
    """A file with one stage; its fields begin on line 5."""
    fields = fields if "run:" in fields or kind != "command" else f"{fields}\n    run: [x]"
    return f"name: demo\nstages:\n  one:\n    kind: {kind}\n    {fields}\n"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("resorces: {}", "exp.yaml:5: stages.one.resorces: unknown key; did you mean 'resources'?"),
        (
            "resources: {nodes: two}",
            "exp.yaml:5: stages.one.resources.nodes: 'two' has the wrong type; expected a whole number",
        ),
        (
            "resources: {nodes: '2'}",
            "exp.yaml:5: stages.one.resources.nodes: '2' has the wrong type; expected a whole number",
        ),
        (
            "resources: {nodes: true}",
            "exp.yaml:5: stages.one.resources.nodes: True has the wrong type; expected a whole number",
        ),
        (
            "resources: {nodes: 1.5}",
            "exp.yaml:5: stages.one.resources.nodes: 1.5 has the wrong type; expected a whole number",
        ),
        (
            "resources: {nodes: 0}",
            "exp.yaml:5: stages.one.resources.nodes: 0 is out of range; expected at least 1",
        ),
        (
            "resources: {account: 1234}",
            "exp.yaml:5: stages.one.resources.account: 1234 has the wrong type; "
            "expected text: put it in quotes, '1234'",
        ),
        (
            "resources: [1]",
            "exp.yaml:5: stages.one.resources: [1] has the wrong type; expected a mapping (key: value)",
        ),
        (
            'resources: {time: "04:00"}',
            "exp.yaml:5: stages.one.resources.time: '04:00' can be read in two ways (Slurm: minutes and "
            'seconds): write "04:00:00" or "00:04:00"; expected "HH:MM:SS", "D-HH:MM", minutes as a '
            'number, or "90s", "10m", "2h"',
        ),
        (
            "launcher: torchrnu",
            "exp.yaml:5: stages.one.launcher: 'torchrnu' is unknown; expected one of auto, ft_launcher, "
            "none, torchrun; did you mean 'torchrun'?",
        ),
        (
            "needs: [3]",
            "exp.yaml:5: stages.one.needs[0]: 3 has the wrong type; expected text: put it in quotes, '3'",
        ),
        (
            "run: ''",
            "exp.yaml:5: stages.one.run: is empty; expected a program and its arguments",
        ),
        (
            'run: "echo \'a"',
            "exp.yaml:5: stages.one.run: cannot be split into words: No closing quotation (is a "
            "quote missing?)",
        ),
        (
            "env: {'a b': x}",
            "exp.yaml:5: stages.one.env.a b: 'a b' is not the name of an environment variable",
        ),
        (
            "env_from: [$HOME]",
            "exp.yaml:5: stages.one.env_from[0]: '$HOME' is not the name of an environment variable",
        ),
        (
            "env: {TRAINMASTER_RUN: x}",
            "exp.yaml:5: stages.one.env.TRAINMASTER_RUN: names that begin with TRAINMASTER_ are set by "
            "Trainmaster; expected another name",
        ),
        (
            "container: {runtime: docker, image: x}",
            "exp.yaml:5: stages.one.container.runtime: 'docker' is unknown; expected one of apptainer, pyxis",
        ),
        (
            "container: {runtime: pyxis, image: x, mounts: /data}",
            "exp.yaml:5: stages.one.container: mount '/data' is not source:target or source:target:ro",
        ),
        ("run: [x, {a: 1}]", "exp.yaml:5: stages.one.run[1]: {'a': 1} has the wrong type; expected text"),
        (
            "run: 'python x.py {chekpoint_dir}'",
            "exp.yaml:5: stages.one.run: {chekpoint_dir} is not filled in; did you mean 'checkpoint_dir'?",
        ),
        (
            "run: 'python x.py {input:data}'",
            "exp.yaml:5: stages.one.run: {input:data}: 'data' is not among its needs; expected "
            "needs that name it",
        ),
        (
            "workdir: gone",
            "exp.yaml:5: stages.one.workdir: gone is not a directory; expected a directory that is there",
        ),
        (
            "chain: {lookahead: 99}",
            "exp.yaml:5: stages.one.chain.lookahead: 99 is out of range; expected at most 20",
        ),
    ],
)
def test_a_fault_of_a_stage(tmp_path: Path, fields: str, said: str) -> None:
    assert one(tmp_path, stage(fields)) == said


HOSTILE = [
    "a b",
    "x\n#SBATCH --wrap=id",
    "a;id",
    "$(id)",
    "`id`",
    "a'b",
    'a"b',
    "a\\b",
    "a#b",
    "a\tb",
    "",
    "é",
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    "key", ["partition", "account", "qos", "constraint", "reservation", "mem", "exclude"]
)
def test_what_a_directive_cannot_carry_is_refused(tmp_path: Path, key: str, value: str) -> None:
    import json

    line = one(tmp_path, stage(f"resources: {{{key}: {json.dumps(value)}}}"))
    assert line.startswith(f"exp.yaml:5: stages.one.resources.{key}")
    assert line.isprintable()


@pytest.mark.parametrize("value", ["(a100|h100)&ib", "gpu,big", "node[1-4,7]", "2*rack1", "a:b@c+d_e.f-g"])
def test_what_slurm_means_is_accepted(tmp_path: Path, value: str) -> None:
    from tests.orchestrator.spec_files import load

    loaded = load(tmp_path, stage(f"resources: {{constraint: '{value}', exclude: ['{value}']}}"))
    assert loaded.resolved["stages"]["one"]["resources"]["constraint"] == value


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "pretrian",
            "'pretrian' is not a kind of stage; expected one of command, eval, pretrain, text; "
            "did you mean 'pretrain'?",
        ),
        (
            "sft",
            "sft stages are not available in this version; expected one of command, eval, pretrain, text",
        ),
        ("rl", "rl stages are not available in this version; expected one of command, eval, pretrain, text"),
        ("", "is missing; expected one of command, eval, pretrain, text"),
        ("[1]", "[1] is not a kind of stage; expected one of command, eval, pretrain, text"),
    ],
)
def test_kinds(tmp_path: Path, kind: str, said: str) -> None:
    assert one(tmp_path, stage("run: [x]", kind)) == f"exp.yaml:4: stages.one.kind: {said}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "exp.yaml:1: name: is missing; expected begins the run's id: a-z, 0-9 and '-'"),
        ("- a\n", "exp.yaml:1: is not an experiment; expected a mapping with name and stages"),
        ("just text\n", "exp.yaml:1: is not an experiment; expected a mapping with name and stages"),
        ("name: x\nstages: {}\n", "exp.yaml:2: stages: is empty; expected at least one"),
        (
            "name: x\nstages: [a]\n",
            "exp.yaml:2: stages: ['a'] has the wrong type; expected a mapping (key: value)",
        ),
        (
            "name: x\nstages: {One: {kind: text}}\n",
            "exp.yaml:2: stages.One: is not a stage's name; expected a-z, 0-9, '-' and '_', beginning with a "
            "letter, up to 40",
        ),
        (
            "name: x\nstages: {a: text}\n",
            "exp.yaml:2: stages.a: 'text' has the wrong type; expected a mapping (key: value)",
        ),
    ],
)
def test_a_fault_of_the_file(tmp_path: Path, text: str, said: str) -> None:
    assert said in lines(tmp_path, text)


@pytest.mark.parametrize("name", ["Demo", "a b", "../x", "a.b", "-a", "a" * 49, "", "é", "a\\nb"])
def test_names_begin_a_run_id(tmp_path: Path, name: str) -> None:
    text = f'name: "{name}"\nstages: {{a: {{kind: text}}}}\n'
    assert one(tmp_path, text).startswith("exp.yaml:1: name: ")


def test_everything_at_once(tmp_path: Path) -> None:
    text = """\
    name: demo
    clustr: local
    defaults:
      resources: {tme: 1h}
    stages:
      data:
        kind: text
        inputs: [missing.txt]
        needs: evaluate
      train:
        kind: pretrain
        needs: daat
        model: {preset: tiny, num_layer: 2}
        train: {steps: ten, lrr: 1}
      evaluate: {kind: eval, needs: [train, data]}
      tune: {kind: sft}
    """
    found = [(f.line, f.key, f.suggestion) for f in faults(tmp_path, text, "stages.train.train.seed=-1")]
    assert found == [
        (2, "clustr", "cluster"),
        (4, "defaults.resources.tme", "time"),
        (9, "stages.data.needs", ""),
        (12, "stages.train.needs", "data"),
        (13, "stages.train.model.num_layer", "num_layers"),
        (14, "stages.train.train.lrr", "lr"),
        (14, "stages.train.train.steps", ""),
        (16, "stages.tune.kind", ""),
        (0, "stages.train.train.seed", ""),
    ]


def test_faults_of_stages_that_are_well_formed_join_those_of_others(tmp_path: Path) -> None:
    text = """\
    name: demo
    stages:
      data: {kind: text, inputs: missing.txt}
      train:
        kind: pretrain
        needs: data
        model: {preset: tiny, num_layer: 2}
        train: {steps: 10}
      other: {kind: command, run: [x], resources: {nodes: 0}}
    """
    found = lines(tmp_path, text)
    assert [line.split(": ")[0] for line in found] == ["exp.yaml:3", "exp.yaml:7", "exp.yaml:9"]


def test_an_unknown_cluster_is_named_at_its_line(tmp_path: Path) -> None:
    text = "name: x\ncluster: loacl\nstages: {a: {kind: text}}\n"
    said = "'loacl' is no cluster profile; expected auto, local, slurm; did you mean 'local'?"
    assert one(tmp_path, text, profiles=builtin()) == f"exp.yaml:2: cluster: {said}"
    line = one(tmp_path, text, "cluster=loc", profiles=builtin())
    assert line.startswith("override cluster=loc: cluster: ")
    line = one(tmp_path, text, profiles=builtin(), cluster="slrum")
    assert line.startswith("override --cluster slrum: 'slrum' is no cluster profile")


def test_rendered_lines_cannot_drive_a_terminal() -> None:
    fault = Fault("f", 1, "a\x1b[31m\nb", "bad\rvalue", override="x\x07=1")
    (line,) = render([fault, "plain"][:1])
    assert line.isprintable()


def test_refuse_counts_sorts_and_drops_repetitions() -> None:
    a, b = Fault("f", 2, "b", "x"), Fault("f", 1, "a", "x")
    error = refuse("f", [a, b, a])
    assert error.faults == (b, a)
    assert error.message == "f has 2 faults" and error.exit_code == 3


def test_nearest_gives_nothing_rather_than_nonsense() -> None:
    assert nearest("qqqq", ["train", "model"]) == ""
    assert nearest("modle", ["train", "model"]) == "model"
