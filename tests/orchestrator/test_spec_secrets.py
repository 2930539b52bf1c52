"""Secrets are named, never written."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.spec.credentials import harmless_value, redact, secret_name, secret_shape
from tests.orchestrator.spec_files import GOOD, lines, load, one

TOKENS = [
    "hf_" + "aB3" * 11,
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 20,
    "glpat-" + "a1" * 10,
    "sk-" + "a1" * 20,
    "sk-ant-api03-" + "a1" * 20,
    "nvapi-" + "a1" * 20,
    "AKIA" + "ABCD1234" * 2,
    "AIza" + "a" * 35,
    "xoxb-" + "1234567890-abc",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijkl",
    "-----BEGIN RSA " + "PRIVATE KEY-----",
    "https://user:hunter2@example.org/x",
]


@pytest.mark.parametrize("value", TOKENS)
def test_known_shapes_are_recognised_anywhere(value: str, tmp_path: Path) -> None:
    assert secret_shape(f"--token={value}")
    assert value not in redact(f"x {value} y")
    text = GOOD + f"    env: {{A: '{value}'}}\n"
    found = lines(tmp_path, text)
    assert found[0].startswith("exp.yaml:10:")
    assert not any(value in line for line in found)


@pytest.mark.parametrize(
    "value", ["task-force", "hf_hub", "sk-learn", "risk-" + "a" * 30, "https://example.org:80/a@b", "a" * 40]
)
def test_ordinary_words_are_not(value: str) -> None:
    assert not secret_shape(value)


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "WANDB_API_KEY", "db_password", "AWS_SECRET_ACCESS_KEY", "MY_SECRET", "APIKEY", "TOKEN"],
)
def test_names_of_secrets(name: str) -> None:
    assert secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "MONKEY",
        "KEY",
        "HF_TOKEN_FILE",
        "SSH_KEY_PATH",
        "KEYBOARD",
        "MAX_TOKEN_COUNT",
        "PWD",
    ],
)
def test_names_that_only_sound_like_it(name: str) -> None:
    assert not secret_name(name)


def test_a_literal_value_of_a_secret_name_is_refused_with_the_way_out(tmp_path: Path) -> None:
    line = one(tmp_path, GOOD + "    env: {HF_TOKEN: swordfish}\n")
    assert line.startswith("exp.yaml:10: stages.train.env.HF_TOKEN: looks like a credential")
    assert "env_from: [HF_TOKEN]" in line and "swordfish" not in line


def test_switches_are_no_secrets(tmp_path: Path) -> None:
    assert harmless_value("true")
    text = GOOD + "    env: {USE_TOKEN: true, HF_TOKEN: ''}\n"
    assert load(tmp_path, text).resolved["stages"]["train"]["env"] == {"USE_TOKEN": "true", "HF_TOKEN": ""}


def test_a_credential_in_a_comment_counts_for_the_file_is_kept(tmp_path: Path) -> None:
    assert one(tmp_path, GOOD + f"# {TOKENS[0]}\n").startswith("exp.yaml:10: something here looks like")


def test_a_value_in_env_from_is_refused(tmp_path: Path) -> None:
    found = lines(tmp_path, GOOD, f"stages.train.env_from=[{TOKENS[1]}]")
    assert found and not any(TOKENS[1] in line for line in found)


@pytest.mark.parametrize("where", ["", "defaults.", "stages.train."])
def test_every_env_is_looked_at(where: str, tmp_path: Path) -> None:
    assert any(
        "looks like a credential" in line for line in lines(tmp_path, GOOD, f"{where}env.MY_SECRET=abc")
    )


def test_a_reference_cannot_hide_a_value(tmp_path: Path) -> None:
    text = GOOD + "    env: {MY_SECRET: '${vars.x}'}\nvars: {x: swordfish}\n"
    assert "looks like a credential" in one(tmp_path, text)


def test_env_from_names_are_kept_and_added_up(tmp_path: Path) -> None:
    text = "env_from: A\ndefaults: {env_from: [B, A]}\n" + GOOD + "    env_from: [C]\n"
    stages = load(tmp_path, text).resolved["stages"]
    assert stages["data"]["env_from"] == ["A", "B"]
    assert stages["train"]["env_from"] == ["A", "B", "C"]
