"""Arguments that functions of ``nn`` refuse: shapes and settings that do not go together."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import ArgumentError as Argument
from tensorbus import DtypeError as Dtype
from tensorbus import ShapeError as Shape
from tensorbus import nn

F = nn.functional
Refusal = tuple[Callable[[Any], Any], type[Exception], str]
BAD: dict[str, Refusal] = {
    "cross entropy of a scalar": (lambda t: F.cross_entropy(t.x.sum(), t.n), Shape, "scores of shape"),
    "class weights": (lambda t: F.cross_entropy(t.x, t.n, t.v), Shape, r"weight of shape \(3,\)"),
    "smoothing": (lambda t: F.cross_entropy(t.x, t.n, label_smoothing=2.0), Argument, "label_smoothing"),
    "targets of floats": (lambda t: F.nll_loss(t.x, t.v), Dtype, "class indices"),
    "targets of a shape": (lambda t: F.nll_loss(t.x, t.n[:1]), Shape, r"target of shape \(2,\)"),
    "a reduction": (lambda t: F.l1_loss(t.x, t.x, reduction="all"), Argument, "'mean', 'sum' or 'none'"),
    "unequal shapes": (lambda t: F.binary_cross_entropy(t.x, t.v), Shape, "one shape"),
    "a delta": (lambda t: F.huber_loss(t.x, t.x, delta=0.0), Argument, "delta must be > 0"),
    "a beta": (lambda t: F.smooth_l1_loss(t.x, t.x, beta=-1.0), Argument, "beta must be >= 0"),
    "variances": (lambda t: F.gaussian_nll_loss(t.x, t.x, t.x.mT), Shape, r"gaussian_nll_loss: .*\(3, 2\)"),
    "a margin": (lambda t: F.triplet_margin_loss(t.x, t.x, t.x, margin=0.0), Argument, "margin must be > 0"),
    "groups": (lambda t: F.group_norm(t.x, 2), Shape, "2 group"),
    "one value per channel": (lambda t: F.instance_norm(t.x[:, :, None]), Shape, "more than one value"),
    "no statistics": (lambda t: F.batch_norm(t.x, None, None), Argument, "running_mean"),
    "a normalized shape": (lambda t: F.rms_norm(t.x, (2,)), Shape, "normalized shape"),
    "neighbours of nothing": (lambda t: F.local_response_norm(t.x, 2), Shape, "3 dimensions"),
    "transposed channels": (lambda t: F.conv_transpose1d(t.x, t.x.T[:, :, None]), Shape, "2 channels"),
    "output padding": (
        lambda t: F.conv_transpose1d(t.x, t.x[:, :, None], output_padding=1), Shape, "must be smaller",
    ),
    "ranks": (lambda t: F.conv_transpose2d(t.x, t.x), Shape, "4 dimensions"),
    "a large window": (lambda t: F.avg_pool1d(t.x, 4), Shape, "does not fit"),
    "a divisor": (lambda t: F.avg_pool2d(t.x[None], 1, divisor_override=0), Argument, "divisor_override"),
    "padding of a window": (lambda t: F.avg_pool1d(t.x, 2, padding=2), Shape, "at most half"),
    "a negative size": (lambda t: F.adaptive_avg_pool1d(t.x, -1), Shape, "output_size"),
    "indices of a shape": (lambda t: F.max_unpool1d(t.x, t.n, 2), Shape, "one shape"),
    "a mirror too short": (lambda t: F.pad(t.x, (3, 0), "reflect"), Shape, "lengths below 3"),
    "a wrap too short": (lambda t: F.pad(t.x, (4, 0), "circular"), Shape, "lengths up to 3"),
    "a mode of padding": (lambda t: F.pad(t.x, (1, 0), "mirror"), Argument, "'constant' or one of"),
    "an odd padding": (lambda t: F.pad(t.x, (1,)), Shape, "pair of integers"),
    "a crop too large": (lambda t: F.pad(t.x, (-2, -2)), Shape, "too few elements"),
    "a value to reflect": (lambda t: F.pad(t.x, (1, 0), "reflect", 2.0), Argument, "takes no value"),
    "a mode of resizing": (lambda t: F.interpolate(t.x[None], 2, mode="cubic"), Argument, "mode must be one"),
    "a rank to resize": (lambda t: F.interpolate(t.x[None], 2, mode="bilinear"), Shape, "needs 4 dimensions"),
    "both sizes": (lambda t: F.interpolate(t.x[None], 2, 2.0), Argument, "and not both"),
    "corners of the nearest": (
        lambda t: F.interpolate(t.x[None], 2, align_corners=True), Argument, "no align_corners",
    ),
    "nothing left": (lambda t: F.interpolate(t.x[None], scale_factor=0.1), Shape, "lengths are >= 1"),
    "a grid": (lambda t: F.grid_sample(t.x[None, None], t.x[None]), Shape, "grid_sample"),
    "a map": (lambda t: F.affine_grid(t.x, (1, 1, 2, 2)), Shape, "affine_grid"),
    "columns": (lambda t: F.fold(t.x, (3, 3), 2), Shape, "fold: columns"),
    "channels to shuffle": (lambda t: F.pixel_shuffle(t.x[:, :, None], 2), Shape, "2 squared"),
    "rows by floats": (lambda t: F.embedding(t.v, t.x), Dtype, "integers"),
    "rows not there": (lambda t: F.embedding(t.n + 5, t.x).tolist(), IndexError, "out of range"),
    "sparse gradients": (lambda t: F.embedding(t.n, t.x, sparse=True), Argument, "sparse"),
    "a padding row": (lambda t: F.embedding(t.n, t.x, padding_idx=2), Argument, "padding_idx"),
    "bags without offsets": (lambda t: F.embedding_bag(t.n, t.x), Shape, "offsets"),
    "weights of means": (
        lambda t: F.embedding_bag(t.n[None], t.x, per_sample_weights=t.v[None]), Argument, "mode 'sum'",
    ),
    "widths": (lambda t: F.scaled_dot_product_attention(t.x, t.x[:, :2], t.x), Shape, "one width"),
    "a mask and causal": (
        lambda t: F.scaled_dot_product_attention(t.x, t.x, t.x, t.x[:, :2] > 0, is_causal=True), Shape,
        "not both",
    ),
    "a mask of a shape": (
        lambda t: F.scaled_dot_product_attention(t.x, t.x, t.x, t.x > 0), Shape, "does not broadcast",
    ),
    "a mask of integers": (
        lambda t: F.scaled_dot_product_attention(t.x, t.x, t.x, t.n), Dtype, "bool, or floating-point",
    ),
    "heads that do not divide": (
        lambda t: F.scaled_dot_product_attention(
            tb.ones((3, 2, 2), device=t.device), tb.ones((2, 2, 2), device=t.device),
            tb.ones((2, 2, 2), device=t.device), enable_gqa=True,
        ), Shape, "must divide",
    ),
    "a probability": (lambda t: F.dropout(t.x, 1.5), Argument, r"\[0, 1\]"),
    "channels to drop": (lambda t: F.dropout3d(t.x), Shape, "4 or 5 dimensions"),
    "a matrix of a width": (lambda t: F.linear(t.v, t.x), Shape, "do not fit"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(device: str, name: str) -> None:
    call, error, text = BAD[name]
    t = SimpleNamespace(
        device=device,
        x=tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device),
        v=tb.asarray([7.0, 8.0], device=device),
        n=tb.asarray([1, 0], device=device),
    )
    with pytest.raises(error, match=text):
        call(t)
    assert t.x.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
