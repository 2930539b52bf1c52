"""A byte-level BPE: trained on the train split, stored as one ``tokenizer.json``.

Every text can be encoded and comes back byte for byte, so bits per byte are well defined. Needs the
``tokenizers`` package, not torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

EOD = "<|endoftext|>"
EOD_ID = 0
SMALLEST_VOCAB = 257  # 256 bytes and the end-of-document token


def train(texts: Iterable[str], vocab_size: int) -> Any:
    """A ``tokenizers.Tokenizer`` of at most ``vocab_size`` entries, ``EOD`` being number 0."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load(path: Path) -> Any:
    """The ``tokenizers.Tokenizer`` stored at ``path``."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def encode_all(tokenizer: Any, texts: Iterator[str], batch: int = 64) -> Iterator[list[int]]:
    """Token ids of each text, without the end-of-document token.

    ``EOD`` written out in a text is text: it must not become an end of document.
    """
    tokenizer.encode_special_tokens = True
    pending: list[str] = []
    for text in texts:
        pending.append(text)
        if len(pending) == batch:
            yield from _encode(tokenizer, pending)
            pending = []
    yield from _encode(tokenizer, pending)


def _encode(tokenizer: Any, texts: Sequence[str]) -> Iterator[list[int]]:
    for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False):
        yield encoding.ids
