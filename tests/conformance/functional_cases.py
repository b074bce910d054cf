"""Calls of ``nn.functional`` and of modules, whose values PyTorch 2.13 has computed: see ``torch_values``.

A call is a name, the arrays handed over, and the rest. Arrays are drawn from a seed, so that only results are
stored. The names are the same in both libraries, and so are the arguments.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from samples import Array


@dataclass(frozen=True, slots=True)
class Drawn:
    """An array drawn between ``low`` and ``high``: integers if ``whole``, bools if ``yes``.

    Floats have a gradient unless ``fixed``.
    """

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    whole: bool = False
    yes: bool = False
    fixed: bool = False

    def array(self, seed: str) -> Array:
        """Return the array."""
        rng = np.random.default_rng(zlib.crc32(seed.encode()))
        if self.yes:
            result = rng.random(self.shape) < 0.6
            result[..., 0] = True
            return result
        if self.whole:
            return rng.integers(int(self.low), int(self.high), self.shape)
        return rng.uniform(self.low, self.high, self.shape).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or the constructor of a module and what it is called with."""

    name: str
    arrays: tuple[Drawn, ...]
    rest: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    module: bool = False

    @property
    def label(self) -> str:
        """What the call is stored under."""
        return f"{self.name} {[a.shape for a in self.arrays]} {self.rest} {self.named}"

    def drawn(self) -> list[Array]:
        """Return the arrays."""
        return [a.array(f"{self.label} {k}") for k, a in enumerate(self.arrays)]


def x(*shape: int) -> Drawn:
    return Drawn(shape)


def share(*shape: int) -> Drawn:
    return Drawn(shape, 0.1, 0.9)


def fixed(*shape: int) -> Drawn:
    return Drawn(shape, 0.1, 0.9, fixed=True)


def places(count: int, *shape: int) -> Drawn:
    return Drawn(shape, 0, count, whole=True)


def f(name: str, *arrays: Drawn, rest: tuple[Any, ...] = (), **named: Any) -> Call:
    return Call(name, arrays, rest, named)


def m(name: str, args: tuple[Any, ...], *arrays: Drawn, **named: Any) -> Call:
    return Call(name, arrays, args, named, module=True)


def _losses() -> Iterator[Call]:
    for reduction in ("mean", "sum", "none"):
        yield f("cross_entropy", x(3, 4, 2), places(4, 3, 2), reduction=reduction, label_smoothing=0.1)
        yield f("nll_loss", x(3, 4), places(4, 3), reduction=reduction, ignore_index=1)
        yield f("binary_cross_entropy", share(2, 3), fixed(2, 3), reduction=reduction)
        yield f("kl_div", x(2, 3), fixed(2, 3), reduction=reduction)
        yield f("huber_loss", x(2, 3), x(2, 3), reduction=reduction, delta=0.7)
    yield f("cross_entropy", x(4), places(4))
    yield f("cross_entropy", x(3, 4), share(3, 4))
    yield f("binary_cross_entropy_with_logits", Drawn((2, 3), -30, 30), fixed(2, 3))
    yield f("kl_div", x(2, 3), x(2, 3), reduction="batchmean", log_target=True)
    yield f("mse_loss", x(2, 3), x(2, 3))
    yield f("l1_loss", x(2, 3), x(2, 3))
    yield f("smooth_l1_loss", x(2, 3), x(2, 3), beta=0.5)
    yield f("poisson_nll_loss", x(2, 3), Drawn((2, 3), 0, 4, fixed=True), full=True)
    yield f("gaussian_nll_loss", x(2, 3), x(2, 3), Drawn((2, 1), 0.2, 2), full=True)
    yield f("soft_margin_loss", x(2, 3), fixed(2, 3))
    yield f("multi_margin_loss", x(3, 4), places(4, 3), p=2, margin=0.5)
    yield f("multilabel_soft_margin_loss", x(2, 3), fixed(2, 3))
    yield f("multilabel_margin_loss", x(3, 4), Drawn((3, 4), -1, 4, whole=True))
    yield f("multilabel_margin_loss", x(3), Drawn((3,), 0, 3, whole=True), reduction="sum")
    yield f("cosine_embedding_loss", x(3, 4), x(3, 4), Drawn((3,), -1, 2, whole=True), margin=0.2)
    yield f("hinge_embedding_loss", x(2, 3), Drawn((2, 3), -1, 2, whole=True))
    yield f("margin_ranking_loss", x(4), x(4), fixed(4), margin=0.3)
    yield f("triplet_margin_loss", x(3, 4), x(3, 4), x(3, 4), swap=True)
    yield f("cosine_similarity", x(3, 4), x(3, 4))
    yield f("pairwise_distance", x(3, 4), x(3, 4), p=3.0)
    yield f("normalize", x(3, 4), p=1.0)
    for p in (1.0, 2.0, 3.0, math.inf):
        yield f("pdist", x(4, 3), p=p)
    yield f("rrelu", x(2, 3), lower=0.1, upper=0.5)


def _layers() -> Iterator[Call]:
    for rank, space in ((1, (6,)), (2, (5, 4)), (3, (4, 3, 3))):
        image, kernel = x(2, 4, *space), (3, 2, 2)[:rank]
        yield f(f"conv{rank}d", image, x(4, 2, *kernel), x(4), stride=2, padding=1, groups=2)
        yield f(f"conv{rank}d", image, x(2, 4, *kernel), padding="same")
        yield f(
            f"conv_transpose{rank}d", image, x(4, 1, *kernel), x(2), stride=2, padding=1, output_padding=1,
            groups=2,
        )  # fmt: skip
        yield f(
            f"max_pool{rank}d", image, rest=(2,), padding=1, stride=2, ceil_mode=True, return_indices=True
        )
        yield f(f"avg_pool{rank}d", image, rest=(2,), padding=1, ceil_mode=True, count_include_pad=False)
        yield f(f"lp_pool{rank}d", Drawn((1, 2, *space), 0.1, 2), rest=(2.0, 2))
        yield f(f"adaptive_avg_pool{rank}d", image, rest=(3,))
        yield f(f"adaptive_max_pool{rank}d", image, rest=(2,), return_indices=True)
        mode = ("linear", "bilinear", "trilinear")[rank - 1]
        yield f("interpolate", x(1, 2, *space), scale_factor=1.6, mode=mode)
        yield f("interpolate", x(1, 2, *space), size=3, mode=mode, align_corners=True)
        yield f("interpolate", x(1, 2, *space), size=4, mode="nearest-exact")
        yield f("interpolate", x(1, 2, *space), size=7, mode="nearest")
        for how in ("reflect", "replicate", "circular"):
            yield f("pad", image, rest=((2, 1, 1, 0, 1, 2)[: 2 * rank], how))
        yield f("batch_norm", image, fixed(4), fixed(4), x(4), x(4), eps=0.01)
        yield f("instance_norm", image, eps=0.01)
    yield f("interpolate", x(1, 2, 5, 4), size=(7, 3), mode="bicubic")
    yield f("interpolate", x(1, 2, 7, 6), size=(3, 4), mode="bicubic", antialias=True)
    yield f("interpolate", x(1, 2, 7, 6), size=(7, 4), mode="bicubic", antialias=True)
    yield f("interpolate", x(1, 2, 7, 6), size=(7, 6), mode="bilinear", antialias=True)
    yield f("interpolate", x(1, 2, 7, 6), size=(3, 4), mode="area")
    yield f("layer_norm", x(2, 3, 4), rest=((3, 4),), eps=0.1)
    yield f("rms_norm", x(2, 3, 4), rest=((4,),), eps=0.1)
    yield f("group_norm", x(2, 4, 3), rest=(2,), eps=0.1)
    yield f("local_response_norm", x(2, 4, 3), rest=(3,), alpha=0.5)
    yield f("unfold", x(1, 2, 4, 5), rest=(2,), dilation=2, padding=1)
    yield f("fold", x(1, 8, 6), rest=((3, 4), 2))
    yield f("pixel_shuffle", x(1, 8, 2, 3), rest=(2,))
    yield f("pixel_unshuffle", x(1, 2, 4, 6), rest=(2,))
    yield f("channel_shuffle", x(1, 6, 2), rest=(3,))
    yield f("bilinear", x(2, 3), x(2, 4), x(5, 3, 4), x(5))
    for mode in ("bilinear", "nearest", "bicubic"):
        for outside in ("zeros", "border", "reflection"):
            yield f("grid_sample", x(1, 2, 4, 3), x(1, 3, 2, 2), mode=mode, padding_mode=outside)
    yield f("grid_sample", x(1, 2, 3, 3, 2), x(1, 2, 2, 2, 3), align_corners=True)
    yield f("affine_grid", x(1, 2, 3), rest=((1, 2, 3, 4),))
    yield f("embedding", places(5, 2, 3), x(5, 2), padding_idx=1)
    for mode in ("sum", "mean", "max"):
        yield f("embedding_bag", places(5, 3, 4), x(5, 2), mode=mode, padding_idx=0)
    yield f("scaled_dot_product_attention", x(2, 3, 4), x(2, 5, 4), x(2, 5, 2), Drawn((3, 5), yes=True))
    yield f("scaled_dot_product_attention", x(2, 3, 4), x(2, 5, 4), x(2, 5, 2), x(3, 5), scale=0.3)
    yield f("scaled_dot_product_attention", x(2, 4, 3, 2), x(2, 2, 3, 2), x(2, 2, 3, 2), is_causal=True,
            enable_gqa=True)  # fmt: skip


def _modules() -> Iterator[Call]:
    yield m("Conv1d", (2, 2, 3), x(1, 2, 5), padding=2, padding_mode="reflect")
    yield m("BatchNorm3d", (2,), x(3, 2, 2, 2, 2))
    yield m("InstanceNorm1d", (2,), x(3, 2, 4), affine=True)
    yield m("GroupNorm", (2, 4), x(3, 4, 2))
    yield m("RMSNorm", (4,), x(3, 4))
    for name in ("RNN", "LSTM", "GRU"):
        yield m(name, (3, 2, 2), x(4, 2, 3), bidirectional=True)
        yield m(name, (3, 2), x(2, 4, 3), batch_first=True, bias=False)
        yield m(f"{name}Cell", (3, 2), x(2, 3))
    yield m("LSTM", (3, 4), x(3, 3), proj_size=2)
    yield m("MultiheadAttention", (4, 2), x(3, 2, 4), x(5, 2, 4), x(5, 2, 4))
    yield m(
        "MultiheadAttention", (4, 2), x(2, 3, 4), x(2, 5, 3), x(2, 5, 2), kdim=3, vdim=2, batch_first=True,
        add_bias_kv=True, add_zero_attn=True,
    )  # fmt: skip
    yield m("TransformerEncoderLayer", (4, 2, 6), x(3, 2, 4), dropout=0.0, norm_first=True)
    yield m("TransformerDecoderLayer", (4, 2, 6), x(3, 2, 4), x(5, 2, 4), dropout=0.0, activation="gelu")
    yield m("Transformer", (4, 2, 1, 1, 6), x(2, 3, 4), x(2, 2, 4), dropout=0.0, batch_first=True)


CALLS = [*_losses(), *_layers(), *_modules()]


def parameter(name: str, shape: tuple[int, ...]) -> Array:
    """Return the value of a parameter or buffer of a module, by its name."""
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    return Drawn(shape, 0.1, 0.9).array(f"parameter {name} {shape}")
