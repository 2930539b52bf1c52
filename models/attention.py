"""Core attention and norms of the local layer spec (used wherever Transformer Engine is not).

Megatron-Core's own local attention builds the full score matrix and refuses context parallelism,
and its torch norm refuses sequence parallelism. These two do the same arithmetic with torch's
fused attention, and both splits. ``tests/models/test_layouts.py`` compares losses and gradient
norms over layouts.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch.nn.functional import scaled_dot_product_attention


class _GatherSequence(torch.autograd.Function):
    """All-gather along the sequence (dim 0); backward sums every rank's gradient of our part."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, 0)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = grads[0].contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        size, rank = dist.get_world_size(ctx.group), dist.get_rank(ctx.group)
        return total.chunk(size, 0)[rank].contiguous(), None


def _positions(rank: int, ranks: int, length: int, device: torch.device) -> torch.Tensor:
    """Global positions of the ``length`` tokens ``rank`` holds.

    Megatron cuts a sequence in 2 × ranks chunks and gives rank r the chunks r and 2·ranks − 1 − r,
    so that causal work is even.
    """
    half = length // 2
    mirror = 2 * ranks - 1 - rank
    first = torch.arange(rank * half, (rank + 1) * half, device=device)
    last = torch.arange(mirror * half, (mirror + 1) * half, device=device)
    return torch.cat([first, last])


# torch's fused attention on CPU spends most of its time in the backward pass: for short sequences the
# plain matrix products are 1.2 (float32) to 2.5 times (bfloat16) as fast. Beyond this length their
# memory, quadratic in the length, is not worth it.
_SCORES_UP_TO = 1024


def _by_scores(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    allowed: torch.Tensor | None,
    scale: float | None,
) -> torch.Tensor:
    """Attention over ``[batch, heads, sequence, size]`` by the full score matrix."""
    batch, heads, length, size = query.shape
    keys = key.shape[2]
    if allowed is None:
        allowed = torch.ones(length, keys, dtype=torch.bool).tril()
    bias = torch.zeros(length, keys, dtype=query.dtype).masked_fill_(~allowed, float("-inf"))
    scores = torch.baddbmm(
        bias.expand(batch * heads, length, keys),
        query.reshape(batch * heads, length, size),
        key.reshape(batch * heads, keys, size).transpose(1, 2),
        alpha=size**-0.5 if scale is None else scale,
    )
    out = torch.bmm(torch.softmax(scores, -1), value.reshape(batch * heads, keys, size))
    return out.view(batch, heads, length, size)


class CausalAttention(torch.nn.Module):
    """Causal self-attention over ``[sequence, batch, heads, head size]``, grouped queries included.

    The constructor's parameters are the ones Megatron passes to any core attention.
    """

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
    ) -> None:
        super().__init__()
        self.scale = softmax_scale
        self.dropout = config.attention_dropout if attention_dropout is None else attention_dropout
        self.group = parallel_state.get_context_parallel_group()
        self.ranks = dist.get_world_size(self.group)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        attn_mask_type: Any = None,
        attention_bias: torch.Tensor | None = None,
        packed_seq_params: Any = None,
    ) -> torch.Tensor:
        length, batch, heads, size = query.shape
        mask = None
        if self.ranks > 1:
            mine = _positions(dist.get_rank(self.group), self.ranks, length, query.device)
            every = [_positions(r, self.ranks, length, query.device) for r in range(self.ranks)]
            mask = mine[:, None] >= torch.cat(every)[None, :]
            key = _GatherSequence.apply(key, self.group)
            value = _GatherSequence.apply(value, self.group)
        if key.shape[2] != heads:
            # Expanding is faster than enable_gqa on CPU, where that has no fused kernel.
            key = key.repeat_interleave(heads // key.shape[2], dim=2)
            value = value.repeat_interleave(heads // value.shape[2], dim=2)
        query, key, value = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        if query.device.type == "cpu" and key.shape[2] <= _SCORES_UP_TO and not self.dropout:
            out = _by_scores(query, key, value, mask, self.scale)
            return out.permute(2, 0, 1, 3).reshape(length, batch, heads * size)
        out = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=mask is None,
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
        )
        return out.permute(2, 0, 1, 3).reshape(length, batch, heads * size)


class Norm:
    """RMSNorm or LayerNorm by ``config.normalization``.

    Under sequence parallelism each tensor rank sees a part of the sequence: the mark on the
    parameters makes Megatron sum their gradients over those ranks. Without it they are silently
    wrong.
    """

    def __new__(cls, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:
        kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
        norm = kind(hidden_size, eps=eps)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm
