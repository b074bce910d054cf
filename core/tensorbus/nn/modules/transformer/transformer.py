"""Stacks of Transformer layers, and the whole (Vaswani et al. 2017).

Parameters, arguments and values are PyTorch's.
"""

from __future__ import annotations

import copy
from typing import Any

from ....devices.device import Device
from ....dtypes.definition import DType
from ....dtypes.info import result_type
from ....errors import ShapeError
from ....ops.creation.creation import full, triu
from ....ops.elementwise.where_cast import cast, where
from ....ops.movement.movement import permute_dims, reshape
from ....tensor.grad_mode import grad_enabled
from ....tensor.tensor import Tensor
from ....tracing.active_tracer import active_tracer
from ... import init
from ...attention.packed_rows import PackedRows, have_values, is_worth_packing, of_packed_rows
from ...functional.attention import seen_keys
from ...hooks import EVERYWHERE
from ...module import Module
from ..container import ModuleList
from ..normalization import LayerNorm
from .packed_batch import PackedBatch, encoder_mask
from .transformer_layer import Activation, TransformerDecoderLayer, TransformerEncoderLayer


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList(copy.deepcopy(layer) for _ in range(count))


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer, one after the other.

    With ``enable_nested_tensor``, in inference (``eval()``, nothing to be differentiated), the places that
    ``src_key_padding_mask`` marks, any places, are 0 in the result of the last layer, and cost no work: the
    layers get the other rows alone. It waits for the device once, for how many they are. So does a compiled
    program, whole and one for all masks, where its products are large. So it is with
    ``TransformerEncoderLayer`` whose activation is relu, gelu or silu; other layers, and all of them in
    training, compute padding and leave it in the result. ``mask_check`` is PyTorch's, which checks that
    padding is behind; here it makes no difference.
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
        enable_nested_tensor: bool = True, mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        self.register_module("norm", norm)

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Any:  # fmt: skip
        """Return the result of the last layer, normalized where there is a ``norm``."""
        if src_key_padding_mask is not None and self._leaves_padding_out(src, src_key_padding_mask):
            src = self._without_padding(src, mask, src_key_padding_mask)
        else:
            for layer in self.layers:
                src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
        return src if self.norm is None else self.norm(src)

    def _leaves_padding_out(self, src: Tensor, padding: Tensor) -> bool:
        """Return whether the layers are to leave nothing in the places of padding."""
        layers = [*self.layers]
        if not (self.enable_nested_tensor and layers and len(src.shape) == 3):
            return False
        if grad_enabled.get() and any(x.requires_grad for x in (src, *self.parameters())):
            return False
        if not all(isinstance(layer, TransformerEncoderLayer) and layer.is_packable() for layer in layers):
            return False
        first = layers[0].self_attn
        places = src.shape[:2] if first.batch_first else src.shape[1::-1]
        return padding.shape == places and all(
            layer.self_attn.num_heads == first.num_heads
            and layer.self_attn.batch_first == first.batch_first for layer in layers
        )  # fmt: skip

    def _may_pack(self, src: Tensor, keep: Tensor) -> bool:
        """Return whether the layers may have the rows alone: in a program, of large products."""
        if EVERYWHERE or any(module._hooks for module in self.layers.modules()):
            return False
        if active_tracer() is None:
            return have_values(src, keep)
        return is_worth_packing(src.size * src.shape[2], (), src, keep)

    def _without_padding(self, src: Tensor, mask: Tensor | None, padding: Tensor) -> Tensor:
        """Return the result of the last layer, 0 where there is padding."""
        first: Any = self.layers[0]
        sequence_first, heads = not first.self_attn.batch_first, first.self_attn.num_heads
        keep = seen_keys(padding)
        if not self._may_pack(src, keep):
            for layer in self.layers:
                src = layer(src, src_mask=mask, src_key_padding_mask=padding)
            places = permute_dims(keep, (1, 0)) if sequence_first else keep
            unpadded: Tensor = where(reshape(places, (*src.shape[:2], 1)), src, 0)
            return unpadded

        def layers(rows: PackedRows, x: Tensor, mask: Tensor) -> tuple[Tensor]:
            batch, x = PackedBatch(rows, mask), rows.pack(x)
            if not rows.count:  # nothing to compute: the dtype is that of other masks all the same
                return (rows.unpack(cast(x, result_type(x, *self.layers.parameters()))),)
            for layer in self.layers:
                x = layer.forward_packed(x, batch)
            return (rows.unpack(x),)

        x = permute_dims(src, (1, 0, 2)) if sequence_first else src
        (out,) = of_packed_rows(layers, keep, (x, encoder_mask(mask, padding, keep, heads, src)))
        return permute_dims(out, (1, 0, 2)) if sequence_first else out


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer, one after the other."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.register_module("norm", norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """Return the result of the last layer, normalized where there is a ``norm``."""
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder that attends to what it found.

    Raises ``ShapeError`` where source and target differ in batch or width.

    >>> import tensorbus as tb
    >>> model = tb.nn.Transformer(8, 2, 1, 1, 16)
    >>> model(tb.ones((5, 3, 8)), tb.ones((4, 3, 8))).shape
    (4, 3, 8)
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = "relu",
        custom_encoder: Module | None = None, custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
        device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        settings: Any = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
            bias, device, dtype,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = (
            TransformerEncoder(TransformerEncoderLayer(*settings), num_encoder_layers, norm())
            if custom_encoder is None
            else custom_encoder
        )
        self.decoder = (
            TransformerDecoder(TransformerDecoderLayer(*settings), num_decoder_layers, norm())
            if custom_decoder is None
            else custom_decoder
        )
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw new initial values of all matrices."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """Return the decoder's result, of the shape of ``tgt``."""
        axis = 0 if self.batch_first else 1
        if src.ndim != tgt.ndim or src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError(
                f"Transformer: source and target of width {self.d_model} are needed, got {src.shape} and"
                f" {tgt.shape}."
            )
        if src.ndim == 3 and src.shape[axis] != tgt.shape[axis]:
            raise ShapeError(f"Transformer: one batch is needed, got {src.shape} and {tgt.shape}.")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: Device | str | None = None, dtype: DType | str | None = None
    ) -> Tensor:
        """Return the mask that lets each place see those up to its own: ``-inf`` above the diagonal.

        >>> import tensorbus as tb
        >>> tb.nn.Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        kind = "float32" if dtype is None else dtype
        return triu(full((sz, sz), float("-inf"), dtype=kind, device=device), k=1)
