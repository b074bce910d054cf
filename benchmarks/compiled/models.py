"""The models of the figures, written once: tensorbus and PyTorch have the same names for what they need."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

WIDTH, HEADS, LENGTH, VOCABULARY = 768, 12, 512, 50257
"""GPT-2-small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library's parts of models: ``nn``, its functions, the array namespace, and what differs in it."""

    nn: Any
    functional: Any
    arrays: Any
    permute: Any
    unbind: Any


def mlp(of: Library, *widths: int) -> Any:
    """Return linear layers with ReLU between them."""
    parts: list[Any] = []
    for inner, outer in pairwise(widths):
        parts += [of.nn.ReLU()] * bool(parts) + [of.nn.Linear(inner, outer)]
    return of.nn.Sequential(*parts)


def block_class(of: Library) -> type[Any]:
    """Return the class of transformer blocks: attention and a feed-forward part, each behind a layer norm."""

    class Block(of.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.before, self.between = of.nn.LayerNorm(width), of.nn.LayerNorm(width)
            self.mix, self.out = of.nn.Linear(width, 3 * width), of.nn.Linear(width, width)
            self.wide, self.narrow = of.nn.Linear(width, 4 * width), of.nn.Linear(4 * width, width)

        def attend(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = of.arrays.reshape(self.mix(x), (batch, length, 3, self.heads, width // self.heads))
            q, k, v = of.unbind(of.permute(parts, (2, 0, 3, 1, 4)))
            out = of.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(of.arrays.reshape(of.permute(out, (0, 2, 1, 3)), (batch, length, width)))

        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.before(x))
            wide = of.functional.gelu(self.wide(self.between(x)), approximate="tanh")  # as GPT-2 has it
            return x + self.narrow(wide)

    return Block


def gpt(of: Library, layers: int, width: int, heads: int, length: int, vocabulary: int) -> Any:
    """Return the whole language model, tokens to logits; the embedding is the last layer's weight too."""
    block = block_class(of)

    class GPT(of.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = of.nn.Embedding(vocabulary, width), of.nn.Embedding(length, width)
            self.blocks = of.nn.ModuleList([block(width, heads) for _ in range(layers)])
            self.last = of.nn.LayerNorm(width)

        def hidden(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places.weight
            for part in self.blocks:
                x = part(x)
            return self.last(x)

        def forward(self, tokens: Any) -> Any:
            return of.functional.linear(self.hidden(tokens), self.words.weight)

    return GPT()


def residual(of: Library, channels: int) -> Any:
    """Return a ResNet block."""

    def norm_and_conv() -> tuple[Any, Any]:
        return of.nn.Conv2d(channels, channels, 3, padding=1, bias=False), of.nn.BatchNorm2d(channels)

    class Residual(of.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.first_norm = norm_and_conv()
            self.second, self.second_norm = norm_and_conv()

        def forward(self, x: Any) -> Any:
            y = of.functional.relu(self.first_norm(self.first(x)))
            return of.functional.relu(self.second_norm(self.second(y)) + x)

    return Residual()
