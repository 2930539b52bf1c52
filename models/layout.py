"""Can this model be split like this? Pure checks, used by ``validate`` and by the trainer.

``check_layout`` names every fault at once, in the words of the experiment file. May not import
torch, megatron or anything outside the standard library (``tests/models/test_layout.py``).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from .presets import BASE, DECIDED_ELSEWHERE, PRESETS

VOCAB_MULTIPLE = 128  # Megatron's default --make-vocab-size-divisible-by


def padded_vocab_size(vocab_size: int) -> int:
    """The embedding's rows for ``vocab_size`` tokens.

    Unlike Megatron-LM the multiple does not grow with tensor parallelism: the same checkpoint
    then has the same shape at every layout.
    """
    return -(-vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


def resolve_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """The full model settings: defaults, then the preset, then the file's own fields.

    Raises ``ValueError`` with a sentence for a person when the preset is unknown.
    """
    fields = {key: value for key, value in model.items() if key != "preset" and value is not None}
    name = model.get("preset")
    if name is None:
        return {**BASE, **fields}
    if name not in PRESETS:
        near = difflib.get_close_matches(str(name), list(PRESETS), n=1)
        also = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"model.preset {name!r} is unknown (known: {', '.join(PRESETS)}){also}")
    return {**BASE, **PRESETS[name], **fields}


def data_parallel_size(parallel: Mapping[str, Any], world_size: int) -> int:
    """Replicas of the model among ``world_size`` ranks (0 when they do not fill one)."""
    return world_size // (
        _size(parallel, "tensor") * _size(parallel, "pipeline") * _size(parallel, "context")
    )


def check_layout(
    model: Mapping[str, Any],
    parallel: Mapping[str, Any],
    world_size: int,
    train: Mapping[str, Any],
) -> list[str]:
    """Every reason why ``model`` cannot be trained on ``world_size`` ranks split by ``parallel``.

    ``train`` gives ``global_batch_size``, ``micro_batch_size`` and ``seq_length`` where they are
    set; what is absent is not checked. An empty list means that the layout works.
    """
    try:
        shape = resolve_model(model)
    except ValueError as error:
        return [str(error)]
    faults = [
        f"model.{key} is decided by {where}: set it there"
        for key, where in DECIDED_ELSEWHERE.items()
        if key in shape
    ]
    faults += _bad_numbers(shape, parallel, train, world_size)
    if faults:
        return faults  # the arithmetic below would only repeat them
    return [
        *_heads(shape, parallel),
        *_pipeline(shape, parallel, train, world_size),
        *_sequence(parallel, train),
        *_experts(shape, parallel, world_size),
        *_batch(parallel, train, world_size),
    ]


_SPLITS = ("tensor", "pipeline", "context", "expert", "virtual_pipeline")


def _size(parallel: Mapping[str, Any], key: str) -> int:
    value = parallel.get(key)
    return 1 if value is None else int(value)


def _bad_numbers(
    shape: Mapping[str, Any],
    parallel: Mapping[str, Any],
    train: Mapping[str, Any],
    world_size: int,
) -> list[str]:
    faults = []
    for key in ("num_layers", "hidden_size", "num_attention_heads"):
        if key not in shape:
            faults.append(f"model.{key} is missing: set it, or choose model.preset")
    groups: list[tuple[str, Mapping[str, Any], tuple[str, ...]]] = [
        (
            "model",
            shape,
            (
                *("num_layers", "hidden_size", "num_attention_heads", "num_query_groups"),
                *("ffn_hidden_size", "kv_channels", "num_moe_experts", "vocab_size"),
            ),
        ),
        ("parallel", parallel, _SPLITS),
        ("train", train, ("global_batch_size", "micro_batch_size", "seq_length")),
    ]
    for section, values, keys in groups:
        for key in keys:
            value = values.get(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                faults.append(f"{section}.{key} must be a whole number of at least 1, not {value!r}")
    if world_size < 1:
        faults.append(f"the stage has {world_size} ranks: give it at least one")
    return faults


def _heads(shape: Mapping[str, Any], parallel: Mapping[str, Any]) -> list[str]:
    heads, hidden = shape["num_attention_heads"], shape["hidden_size"]
    groups = shape.get("num_query_groups") or heads
    tensor = _size(parallel, "tensor")
    faults = []
    head_size = shape.get("kv_channels")
    if head_size is None:
        if hidden % heads:
            faults.append(f"model.hidden_size {hidden} is not divisible by model.num_attention_heads {heads}")
        head_size = hidden // heads
    if shape.get("position_embedding_type") == "rope" and head_size % 2:
        faults.append(f"the attention head size is {head_size}: rotary embedding needs an even one")
    if heads % groups:
        faults.append(
            f"model.num_attention_heads {heads} is not divisible by model.num_query_groups {groups}"
        )
    for key, value in (("num_attention_heads", heads), ("num_query_groups", groups)):
        if value % tensor:
            faults.append(f"model.{key} {value} is not divisible by parallel.tensor {tensor}")
    ffn = shape.get("ffn_hidden_size") or 4 * hidden
    if ffn % tensor:
        faults.append(f"model.ffn_hidden_size {ffn} is not divisible by parallel.tensor {tensor}")
    vocab = shape.get("vocab_size")
    if vocab is not None and padded_vocab_size(vocab) % tensor:
        faults.append(
            f"the padded vocabulary {padded_vocab_size(vocab)} is not divisible by parallel.tensor {tensor}"
        )
    return faults


def _pipeline(
    shape: Mapping[str, Any],
    parallel: Mapping[str, Any],
    train: Mapping[str, Any],
    world_size: int,
) -> list[str]:
    layers = shape["num_layers"]
    pipeline, virtual = _size(parallel, "pipeline"), _size(parallel, "virtual_pipeline")
    faults = []
    if virtual > 1 and pipeline == 1:
        faults.append("parallel.virtual_pipeline needs parallel.pipeline of at least 2")
    parts = pipeline * virtual
    if layers % parts:
        name = "parallel.pipeline" if virtual == 1 else "parallel.pipeline × virtual_pipeline"
        faults.append(f"model.num_layers {layers} is not divisible by {name} {parts}")
    batch, micro = train.get("global_batch_size"), train.get("micro_batch_size")
    replicas = data_parallel_size(parallel, world_size)
    if virtual > 1 and batch and replicas:
        count = batch // ((micro or 1) * replicas)
        if count % pipeline:
            faults.append(
                f"an interleaved pipeline needs a number of micro-batches ({count}) divisible by "
                f"parallel.pipeline {pipeline}: change train.global_batch_size"
            )
    return faults


def _sequence(parallel: Mapping[str, Any], train: Mapping[str, Any]) -> list[str]:
    length = train.get("seq_length")
    tensor, context = _size(parallel, "tensor"), _size(parallel, "context")
    sequence = bool(parallel.get("sequence"))
    faults = []
    if sequence and tensor == 1:
        faults.append("parallel.sequence needs parallel.tensor of at least 2")
    if length is None:
        return faults
    if context > 1 and length % (2 * context):
        faults.append(f"train.seq_length {length} is not divisible by 2 × parallel.context ({2 * context})")
    if sequence and length % (tensor * context):
        faults.append(
            f"train.seq_length {length} is not divisible by parallel.tensor × parallel.context "
            f"({tensor * context}), which parallel.sequence needs"
        )
    return faults


def _experts(shape: Mapping[str, Any], parallel: Mapping[str, Any], world_size: int) -> list[str]:
    experts, split = shape.get("num_moe_experts"), _size(parallel, "expert")
    if split == 1:
        return []
    if not experts:
        return ["parallel.expert is over 1 but the model has no model.num_moe_experts"]
    faults = []
    if experts % split:
        faults.append(f"model.num_moe_experts {experts} is not divisible by parallel.expert {split}")
    ranks = data_parallel_size(parallel, world_size) * _size(parallel, "context")
    if ranks and ranks % split:
        faults.append(f"parallel.expert {split} does not divide the {ranks} data-parallel × context ranks")
    if _size(parallel, "tensor") > 1 and not parallel.get("sequence"):
        faults.append("experts with parallel.tensor over 1 need parallel.sequence: true")
    return faults


def _batch(parallel: Mapping[str, Any], train: Mapping[str, Any], world_size: int) -> list[str]:
    split = _size(parallel, "tensor") * _size(parallel, "pipeline") * _size(parallel, "context")
    if world_size % split:
        return [f"{world_size} ranks are not divisible by parallel.tensor × pipeline × context ({split})"]
    batch, micro = train.get("global_batch_size"), train.get("micro_batch_size") or 1
    replicas = world_size // split
    if batch is not None and batch % (micro * replicas):
        return [
            f"train.global_batch_size {batch} is not divisible by train.micro_batch_size {micro} × "
            f"{replicas} data-parallel ranks"
        ]
    return []
