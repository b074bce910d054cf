"""Layers as functions: what the modules compute, with the parameters as arguments.

PyTorch's names and argument order, ``dim`` included; the ops themselves call it ``axis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import dtypes as dt
from ..dtypes import DType
from ..ops import softmax as _softmax
from ..ops.activation import gelu as gelu
from ..ops.activation import glu as glu
from ..ops.activation import hardshrink as hardshrink
from ..ops.activation import logsigmoid as logsigmoid
from ..ops.activation import prelu as prelu
from ..ops.activation import sigmoid as sigmoid
from ..ops.activation import softplus_scaled
from ..ops.activation import softshrink as softshrink
from ..ops.activation import softsign as softsign
from ..ops.activation import tanhshrink as tanhshrink
from ..ops.adaptive_pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from ..ops.adaptive_pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from ..ops.adaptive_pooling import adaptive_avg_pool3d as adaptive_avg_pool3d
from ..ops.adaptive_pooling import adaptive_max_pool1d as adaptive_max_pool1d
from ..ops.adaptive_pooling import adaptive_max_pool2d as adaptive_max_pool2d
from ..ops.adaptive_pooling import adaptive_max_pool3d as adaptive_max_pool3d
from ..ops.adaptive_pooling import max_unpool1d as max_unpool1d
from ..ops.adaptive_pooling import max_unpool2d as max_unpool2d
from ..ops.adaptive_pooling import max_unpool3d as max_unpool3d
from ..ops.average_pooling import avg_pool1d as avg_pool1d
from ..ops.average_pooling import avg_pool2d as avg_pool2d
from ..ops.average_pooling import avg_pool3d as avg_pool3d
from ..ops.average_pooling import lp_pool1d as lp_pool1d
from ..ops.average_pooling import lp_pool2d as lp_pool2d
from ..ops.average_pooling import lp_pool3d as lp_pool3d
from ..ops.batch_norm import batch_norm as batch_norm
from ..ops.batch_norm import instance_norm as instance_norm
from ..ops.convolution import conv1d as conv1d
from ..ops.convolution import conv2d as conv2d
from ..ops.convolution import conv3d as conv3d
from ..ops.convolution_transpose import conv_transpose1d as conv_transpose1d
from ..ops.convolution_transpose import conv_transpose2d as conv_transpose2d
from ..ops.convolution_transpose import conv_transpose3d as conv_transpose3d
from ..ops.ctc_loss import ctc_loss as ctc_loss
from ..ops.distance import cosine_embedding_loss as cosine_embedding_loss
from ..ops.distance import cosine_similarity as cosine_similarity
from ..ops.distance import hinge_embedding_loss as hinge_embedding_loss
from ..ops.distance import margin_ranking_loss as margin_ranking_loss
from ..ops.distance import normalize as normalize
from ..ops.distance import pairwise_distance as pairwise_distance
from ..ops.distance import pdist as pdist
from ..ops.distance import triplet_margin_loss as triplet_margin_loss
from ..ops.distance import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from ..ops.grid_sample import affine_grid as affine_grid
from ..ops.grid_sample import grid_sample as grid_sample
from ..ops.interpolate import interpolate as interpolate
from ..ops.linear import bilinear as bilinear
from ..ops.linear import linear as linear
from ..ops.loss import binary_cross_entropy as binary_cross_entropy
from ..ops.loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from ..ops.loss import cross_entropy as cross_entropy
from ..ops.loss import multi_margin_loss as multi_margin_loss
from ..ops.loss import multilabel_margin_loss as multilabel_margin_loss
from ..ops.loss import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from ..ops.loss import nll_loss as nll_loss
from ..ops.loss import soft_margin_loss as soft_margin_loss
from ..ops.movement import flatten as flatten
from ..ops.movement import reshape
from ..ops.normalization import group_norm as group_norm
from ..ops.normalization import layer_norm as layer_norm
from ..ops.normalization import local_response_norm as local_response_norm
from ..ops.normalization import rms_norm as rms_norm
from ..ops.padding import pad as pad
from ..ops.pooling import max_pool1d as max_pool1d
from ..ops.pooling import max_pool2d as max_pool2d
from ..ops.pooling import max_pool3d as max_pool3d
from ..ops.rearrange import channel_shuffle as channel_shuffle
from ..ops.rearrange import fold as fold
from ..ops.rearrange import pixel_shuffle as pixel_shuffle
from ..ops.rearrange import pixel_unshuffle as pixel_unshuffle
from ..ops.rearrange import unfold as unfold
from ..ops.regression_loss import gaussian_nll_loss as gaussian_nll_loss
from ..ops.regression_loss import huber_loss as huber_loss
from ..ops.regression_loss import kl_div as kl_div
from ..ops.regression_loss import l1_loss as l1_loss
from ..ops.regression_loss import mse_loss as mse_loss
from ..ops.regression_loss import poisson_nll_loss as poisson_nll_loss
from ..ops.regression_loss import smooth_l1_loss as smooth_l1_loss
from ..ops.segment import one_hot as one_hot
from ..ops.transcendental import tanh as tanh
from .activating import celu as celu
from .activating import elu as elu
from .activating import hardsigmoid as hardsigmoid
from .activating import hardswish as hardswish
from .activating import hardtanh as hardtanh
from .activating import leaky_relu as leaky_relu
from .activating import mish as mish
from .activating import relu as relu
from .activating import relu6 as relu6
from .activating import rrelu as rrelu
from .activating import selu as selu
from .activating import silu as silu
from .activating import threshold as threshold
from .attending import multi_head_attention_forward as multi_head_attention_forward
from .attending import scaled_dot_product_attention as scaled_dot_product_attention
from .lookup import embedding as embedding
from .lookup import embedding_bag as embedding_bag
from .random_pooling import fractional_max_pool2d as fractional_max_pool2d
from .random_pooling import fractional_max_pool3d as fractional_max_pool3d
from .thinning import alpha_dropout as alpha_dropout
from .thinning import dropout as dropout
from .thinning import dropout1d as dropout1d
from .thinning import dropout2d as dropout2d
from .thinning import dropout3d as dropout3d
from .thinning import feature_alpha_dropout as feature_alpha_dropout
from .thinning import gumbel_softmax as gumbel_softmax

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tensor import Tensor


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return ``log(1 + exp(beta * input)) / beta``; ``input`` where ``beta * input > threshold``."""
    out: Tensor = softplus_scaled(input, beta, threshold)
    return out


def softmax(input: Tensor, dim: int, dtype: DType | str | None = None) -> Tensor:
    """Return ``exp(input)`` divided by its sum along ``dim``, computed in ``dtype`` where one is given."""
    return _along(_softmax.softmax, _in(input, dtype), dim)


def softmin(input: Tensor, dim: int, dtype: DType | str | None = None) -> Tensor:
    """Return the softmax of ``-input`` along ``dim``."""
    return _along(_softmax.softmax, -_in(input, dtype), dim)


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
