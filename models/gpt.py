"""Builds Megatron-Core's GPTModel from a stage's ``model``, ``parallel`` and ``train`` sections.

Import only after ``runtime.prepare()``. Settings that would silently give wrong results on this
machine are set here and cannot be overridden (``_guards``).
``tests/models/test_layouts.py`` compares losses over layouts.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)
from megatron.core.transformer.transformer_config import TransformerConfig

from . import te_guard
from .layout import padded_vocab_size
from .presets import GPT_KEYS
from .settings import ConfigFault, Parallel, Train

_ACTIVATIONS = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "relu": torch.nn.functional.relu,
}


def transformer_config(shape: Mapping[str, Any], parallel: Parallel, train: Train) -> TransformerConfig:
    """``shape`` is ``layout.resolve_model``'s result. Raises ``ConfigFault`` for a wrong field."""
    known = {field.name for field in dataclasses.fields(TransformerConfig)}
    given = {key: value for key, value in shape.items() if key not in GPT_KEYS}
    faults = []
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            also = f"; did you mean {near[0]}?" if near else ""
            faults.append(f"model.{key} is no field of Megatron's TransformerConfig{also}")
    activation = given.get("activation_func", "silu")
    if isinstance(activation, str):
        if activation in _ACTIVATIONS:
            given["activation_func"] = _ACTIVATIONS[activation]
        else:
            faults.append(f"model.activation_func {activation!r} must be one of {', '.join(_ACTIVATIONS)}")
    if given.get("multi_latent_attention"):
        faults.append("model.multi_latent_attention is not supported by this program")
    if faults:
        raise ConfigFault("; ".join(faults), hint="correct the model section of the stage")
    dtype = torch.bfloat16 if train.precision == "bf16" else torch.float32
    settings = {
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "bf16": train.precision == "bf16",
        "use_cpu_initialization": not torch.cuda.is_available(),
        "tensor_model_parallel_size": parallel.tensor,
        "pipeline_model_parallel_size": parallel.pipeline,
        "virtual_pipeline_model_parallel_size": (
            parallel.virtual_pipeline if parallel.virtual_pipeline > 1 else None
        ),
        "context_parallel_size": parallel.context,
        "expert_model_parallel_size": parallel.expert,
        "sequence_parallel": parallel.sequence,
        **given,
        **_guards(parallel, given),
    }
    try:
        return TransformerConfig(**settings)
    except (ValueError, AssertionError, TypeError) as error:
        raise ConfigFault(
            f"Megatron refuses this model: {error}", hint="correct the model section of the stage"
        ) from error


def _guards(parallel: Parallel, given: Mapping[str, Any]) -> dict[str, Any]:
    guards: dict[str, Any] = {}
    if not te_guard.choose()[0]:
        # Fused kernels that only Transformer Engine or Apex bring.
        guards.update(
            masked_softmax_fusion=False,
            gradient_accumulation_fusion=False,
            persist_layer_norm=False,
            apply_rope_fusion=False,
        )
    if not torch.cuda.is_available():
        guards.update(bias_dropout_fusion=False)  # compiles for a minute to gain nothing
        # Batched send and receive on gloo mixes the messages of an interleaved pipeline up:
        # gradient norm 10.4 instead of 1.7, without any error.
        guards.update(batch_p2p_comm=False)
        # Overlapped sends read outputs that were deallocated: the loss differs from run to run.
        guards.update(overlap_p2p_comm=False, deallocate_pipeline_outputs=False)
    if given.get("num_moe_experts"):
        guards["moe_grouped_gemm"] = False
        guards["moe_token_dispatcher_type"] = given.get("moe_token_dispatcher_type", "alltoall")
    return guards


def _block_spec(config: TransformerConfig, stage: int | None) -> Any:
    """The layers of this pipeline stage: Transformer Engine's, or local ones with our two parts."""
    if te_guard.choose()[0]:
        from megatron.core.models.gpt.gpt_layer_specs import (
            get_gpt_layer_with_transformer_engine_spec,
        )

        return get_gpt_layer_with_transformer_engine_spec(
            num_experts=config.num_moe_experts,
            moe_grouped_gemm=config.moe_grouped_gemm,
            qk_layernorm=config.qk_layernorm,
        )
    from .attention import CausalAttention, Norm

    layer: ModuleSpec = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts,
        moe_grouped_gemm=False,
        qk_layernorm=config.qk_layernorm,
        normalization=config.normalization,
    )
    parts: Any = layer.submodules
    parts.self_attention.submodules.core_attention = CausalAttention
    for name in ("input_layernorm", "pre_mlp_layernorm"):
        if getattr(parts, name, None) is WrappedTorchNorm:
            setattr(parts, name, Norm)
    layers = get_num_layers_to_build(config, vp_stage=stage)
    return TransformerBlockSubmodules(layer_specs=[layer] * layers, layer_norm=Norm)


def build(
    config: TransformerConfig, shape: Mapping[str, Any], vocab_size: int, seq_length: int
) -> list[torch.nn.Module]:
    """This rank's model chunks (one, or one per virtual pipeline stage), on its device.

    ``vocab_size`` is the tokenizer's; the embedding is padded (``layout.padded_vocab_size``).
    """
    virtual = config.virtual_pipeline_model_parallel_size
    chunks: list[torch.nn.Module] = []
    for index in range(virtual or 1):
        stage = index if virtual else None
        ends: dict[str, Any] = {"ignore_virtual": virtual is None, "vp_stage": stage}
        extra: dict[str, Any] = {}
        if "vp_stage" in inspect.signature(GPTModel.__init__).parameters:
            extra["vp_stage"] = stage
        model: torch.nn.Module = GPTModel(
            config=config,
            transformer_layer_spec=_block_spec(config, stage),
            vocab_size=padded_vocab_size(vocab_size),
            max_sequence_length=seq_length,
            pre_process=parallel_state.is_pipeline_first_stage(**ends),
            post_process=parallel_state.is_pipeline_last_stage(**ends),
            position_embedding_type=shape.get("position_embedding_type", "rope"),
            rotary_base=shape.get("rotary_base", 10000),
            share_embeddings_and_output_weights=not shape.get("untie_embeddings_and_output_weights", True),
            parallel_output=True,
            **extra,
        )
        if torch.cuda.is_available():
            model = model.cuda()
        chunks.append(Float16Module(config, model) if config.bf16 else model)
    return chunks


def unwrap(chunk: torch.nn.Module) -> Any:
    """The GPTModel inside DistributedDataParallel and Float16Module."""
    while not isinstance(chunk, GPTModel):
        chunk = chunk.module
    return chunk


def parameter_count(chunks: list[torch.nn.Module]) -> int:
    """Parameters this rank holds."""
    return sum(parameter.numel() for chunk in chunks for parameter in chunk.parameters())
