"""The ``text`` stage: files → a byte-level BPE and one Megatron IndexedDataset per split.

``python -m models.prepare_text --config stage.json``. Idempotent: a complete artifact ends it at once,
an interrupted one is built anew, and the same files and settings give the same bytes.
``tests/models/test_prepare_text.py`` holds it to that.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from resiliency.exitcodes import COMPLETE, PROGRESS_MADE

from .data import sources, splits, tokenizer
from .settings import ConfigFault
from .stage import Stage, already_complete, main, say

KIND = "dataset"
_KEYS = {"kind", "needs", "inputs", "include", "exclude", "vocab_size", "max_bytes", "split", "seed"}
_EVERY_S = 2.0  # between progress lines


class _Stopped(Exception):
    """Asked to stop; nothing is kept of a half-built dataset."""


def _texts(value: Any, key: str) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not all(isinstance(v, str) for v in values):
        raise ConfigFault(f"{key} must be a text or a list of texts, not {value!r}")
    return list(values)


def _whole(spec: Mapping[str, Any], key: str, default: int | None, low: int) -> int | None:
    value = spec.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigFault(f"{key} must be a whole number of at least {low}, not {value!r}")
    return value


def _files(spec: Mapping[str, Any]) -> list[Path]:
    if not spec.get("inputs"):
        include = _texts(spec.get("include") or ["*.py"], "include")
        exclude = _texts(spec.get("exclude") or [], "exclude")
        library = str(sources.standard_library())
        return sources.find_files([library], include, [*sources.DEFAULT_EXCLUDE, *exclude])
    include = _texts(spec.get("include") or list(sources.TEXT_PATTERNS), "include")
    exclude = _texts(spec.get("exclude") or [], "exclude")
    return sources.find_files(_texts(spec["inputs"], "inputs"), include, exclude)


def run(stage: Stage) -> int:
    """Build the dataset; exit code."""
    if int(os.environ.get("RANK", "0")) > 0:
        return COMPLETE  # one process builds; a launcher may have started more
    if stage.complete(KIND):
        return already_complete(stage, KIND)
    try:
        return _build(stage)
    except _Stopped:
        say("text: asked to stop; nothing is kept of a half-built dataset, the next attempt starts over")
        return PROGRESS_MADE


def _build(stage: Stage) -> int:
    started = time.monotonic()
    spec, watch = stage.spec, _Watch(stage)
    vocab_size = _whole(spec, "vocab_size", 1024, tokenizer.SMALLEST_VOCAB) or 0
    seed = _whole(spec, "seed", 1234, 0) or 0
    max_bytes = _whole(spec, "max_bytes", None, 1)
    fractions = splits.read_fractions(spec.get("split"))
    files = _files(spec)
    say(f"text: {len(files)} files found")
    skipped = sources.Skipped()
    documents = [
        splits.Document(splits.digest(text), len(text.encode("utf-8")))
        for text in watch(sources.read_documents(files, skipped), "read")
    ]
    if skipped.total:
        say(
            f"text: left out {skipped.undecodable} not UTF-8, {skipped.empty} empty, "
            f"{skipped.unreadable} unreadable, for example {', '.join(skipped.examples)}"
        )
    placed = splits.assign(documents, fractions, seed, max_bytes)
    copies = len(documents) - len({document.digest for document in documents})
    say(f"text: {len(placed)} documents kept, {copies} copies of others left out")

    meta: dict[str, Any] = {}
    with stage.new_artifact(KIND, meta) as directory:
        say(f"text: training a byte-level BPE with {vocab_size} entries on the train split")
        train_texts = (text for text, _ in _placed(files, placed, only="train"))
        bpe = tokenizer.train(watch(train_texts, "tokenizer input"), vocab_size)
        bpe.save(str(directory / "tokenizer.json"))
        counts = _write_splits(watch, files, placed, bpe, directory)
        meta.update(
            splits=counts,
            vocab_size=bpe.get_vocab_size(),
            eod=tokenizer.EOD_ID,
            tokenizer="tokenizer.json",
            seed=seed,
            fractions=fractions,
            files=len(files),
            copies_left_out=copies,
            skipped={k: v for k, v in vars(skipped).items() if k != "examples"},
        )
        (directory / "dataset.json").write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n")
    total: dict[str, Any] = {
        key: sum(part[key] for part in counts.values()) for key in ("documents", "tokens", "bytes")
    }
    stage.work.event("data.built", **total)
    for name, part in counts.items():
        say(f"text: {name}: {part['documents']} documents, {part['tokens']} tokens, {part['bytes']} bytes")
    say(f"text: complete in {time.monotonic() - started:.1f} s: {stage.artifact}")
    return COMPLETE


def _placed(
    files: Sequence[Path], placed: Mapping[bytes, str], only: str | None = None
) -> Iterator[tuple[str, str]]:
    """(text, split) of every document kept, each once. The files are read again: corpora need not
    fit in memory, and a file that changed meanwhile is recognised by its digest and left out."""
    seen: set[bytes] = set()
    for text in sources.read_documents(files):
        digest = splits.digest(text)
        split = placed.get(digest)
        if split is None or digest in seen or (only is not None and split != only):
            continue
        seen.add(digest)
        yield text, split


def _write_splits(
    watch: _Watch, files: Sequence[Path], placed: Mapping[bytes, str], bpe: Any, directory: Path
) -> dict[str, dict[str, int]]:
    from .runtime import prepare

    prepare()
    from .data.indexed import SplitWriter

    counts: dict[str, dict[str, int]] = {}
    for name in splits.SPLITS:
        if name not in set(placed.values()):
            continue
        writer = SplitWriter(directory / name, bpe.get_vocab_size(), tokenizer.EOD_ID)
        size = 0

        def texts(split: str = name) -> Iterator[str]:
            nonlocal size
            for text, _ in _placed(files, placed, only=split):
                size += len(text.encode("utf-8"))
                yield text

        for ids in tokenizer.encode_all(bpe, watch(texts(), f"tokenized ({name})")):
            writer.add(ids)
        writer.close()
        counts[name] = {"documents": writer.documents, "tokens": writer.tokens, "bytes": size}
    return counts


class _Watch:
    """Passes texts through: a progress line now and then, and the stop file.

    The step it reports counts documents over all passes, so that it never goes back.
    """

    def __init__(self, stage: Stage) -> None:
        self._work = stage.work
        self._step = 0

    def __call__(self, texts: Iterator[str], doing: str) -> Iterator[str]:
        last = time.monotonic()
        size = 0
        for documents, text in enumerate(texts, 1):
            if self._work.should_stop():
                raise _Stopped
            size += len(text)
            if time.monotonic() - last >= _EVERY_S:
                last = time.monotonic()
                say(f"text: {doing}: {documents} documents, {size / 1e6:.1f} MB")
            self._step += 1
            self._work.report(step=self._step, section=doing)
            yield text


if __name__ == "__main__":
    sys.exit(main(run, "Prepare text for pre-training."))
