"""Named model shapes: data only, so the control plane can read them on a login node.

Keys are Megatron-Core's ``TransformerConfig`` field names, plus the few GPT settings listed in
``GPT_KEYS``. May not import torch or megatron (``tests/models/test_layout.py`` holds it to that).
"""

from __future__ import annotations

from typing import Any, Final

# What every preset shares: a Llama-style decoder (RMSNorm, SwiGLU, RoPE, no biases).
BASE: Final[dict[str, Any]] = {
    "normalization": "RMSNorm",
    "layernorm_epsilon": 1e-5,
    "gated_linear_unit": True,
    "activation_func": "silu",
    "add_bias_linear": False,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "init_method_std": 0.02,
    "position_embedding_type": "rope",
    "rotary_base": 10000,
    "untie_embeddings_and_output_weights": True,
}

# Settings of ``GPTModel`` that are no ``TransformerConfig`` fields.
GPT_KEYS: Final[frozenset[str]] = frozenset(
    {"position_embedding_type", "rotary_base", "untie_embeddings_and_output_weights", "vocab_size"}
)

PRESETS: Final[dict[str, dict[str, Any]]] = {
    # Made for the quickstart: learns in minutes on two CPU cores (docs/stages.md has the figures).
    "tiny": {
        "num_layers": 4,
        "hidden_size": 128,
        "ffn_hidden_size": 336,
        "num_attention_heads": 4,
        "num_query_groups": 2,
        "untie_embeddings_and_output_weights": False,
    },
    "small": {  # about 125 M parameters with a 32 k vocabulary
        "num_layers": 12,
        "hidden_size": 768,
        "ffn_hidden_size": 2048,
        "num_attention_heads": 12,
        "num_query_groups": 4,
        "untie_embeddings_and_output_weights": False,
    },
    "medium": {  # about 350 M
        "num_layers": 24,
        "hidden_size": 1024,
        "ffn_hidden_size": 2816,
        "num_attention_heads": 16,
        "num_query_groups": 8,
        "untie_embeddings_and_output_weights": False,
    },
    "1b": {  # the shape of Llama 3.2 1B
        "num_layers": 16,
        "hidden_size": 2048,
        "ffn_hidden_size": 8192,
        "num_attention_heads": 32,
        "num_query_groups": 8,
        "rotary_base": 500000,
    },
    "8b": {  # the shape of Llama 3 8B
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 14336,
        "num_attention_heads": 32,
        "num_query_groups": 8,
        "rotary_base": 500000,
    },
    "70b": {  # the shape of Llama 3 70B
        "num_layers": 80,
        "hidden_size": 8192,
        "ffn_hidden_size": 28672,
        "num_attention_heads": 64,
        "num_query_groups": 8,
        "rotary_base": 500000,
    },
}

# A shape the parallel or train section decides: naming it under ``model`` would contradict them.
DECIDED_ELSEWHERE: Final[dict[str, str]] = {
    "tensor_model_parallel_size": "parallel.tensor",
    "pipeline_model_parallel_size": "parallel.pipeline",
    "virtual_pipeline_model_parallel_size": "parallel.virtual_pipeline",
    "context_parallel_size": "parallel.context",
    "expert_model_parallel_size": "parallel.expert",
    "sequence_parallel": "parallel.sequence",
    "bf16": "train.precision",
    "fp16": "train.precision",
    "params_dtype": "train.precision",
    "pipeline_dtype": "train.precision",
    "seq_length": "train.seq_length",
    "max_sequence_length": "train.seq_length",
}
