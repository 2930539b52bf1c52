"""What must not leave through output, and what must stay readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resiliency.redact import MASK, looks_secret_name, looks_secret_value, redact

# Assembled here so that no scanner takes the samples for leaked credentials.
SECRETS = [
    "hf_" + "A1b2C3d4" * 4,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2c3" * 5,
    "glpat-" + "x1Y2z3" * 4,
    "sk-" + "Abc123" * 6,
    "xoxb-" + "123456789012-" * 2 + "abc",
    "AKIA" + "ABCDEFGH12345678",
    "eyJ" + "hbGciOiJIUzI1NiJ9" + "." + "eyJzdWIiOiIxMjM0" + "." + "SflKxwRJSMeKKF2QT4",
]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:5])
def test_shapes_of_credentials_are_masked_anywhere(secret: str) -> None:
    text = redact(f"error: request with {secret} failed at step 12")
    assert secret not in text and MASK in text
    assert text.startswith("error: request with ") and text.endswith(" failed at step 12")
    assert looks_secret_value(secret)


@pytest.mark.parametrize(
    "line",
    [
        "API_KEY=hunter22",
        "export WANDB_API_KEY='hunter22'",
        '{"password": "hunter22"}',
        "db_password: hunter22",
        "--password hunter22",
        "--token=hunter22",
        "AWS_SECRET_ACCESS_KEY=hunter22",
        "Authorization: Bearer hunter22",
        "https://me:hunter22@example.org/x",
    ],
)
def test_values_under_a_telling_name_are_masked(line: str) -> None:
    assert "hunter22" not in redact(line)


def test_private_keys_are_masked_whole_even_when_cut() -> None:
    begin = "-----BEGIN RSA PRIVATE KEY-----"
    for text in (f"a\n{begin}\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nb", f"a\n{begin}\nMIIE\nabc"):
        assert "MIIE" not in redact(text) and redact(text).startswith("a\n")


@pytest.mark.parametrize(
    "line",
    [
        "tokens: 123456789",
        "consumed_tokens=81920",
        "step 5 loss 2.31 tokens 4096",
        "tokenizer: bpe",
        "https://example.org/path?x=1",
        "see the secret of success",
        "key: value",
        "/scratch/me/runs/demo-20260101-000000-abcd",
        "NCCL WARN Cuda failure 'out of memory'",
    ],
)
def test_ordinary_lines_stay(line: str) -> None:
    assert redact(line) == line


def test_known_values_are_removed_wherever_they_stand() -> None:
    assert redact("xhunter22y", ["hunter22"]) == f"x{MASK}y"
    assert redact("a b", ["a"]) == "a b"  # too short to tell from ordinary text


def test_names() -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "db_password", "token", "AWS_SECRET_ACCESS_KEY"):
        assert looks_secret_name(name), name
    for name in ("tokens", "TOKENIZER", "KEYBOARD", "step", "PASSENGER"):
        assert not looks_secret_name(name), name


@given(st.text(max_size=200))
def test_any_text_can_be_redacted_and_twice_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@pytest.mark.parametrize("secret", ["nvapi-" + "Ab3_" * 10, "AIza" + "Sy0-_" * 7, "xoxe-0123456789-abc"])
def test_every_issuer_refused_in_a_file_is_masked_in_output_too(secret: str) -> None:
    assert redact(f"using {secret} now") == f"using {MASK} now"
