"""The layers of a Transformer (Vaswani et al. 2017), with PyTorch's parameters, arguments and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from ....devices.device import Device
from ....dtypes.definition import DType
from ....errors import ArgumentError
from ....ops.matmul.linear import linear
from ....tensor.tensor import Tensor
from ... import functional
from ...module import Module
from ..dropout import Dropout
from ..linear import Linear
from ..normalization import LayerNorm
from .attention import MultiheadAttention
from .packed_batch import PackedBatch

Activation = str | Callable[[Tensor], Tensor]


def _activation(layer: str, activation: Activation) -> Callable[[Any], Any]:
    if callable(activation):
        return activation
    known: dict[str, Callable[[Any], Any]] = {"relu": functional.relu, "gelu": functional.gelu}
    if activation not in known:
        raise ArgumentError(f"{layer}: activation must be 'relu', 'gelu' or a function, got {activation!r}.")
    return known[activation]


_ELEMENTWISE: Final = (functional.relu, functional.gelu, functional.silu)
"""Functions between the layers of a feed-forward network that treat each element by itself."""


class _TransformerLayer(Module):
    """The parts of a layer: ``attentions`` by name, a feed-forward network, normalization around each."""

    attentions: ClassVar[tuple[str, ...]]
    self_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Device | str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        at: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **at))
        self.linear1 = Linear(d_model, dim_feedforward, **at)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **at)
        self.norm_first = norm_first
        sublayers = range(1, len(self.attentions) + 2)
        for k in sublayers:
            setattr(self, f"norm{k}", LayerNorm(d_model, layer_norm_eps, **at))
        for k in sublayers:
            setattr(self, f"dropout{k}", Dropout(dropout))
        self.activation = _activation(type(self).__name__, activation)


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward network, each with a residual connection and normalization.

    >>> import tensorbus as tb
    >>> tb.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(tb.ones((3, 5, 8))).shape
    (3, 5, 8)
    """

    attentions = ("self_attn",)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """Return the result, of the shape of ``src``."""

        def attend(x: Tensor) -> Any:
            named = {"need_weights": False, "attn_mask": src_mask, "is_causal": is_causal}
            return self.self_attn(x, x, x, src_key_padding_mask, **named)[0]

        return self._sublayers(src, attend, self._feed)

    def forward_packed(self, x: Tensor, batch: PackedBatch) -> Any:
        """Return what ``forward`` gives of rows of a batch without its padding."""

        def feed(x: Tensor) -> Any:
            hidden = self.activation(linear(x, self.linear1.weight, self.linear1.bias))
            return linear(hidden, self.linear2.weight, self.linear2.bias)

        return self._sublayers(x, lambda x: self.self_attn.forward_packed(x, batch), feed)

    def is_packable(self) -> bool:
        """Return whether each row is by itself in inference but for attention, as far as can be told."""
        parts = (self.self_attn, self.linear1, self.linear2, self.norm1, self.norm2)
        kinds = (MultiheadAttention, Linear, Linear, LayerNorm, LayerNorm)
        return (
            type(self) is TransformerEncoderLayer
            and all(type(part) is kind for part, kind in zip(parts, kinds, strict=True))
            and self.activation in _ELEMENTWISE
            and not any(module.training for module in self.modules())
            and self.self_attn.in_proj_weight is not None
            and self.self_attn.bias_k is None
            and not self.self_attn.add_zero_attn
        )

    def _sublayers(self, x: Tensor, attend: Callable[[Tensor], Any], feed: Callable[[Tensor], Any]) -> Any:
        if self.norm_first:
            x = x + self.dropout1(attend(self.norm1(x)))
            return x + feed(self.norm2(x))
        x = self.norm1(x + self.dropout1(attend(x)))
        return self.norm2(x + feed(x))

    def _feed(self, x: Tensor) -> Any:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to the memory, and a feed-forward network, each with a residual.

    >>> import tensorbus as tb
    >>> layer = tb.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(tb.ones((3, 4, 8)), tb.ones((3, 5, 8))).shape
    (3, 4, 8)
    """

    attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiheadAttention
    norm3: LayerNorm
    dropout3: Dropout

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """Return the result, of the shape of ``tgt``."""
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            tgt = tgt + self._attend(self.norm1(tgt), *own)
            tgt = tgt + self._remember(self.norm2(tgt), memory, *other)
            return tgt + self._feed(self.norm3(tgt))
        tgt = self.norm1(tgt + self._attend(tgt, *own))
        tgt = self.norm2(tgt + self._remember(tgt, memory, *other))
        return self.norm3(tgt + self._feed(tgt))

    def _attend(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool) -> Any:
        return self.dropout1(self.self_attn(x, x, x, padding, False, mask, is_causal=is_causal)[0])

    def _remember(
        self, x: Tensor, memory: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool
    ) -> Any:
        attended = self.multihead_attn(x, memory, memory, padding, False, mask, is_causal=is_causal)[0]
        return self.dropout2(attended)

    def _feed(self, x: Tensor) -> Any:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))
