"""models.ngram against hand-computed values and against a slow, literal implementation."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from models.ngram import KneserNey3, unigram_nll


def test_unigram_is_add_one() -> None:
    train, held = np.array([0, 0, 1]), np.array([0, 1, 2])
    probabilities = np.exp(-unigram_nll(train, held, vocab_size=3))
    assert probabilities == pytest.approx([3 / 6, 2 / 6, 1 / 6])


def test_kneser_ney_by_hand() -> None:
    """Stream a b a b a c (0 1 0 1 0 2) over three tokens, computed with pencil and paper.

    Trigrams: aba 2, bab 1, bac 1 → D3 = 2/(2 + 2·1) = 1/2.
    Distinct left contexts of bigrams: of "ba" {a}, "ab" {b}, "ac" {b} → all 1, D2 = 3/3 = 1.
    Distinct left contexts of tokens: a {b}, b {a}, c {a} → all 1, D1 = 1.
    P1(x) = (1 − 1)/3 + 1·3/3 · 1/3 = 1/3.
    P2(b|a) = (1 − 1)/2 + 1·2/2 · 1/3 = 1/3; likewise P2(a|b) = 1/3, P2(c|a) = 1/3.
    P3(b|ba) = (1 − 1/2)/2 + 1/2·2/2 · 1/3 = 1/4 + 1/6 = 5/12; P3(c|ba) the same;
    P3(a|ba) = 0 + 1/2 · P2(a|a) = 1/2 · 1/3 = 1/6. They sum to 1.
    P3(a|ab) = (2 − 1/2)/2 + 1/2·1/2 · 1/3 = 3/4 + 1/12 = 5/6.
    """
    model = KneserNey3(np.array([0, 1, 0, 1, 0, 2]), vocab_size=3)
    first, second = np.array([1, 1, 1, 0]), np.array([0, 0, 0, 1])
    got = model.probability(first, second, np.array([1, 2, 0, 0]))
    assert got == pytest.approx([5 / 12, 5 / 12, 1 / 6, 5 / 6])


def _literal(stream: list[int], vocab: int, context: tuple[int, int], token: int) -> Fraction:
    """The textbook's formula with exact fractions and plain dictionaries."""
    three = Counter(zip(stream, stream[1:], stream[2:], strict=False))
    two = Counter((v, w) for _, v, w in three)
    one = Counter(w for _, w in two)

    def discount(counts: Counter) -> Fraction:
        n1, n2 = (sum(1 for c in counts.values() if c == k) for k in (1, 2))
        return Fraction(n1, n1 + 2 * n2) if n1 else Fraction(1, 2)

    p = Fraction(1, vocab)
    for counts, start in ((one, None), (two, context[1:]), (three, context)):

        def key(w: int, start: tuple[int, ...] | None = start) -> object:
            return w if start is None else (*start, w)

        total = sum(counts[key(w)] for w in range(vocab))
        if total:
            d = discount(counts)
            kinds = sum(1 for w in range(vocab) if counts[key(w)])
            p = (max(counts[key(token)] - d, Fraction(0)) + d * kinds * p) / total
    return p


def test_equals_the_literal_formula_and_sums_to_one() -> None:
    vocab = 7
    stream = np.random.default_rng(3).integers(0, vocab, 120)
    model = KneserNey3(stream, vocab)
    for u in range(vocab):
        for v in range(vocab):
            every = np.arange(vocab)
            got = model.probability(np.full(vocab, u), np.full(vocab, v), every)
            assert got.sum() == pytest.approx(1.0, abs=1e-12)
            want = [float(_literal(stream.tolist(), vocab, (u, v), w)) for w in range(vocab)]
            assert got == pytest.approx(want, rel=1e-12)


def test_unseen_context_falls_back_and_stays_a_distribution() -> None:
    model = KneserNey3(np.array([0, 1, 2, 0, 1, 2, 3]), vocab_size=6)
    got = model.probability(np.full(6, 5), np.full(6, 4), np.arange(6))
    assert got.sum() == pytest.approx(1.0)
    assert (got > 0).all()


def test_nll_starts_with_the_given_token() -> None:
    stream = np.array([0, 1, 2, 0, 1, 2, 0, 1, 3])
    model = KneserNey3(stream, vocab_size=4)
    nll = model.nll(np.array([1, 2]), start=0)
    first = model.probability(np.array([0]), np.array([0]), np.array([1]))[0]
    second = model.probability(np.array([0]), np.array([1]), np.array([2]))[0]
    assert nll == pytest.approx([-math.log(first), -math.log(second)])


def test_refuses_what_it_cannot_count() -> None:
    with pytest.raises(ValueError, match="too large"):
        KneserNey3(np.array([0, 1, 2]), vocab_size=3_000_000)
    with pytest.raises(ValueError, match="three"):
        KneserNey3(np.array([0, 1]), vocab_size=4)
