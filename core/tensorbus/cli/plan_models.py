"""The models that ``tensorbus plan`` knows: decoders like GPT and Llama in any size, and how they split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from .. import distributed as dist
from .. import nn
from ..eager.functions import concat
from ..func.checkpoint import checkpoint
from ..interchange.host_array import asarray
from ..ops.creation.creation import ones
from ..tensor.tensor import Tensor

Styles = Mapping[str, dist.ParallelStyle]


@dataclass(frozen=True, kw_only=True)
class DecoderSize:
    """A decoder's size: ``hidden`` is the width between the two matrices of a feed-forward layer."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    sequence: int


class Rotary(nn.Module):
    """Rotates halves of each head by angles that grow with the place in the sequence."""

    def __init__(self, head: int, sequence: int) -> None:
        super().__init__()
        self.register_buffer("cos", ones((sequence, head // 2)), persistent=False)
        self.register_buffer("sin", ones((sequence, head // 2)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` of shape (batch, heads, sequence, head) rotated."""
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        cos, sin = self.cos[: x.shape[-2]].to(x.dtype), self.sin[: x.shape[-2]].to(x.dtype)
        return concat([a * cos - b * sin, b * cos + a * sin], axis=-1)


class Attention(nn.Module):
    """Causal attention whose keys and values have ``kv_heads`` heads."""

    def __init__(self, size: DecoderSize, bias: bool, rotary: Rotary | None) -> None:
        super().__init__()
        self.head = size.width // size.heads
        self.q = nn.Linear(size.width, size.width, bias=bias)
        self.k = nn.Linear(size.width, size.kv_heads * self.head, bias=bias)
        self.v = nn.Linear(size.width, size.kv_heads * self.head, bias=bias)
        self.out = nn.Linear(size.width, size.width, bias=bias)
        self.rotary = rotary

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of ``x``: (batch, sequence, width)."""
        q, k, v = [
            layer(x).reshape((*x.shape[:2], -1, self.head)).swapaxes(1, 2)
            for layer in (self.q, self.k, self.v)
        ]
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        grouped = q.shape[1] != k.shape[1]
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        result: Tensor = self.out(y.swapaxes(1, 2).reshape((*x.shape[:2], -1)))
        return result


class GptBlock(nn.Module):
    """Attention and two layers with GELU between them, each after a norm."""

    def __init__(self, size: DecoderSize, rotary: Rotary | None) -> None:
        super().__init__()
        self.attention_norm, self.norm = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.attention = Attention(size, bias=True, rotary=rotary)
        self.up, self.down = nn.Linear(size.width, size.hidden), nn.Linear(size.hidden, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of ``x``."""
        x = x + self.attention(self.attention_norm(x))
        result: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return result


class LlamaBlock(nn.Module):
    """Attention and a gated feed-forward layer, each after a norm."""

    def __init__(self, size: DecoderSize, rotary: Rotary | None) -> None:
        super().__init__()
        self.attention_norm, self.norm = nn.RMSNorm(size.width), nn.RMSNorm(size.width)
        self.attention = Attention(size, bias=False, rotary=rotary)
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of ``x``."""
        x = x + self.attention(self.attention_norm(x))
        y = self.norm(x)
        result: Tensor = x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))
        return result


_READ_BY_SEVERAL: Final = dist.PrepareModuleOutput(
    output_layouts=dist.Replicate(), desired_output_layouts=dist.Replicate(), use_local_output=False
)
"""Queries, keys and values read one norm, up and gate another: their gradients are reduced once, added up."""


class Decoder(nn.Module):
    """Predicts the next token; ``forward`` returns the loss. ``checkpointed`` keeps blocks' inputs only."""

    parallel_plan: Styles = {
        "tokens": dist.RowwiseParallel(input_layouts=dist.Replicate()),
        "blocks.*.*norm": _READ_BY_SEVERAL,
        "blocks.*.attention.[qkv]": dist.ColwiseParallel(),
        "blocks.*.attention.out": dist.RowwiseParallel(),
        "blocks.*.up": dist.ColwiseParallel(),
        "blocks.*.down": dist.RowwiseParallel(),
        "head": dist.ColwiseParallel(use_local_output=False),
    }

    def __init__(
        self,
        size: DecoderSize,
        block: Callable[[DecoderSize, Rotary | None], nn.Module],
        learned_positions: bool,
    ) -> None:
        super().__init__()
        self.kv_heads = size.kv_heads
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.sequence, size.width) if learned_positions else None
        rotary = None if learned_positions else Rotary(size.width // size.heads, size.sequence)
        self.blocks = nn.ModuleList([block(size, rotary) for _ in range(size.layers)])
        self.norm = nn.LayerNorm(size.width) if learned_positions else nn.RMSNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.checkpointed = False

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of ``targets``; both are integers of shape (batch, sequence)."""
        x = self.tokens(tokens)
        if self.positions is not None:
            places = asarray(range(tokens.shape[1]), dtype=tokens.dtype, device=tokens.device)
            x = x + self.positions(places)
        for block in self.blocks:
            x = checkpoint(block, x) if self.checkpointed else block(x)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits.reshape((-1, logits.shape[-1])), targets.reshape((-1,)))


class Gpt(Decoder):
    """A decoder with learned positions, as GPT-2, whose last layer has the weights of the tokens."""

    def __init__(self, size: DecoderSize) -> None:
        super().__init__(size, GptBlock, learned_positions=True)
        self.head.weight = self.tokens.weight


class Llama(Decoder):
    """A decoder with rotated positions, gated layers and grouped heads, as Llama."""

    parallel_plan = {**Decoder.parallel_plan, "blocks.*.gate": dist.ColwiseParallel()}

    def __init__(self, size: DecoderSize) -> None:
        super().__init__(size, LlamaBlock, learned_positions=False)


_LLAMA: Final = DecoderSize(
    layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, vocabulary=128256, sequence=8192
)
PRESETS: Final[dict[str, tuple[Callable[[DecoderSize], Decoder], DecoderSize]]] = {
    "gpt2": (Gpt, DecoderSize(layers=12, width=768, heads=12, kv_heads=12, hidden=3072, vocabulary=50257,
                       sequence=1024)),
    "llama-8b": (Llama, _LLAMA),
    "llama-70b": (Llama, replace(_LLAMA, layers=80, width=8192, heads=64, hidden=28672)),
}  # fmt: skip


def build(
    name: str, batch: int, checkpointed: bool, changes: Mapping[str, Any]
) -> tuple[Decoder, tuple[Tensor, ...]]:
    """Return a preset in the size that ``changes`` leave, and the arguments of its ``forward``.

    A width that is changed alone keeps the proportions of heads and feed-forward layers.
    """
    kind, size = PRESETS[name]
    if "width" in changes:
        size = replace(size, hidden=size.hidden * changes["width"] // size.width)
    if "heads" in changes:
        size = replace(size, kv_heads=max(size.kv_heads * changes["heads"] // size.heads, 1))
    size = replace(size, **changes)
    if size.width % size.heads or size.heads % size.kv_heads:
        raise ValueError(
            f"--width {size.width} must be divisible by --heads {size.heads}, and these by --kv-heads"
            f" {size.kv_heads}."
        )
    model = kind(size)
    model.checkpointed = checkpointed
    tokens = ones((batch, size.sequence), dtype="int64")
    return model, (tokens, tokens)
