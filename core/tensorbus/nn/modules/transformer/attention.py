"""Attention over several heads (Vaswani et al. 2017), with PyTorch's parameters, arguments and values."""

from __future__ import annotations

from ....devices.device import Device
from ....dtypes.definition import DType
from ....errors import ArgumentError
from ....ops.creation.creation import empty
from ....ops.matmul.linear import linear
from ....ops.movement.movement import permute_dims
from ....tensor.tensor import Tensor
from ... import functional, init
from ...functional.attention import of_distinct
from ...module import Module
from ...parameter import Parameter
from ..linear import Linear, positive
from .packed_batch import PackedBatch


class NonDynamicallyQuantizableLinear(Linear):
    """The projection after attention: a ``Linear`` by the name that PyTorch shows for it."""


class MultiheadAttention(Module):
    """Attention of ``query`` to ``key`` and ``value``, projected to ``num_heads`` heads and back.

    Raises ``ArgumentError`` unless the heads divide ``embed_dim``.

    >>> import tensorbus as tb
    >>> x = tb.ones((2, 5, 8))
    >>> out, shares = tb.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
    >>> out.shape, shares.shape
    ((2, 5, 8), (2, 5, 5))
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
        vdim: int | None = None, batch_first: bool = False, device: Device | str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        positive("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise ArgumentError(
                f"MultiheadAttention: num_heads must divide embed_dim, got {num_heads} and {embed_dim}."
            )
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn

        def parameter(*shape: int) -> Parameter:
            return Parameter(empty(shape, device=device, dtype=dtype))

        joint = self.kdim == self.vdim == embed_dim
        apart = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        for name, width in apart.items():
            self.register_parameter(f"{name}_proj_weight", None if joint else parameter(embed_dim, width))
        self.register_parameter("in_proj_weight", parameter(3 * embed_dim, embed_dim) if joint else None)
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        self.register_parameter("bias_k", parameter(1, 1, embed_dim) if add_bias_kv else None)
        self.register_parameter("bias_v", parameter(1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw new initial values."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return the result, and with ``need_weights`` the shares of the keys.

        These are averaged over the heads unless ``average_attn_weights`` is False. Inputs are
        ``(length, batch, width)``, with ``batch_first`` ``(batch, length, width)``, or all without the batch.
        In masks, True marks what must not be seen; float masks are added. In inference no key or value that
        ``key_padding_mask`` marks is projected, where that is worth it; every query counts, marked or not.
        """
        turn = self.batch_first and query.ndim == 3
        if turn:
            query, key, value = of_distinct(lambda x: permute_dims(x, (1, 0, 2)), query, key, value)
        out, shares = functional.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias,
            self.bias_k, self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight,
            self.out_proj.bias, self.training, key_padding_mask, need_weights, attn_mask,
            self.in_proj_weight is None, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight,
            average_attn_weights, is_causal,
        )  # fmt: skip
        return (permute_dims(out, (1, 0, 2)) if turn else out), shares

    def forward_packed(self, x: Tensor, batch: PackedBatch) -> Tensor:
        """Return the attention of a batch to itself, of its rows without padding, ``(count, embed_dim)``.

        The projections are joint, and nothing is added to the keys.
        """
        projected = linear(x, self.in_proj_weight, self.in_proj_bias)
        attended = batch.attend(projected, self.num_heads)
        return linear(attended, self.out_proj.weight, self.out_proj.bias)
