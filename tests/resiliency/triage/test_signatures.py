"""The data: every signature matches its samples, none another's, and no pattern can run away."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest

from resiliency.taxonomy import CATEGORIES, Action
from resiliency.triage import lint, signatures

SET = signatures.load([])


@pytest.mark.parametrize("signature", SET.signatures, ids=lambda s: s.id)
def test_each_signature_is_complete_and_matches_its_samples(signature):
    assert lint.problems_of(signature) == []


def test_no_signature_matches_the_negative_sample_of_another():
    assert lint.clashes(SET.signatures) == []


def test_ids_are_unique():
    assert [i for i, n in Counter(s.id for s in SET.signatures).items() if n > 1] == []


def test_every_category_that_a_line_can_show_has_a_signature():
    shown = {s.category for s in SET.signatures}
    by_other_means = {"requeued", "unknown", "straggler"}
    assert set(CATEGORIES) - shown - by_other_means == set()


def test_actions_are_of_the_taxonomy():
    assert {s.action for s in SET.signatures} <= {a.value for a in Action}


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?:\w+\s?)+:", r"(.*)*x", r"^(?:a|a)+$"])
def test_lint_refuses_patterns_that_run_away(pattern):
    assert lint.catastrophic(pattern)


def test_a_long_line_is_matched_in_reasonable_time():
    for text in ("a" * 8000, "node-1 " * 1000, "Error: " * 1000, "NVRM: Xid (PCI:" * 500):
        begun = time.process_time()
        SET.of_line(text, "log")
        SET.of_line(text, "kernel")
        assert time.process_time() - begun < 2.0


def test_a_site_adds_and_replaces(tmp_path):
    (tmp_path / "site.yaml").write_text(
        """
- id: site-cooling
  category: node_down
  role: root
  action: requeue_excluding
  anchor: "CDU leak"
  pattern: 'CDU leak detected on rack (?P<rack>\\w+)'
  provenance: the site's own sensor
  date: 2026-12
  positive: ["CDU leak detected on rack r12"]
  negative: ["CDU leak test passed"]
- id: no-space
  category: storage_full
  role: context
  action: hold
  anchor: "No space left"
  pattern: 'No space left'
  provenance: this site's scratch is cleaned every hour
  date: 2026-12
  positive: ["No space left on device"]
  negative: ["space"]
"""
    )
    merged = signatures.load([tmp_path / "site.yaml"])
    assert merged.by_id["no-space"].role == "context"
    found = signatures.best(merged.of_line("CDU leak detected on rack r7", "log"))
    assert found is not None and found[0].id == "site-cooling"


@pytest.mark.parametrize(
    "text",
    [
        "- 5",
        "- id: x",
        "{a: 1}",
        "- {id: x, category: c, role: r, anchor: a, pattern: '(', wrong: 1}",
        "\x00",
    ],
)
def test_a_broken_site_file_is_named(tmp_path, text):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(signatures.BadSignature) as caught:
        signatures.load([path])
    assert "broken.yaml" in str(caught.value)


def test_samples_do_not_name_real_hosts():
    for signature in SET.signatures:
        for sample in (*signature.positive, *signature.negative):
            assert not re.search(
                r"\.(?:com|edu|gov|org)\b(?<!huggingface\.co)", sample.replace("pytorch.org", "")
            )
