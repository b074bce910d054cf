"""Layers as functions: what the modules compute, with the parameters as arguments.

PyTorch's names and argument order, ``dim`` included; the ops themselves call it ``axis``. In order:
``activation``, ``attention``, ``dropout``, ``embedding``, ``fractional_max_pool``, ``linear_cross_entropy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...ops.call_errors import with_form
from ...ops.elementwise.activation import gelu as gelu
from ...ops.elementwise.activation import glu as glu
from ...ops.elementwise.activation import hardshrink as hardshrink
from ...ops.elementwise.activation import logsigmoid as logsigmoid
from ...ops.elementwise.activation import prelu as prelu
from ...ops.elementwise.activation import sigmoid as sigmoid
from ...ops.elementwise.activation import softplus_scaled
from ...ops.elementwise.activation import softshrink as softshrink
from ...ops.elementwise.activation import softsign as softsign
from ...ops.elementwise.activation import tanhshrink as tanhshrink
from ...ops.elementwise.transcendental import tanh as tanh
from ...ops.matmul.distance import cosine_embedding_loss as cosine_embedding_loss
from ...ops.matmul.distance import cosine_similarity as cosine_similarity
from ...ops.matmul.distance import hinge_embedding_loss as hinge_embedding_loss
from ...ops.matmul.distance import margin_ranking_loss as margin_ranking_loss
from ...ops.matmul.distance import normalize as normalize
from ...ops.matmul.distance import pairwise_distance as pairwise_distance
from ...ops.matmul.distance import pdist as pdist
from ...ops.matmul.distance import triplet_margin_loss as triplet_margin_loss
from ...ops.matmul.distance import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from ...ops.matmul.linear import bilinear as bilinear
from ...ops.matmul.linear import linear as linear
from ...ops.movement.movement import flatten as flatten
from ...ops.movement.movement import reshape
from ...ops.movement.padding import pad as pad
from ...ops.movement.pixel_shuffle_unfold import channel_shuffle as channel_shuffle
from ...ops.movement.pixel_shuffle_unfold import fold as fold
from ...ops.movement.pixel_shuffle_unfold import pixel_shuffle as pixel_shuffle
from ...ops.movement.pixel_shuffle_unfold import pixel_unshuffle as pixel_unshuffle
from ...ops.movement.pixel_shuffle_unfold import unfold as unfold
from ...ops.nn.adaptive_pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from ...ops.nn.adaptive_pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from ...ops.nn.adaptive_pooling import adaptive_avg_pool3d as adaptive_avg_pool3d
from ...ops.nn.adaptive_pooling import adaptive_max_pool1d as adaptive_max_pool1d
from ...ops.nn.adaptive_pooling import adaptive_max_pool2d as adaptive_max_pool2d
from ...ops.nn.adaptive_pooling import adaptive_max_pool3d as adaptive_max_pool3d
from ...ops.nn.adaptive_pooling import max_unpool1d as max_unpool1d
from ...ops.nn.adaptive_pooling import max_unpool2d as max_unpool2d
from ...ops.nn.adaptive_pooling import max_unpool3d as max_unpool3d
from ...ops.nn.average_pooling import avg_pool1d as avg_pool1d
from ...ops.nn.average_pooling import avg_pool2d as avg_pool2d
from ...ops.nn.average_pooling import avg_pool3d as avg_pool3d
from ...ops.nn.average_pooling import lp_pool1d as lp_pool1d
from ...ops.nn.average_pooling import lp_pool2d as lp_pool2d
from ...ops.nn.average_pooling import lp_pool3d as lp_pool3d
from ...ops.nn.batch_norm import batch_norm as batch_norm
from ...ops.nn.batch_norm import instance_norm as instance_norm
from ...ops.nn.convolution import conv1d as conv1d
from ...ops.nn.convolution import conv2d as conv2d
from ...ops.nn.convolution import conv3d as conv3d
from ...ops.nn.convolution_transpose import conv_transpose1d as conv_transpose1d
from ...ops.nn.convolution_transpose import conv_transpose2d as conv_transpose2d
from ...ops.nn.convolution_transpose import conv_transpose3d as conv_transpose3d
from ...ops.nn.ctc_loss import ctc_loss as ctc_loss
from ...ops.nn.grid_sample import affine_grid as affine_grid
from ...ops.nn.grid_sample import grid_sample as grid_sample
from ...ops.nn.interpolate import interpolate as interpolate
from ...ops.nn.loss import binary_cross_entropy as binary_cross_entropy
from ...ops.nn.loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from ...ops.nn.loss import cross_entropy as cross_entropy
from ...ops.nn.loss import multi_margin_loss as multi_margin_loss
from ...ops.nn.loss import multilabel_margin_loss as multilabel_margin_loss
from ...ops.nn.loss import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from ...ops.nn.loss import nll_loss as nll_loss
from ...ops.nn.loss import soft_margin_loss as soft_margin_loss
from ...ops.nn.normalization import group_norm as group_norm
from ...ops.nn.normalization import layer_norm as layer_norm
from ...ops.nn.normalization import local_response_norm as local_response_norm
from ...ops.nn.normalization import rms_norm as rms_norm
from ...ops.nn.pooling import max_pool1d as max_pool1d
from ...ops.nn.pooling import max_pool2d as max_pool2d
from ...ops.nn.pooling import max_pool3d as max_pool3d
from ...ops.nn.regression_loss import gaussian_nll_loss as gaussian_nll_loss
from ...ops.nn.regression_loss import huber_loss as huber_loss
from ...ops.nn.regression_loss import kl_div as kl_div
from ...ops.nn.regression_loss import l1_loss as l1_loss
from ...ops.nn.regression_loss import mse_loss as mse_loss
from ...ops.nn.regression_loss import poisson_nll_loss as poisson_nll_loss
from ...ops.nn.regression_loss import smooth_l1_loss as smooth_l1_loss
from ...ops.reduction import softmax as _softmax
from ...ops.reduction.segment import one_hot as one_hot
from .activation import celu as celu
from .activation import elu as elu
from .activation import hardsigmoid as hardsigmoid
from .activation import hardswish as hardswish
from .activation import hardtanh as hardtanh
from .activation import leaky_relu as leaky_relu
from .activation import mish as mish
from .activation import relu as relu
from .activation import relu6 as relu6
from .activation import rrelu as rrelu
from .activation import selu as selu
from .activation import silu as silu
from .activation import threshold as threshold
from .attention import multi_head_attention_forward as multi_head_attention_forward
from .attention import scaled_dot_product_attention as scaled_dot_product_attention
from .dropout import alpha_dropout as alpha_dropout
from .dropout import dropout as dropout
from .dropout import dropout1d as dropout1d
from .dropout import dropout2d as dropout2d
from .dropout import dropout3d as dropout3d
from .dropout import feature_alpha_dropout as feature_alpha_dropout
from .dropout import gumbel_softmax as gumbel_softmax
from .embedding import embedding as embedding
from .embedding import embedding_bag as embedding_bag
from .fractional_max_pool import fractional_max_pool2d as fractional_max_pool2d
from .fractional_max_pool import fractional_max_pool3d as fractional_max_pool3d
from .linear_cross_entropy import linear_cross_entropy as linear_cross_entropy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...tensor.tensor import Tensor


@with_form
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return ``log(1 + exp(beta * input)) / beta``; ``input`` where ``beta * input > threshold``."""
    out: Tensor = softplus_scaled(input, beta, threshold)
    return out


@with_form
def softmax(input: Tensor, dim: int, dtype: DType | str | None = None) -> Tensor:
    """Return ``exp(input)`` divided by its sum along ``dim``, computed in ``dtype`` where one is given."""
    return _along(_softmax.softmax, _in(input, dtype), dim)


@with_form
def softmin(input: Tensor, dim: int, dtype: DType | str | None = None) -> Tensor:
    """Return the softmax of ``-input`` along ``dim``."""
    return _along(_softmax.softmax, -_in(input, dtype), dim)


@with_form
def log_softmax(input: Tensor, dim: int, dtype: DType | str | None = None) -> Tensor:
    """Return the logarithm of ``softmax``, without its loss of precision."""
    return _along(_softmax.log_softmax, _in(input, dtype), dim)


def _along(function: Callable[..., Tensor], x: Tensor, dim: int) -> Tensor:
    """Let a single number have one axis, as PyTorch does."""
    if not x.shape and dim in (0, -1):
        return reshape(function(reshape(x, (1,)), axis=0), ())
    return function(x, axis=dim)


def _in(x: Tensor, dtype: DType | str | None) -> Tensor:
    return x if dtype is None else x.to(dt.dtype(dtype))
