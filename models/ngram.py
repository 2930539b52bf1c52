"""Baselines over the model's own tokens: an add-one unigram and an order-3 Kneser-Ney model.

Order 3 (a trigram: two tokens of context) is interpolated Kneser-Ney smoothing with one absolute
discount an order, D = n1 / (n1 + 2 n2), and a uniform floor: Chen & Goodman, "An Empirical Study of
Smoothing Techniques for Language Modeling" (TR-10-98, 1998), section 2.7; the discount is Ney, Essen
and Kneser (1994). Pure numpy. ``tests/models/test_ngram.py`` compares it with hand-computed values
and checks that every distribution sums to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any  # one-dimensional numpy arrays; numpy's own types vary too much between versions
LARGEST_VOCAB = 2_000_000  # three token ids must fit in 63 bits


def unigram_nll(train: Array, held: Array, vocab_size: int) -> Array:
    """Negative log-likelihood (nats) of each held-out token, counts + 1 over all of the vocabulary."""
    counts = np.bincount(train.astype(np.int64), minlength=vocab_size).astype(np.float64)
    logs = np.log((counts + 1.0) / (counts.sum() + vocab_size))
    return -logs[held.astype(np.int64)]


@dataclass(frozen=True)
class _Order:
    """One order of the model: sorted n-gram keys, their counts, and sums over each context."""

    keys: Array
    counts: Array
    contexts: Array
    totals: Array  # sum of counts after the context
    kinds: Array  # distinct continuations of the context
    discount: float

    def discounted(self, keys: Array) -> Array:
        """max(count − D, 0) of each key, 0 when unseen."""
        return np.maximum(_lookup(self.keys, self.counts, keys) - self.discount, 0.0)


def _lookup(sorted_keys: Array, values: Array, keys: Array) -> Array:
    place: Array = np.searchsorted(sorted_keys, keys)
    place[place == len(sorted_keys)] = 0  # past the end: any entry that differs from the key
    return np.where(sorted_keys[place] == keys, values[place], 0).astype(np.float64)


def _order(keys: Array, counts: Array, vocab_size: int) -> _Order:
    context = keys // vocab_size
    contexts, starts = np.unique(context, return_index=True)
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    # Without singletons the formula has no value; half is the customary stand-in.
    discount = once / (once + 2 * twice) if once else 0.5
    return _Order(
        keys=keys,
        counts=counts,
        contexts=contexts,
        totals=np.add.reduceat(counts, starts).astype(np.float64),
        kinds=np.diff(np.append(starts, len(keys))).astype(np.float64),
        discount=discount,
    )


class KneserNey3:
    """Interpolated Kneser-Ney of order 3, trained on one token stream."""

    def __init__(self, train: Array, vocab_size: int) -> None:
        if vocab_size > LARGEST_VOCAB:
            raise ValueError(f"a vocabulary of {vocab_size} is too large (most: {LARGEST_VOCAB})")
        if len(train) < 3:
            raise ValueError("at least three training tokens are needed")
        self.vocab_size = vocab_size
        stream = train.astype(np.int64)
        pairs = stream[:-1] * vocab_size + stream[1:]
        triples, counts = np.unique(pairs[:-1] * vocab_size + stream[2:], return_counts=True)
        self._three = _order(triples, counts, vocab_size)
        # Lower orders count distinct contexts on the left, not occurrences.
        two, left_of_two = np.unique(triples % (vocab_size * vocab_size), return_counts=True)
        self._two = _order(two, left_of_two, vocab_size)
        one, left_of_one = np.unique(two % vocab_size, return_counts=True)
        self._one = _order(one, left_of_one, vocab_size)

    def probability(self, first: Array, second: Array, token: Array) -> Array:
        """P(token | first second), elementwise."""
        size = self.vocab_size
        first, second, token = (part.astype(np.int64) for part in (first, second, token))
        p = np.full(len(token), 1.0 / size)
        p = self._interpolate(self._one, np.zeros_like(token), token, p)
        p = self._interpolate(self._two, second, second * size + token, p)
        pair = first * size + second
        return self._interpolate(self._three, pair, pair * size + token, p)

    @staticmethod
    def _interpolate(order: _Order, context: Array, keys: Array, lower: Array) -> Array:
        total = _lookup(order.contexts, order.totals, context)
        kinds = _lookup(order.contexts, order.kinds, context)
        seen = total > 0
        safe = np.where(seen, total, 1.0)
        mixed = (order.discounted(keys) + order.discount * kinds * lower) / safe
        return np.where(seen, mixed, lower)

    def nll(self, held: Array, start: int) -> Array:
        """Negative log-likelihood (nats) of each held-out token; ``start`` stands before the first."""
        stream = np.concatenate([[start, start], held.astype(np.int64)])
        return -np.log(self.probability(stream[:-2], stream[1:-1], stream[2:]))
