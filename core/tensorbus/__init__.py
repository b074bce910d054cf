"""tensorbus: tensors on any device, whose devices are plugins.

Everything public is named here. Importing this package imports no array library and no backend: a device is
opened when it is first asked for.
"""

from __future__ import annotations

import sys
from operator import attrgetter as _attribute
from typing import TYPE_CHECKING, Any, Final

from .compat import torch_modules, torch_names
from .eager import plugin_ops as plugin_ops
from .system import env
from .system.lazy_import import hint_by as _hint_by
from .system.lazy_import import lazy_exports
from .system.late_binding import provide
from .version import __version__ as __version__
from .autograd.engine import (
    backward as backward, enable_grad as enable_grad, grad as grad, inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled, no_grad as no_grad, set_grad_enabled as set_grad_enabled,
)  # fmt: skip
from .dispatch.default_dtype import get_default_dtype as get_default_dtype
from .dispatch.default_dtype import set_default_dtype as set_default_dtype
from .devices.device import Device as Device
from .devices.device import device as device
from .devices.device import devices as devices
from .devices.device import get_default_device as get_default_device
from .devices.device import set_default_device as set_default_device
from .dtypes.definition import (
    DType as DType, bfloat16 as bfloat16, complex64 as complex64, complex128 as complex128,
    float8_e4m3fn as float8_e4m3fn, float8_e5m2 as float8_e5m2, float16 as float16, float32 as float32,
    float64 as float64, int8 as int8, int16 as int16, int32 as int32, int64 as int64, uint8 as uint8,
    uint16 as uint16, uint32 as uint32, uint64 as uint64,
)  # fmt: skip
from .dtypes.definition import bool_ as bool  # noqa: F401 - the name the standard gives it
from .errors import (
    ArgumentError as ArgumentError, AutogradError as AutogradError, AxisError as AxisError,
    DeviceError as DeviceError, DeviceUnavailableError as DeviceUnavailableError, DtypeError as DtypeError,
    IndexingError as IndexingError, LinAlgError as LinAlgError, OutOfMemoryError as OutOfMemoryError,
    PluginError as PluginError, ShapeError as ShapeError, StateError as StateError,
    TensorbusError as TensorbusError, UnsupportedDtypeError as UnsupportedDtypeError,
    UnsupportedOpError as UnsupportedOpError,
)  # fmt: skip
from .eager.functions import abs as abs
from .eager.functions import acos as acos
from .eager.functions import acosh as acosh
from .eager.functions import add as add
from .eager.functions import all as all
from .eager.functions import any as any
from .eager.functions import argmax as argmax
from .eager.functions import argmin as argmin
from .eager.functions import asin as asin
from .eager.functions import asinh as asinh
from .eager.functions import argsort as argsort
from .eager.functions import logcumsumexp as logcumsumexp
from .eager.functions import scatter_along_axis as scatter_along_axis
from .eager.functions import sort as sort
from .eager.functions import take_along_axis as take_along_axis
from .eager.functions import atan as atan
from .eager.functions import atan2 as atan2
from .eager.functions import atanh as atanh
from .eager.functions import bitwise_and as bitwise_and
from .eager.functions import bitwise_invert as bitwise_invert
from .eager.functions import bitwise_left_shift as bitwise_left_shift
from .eager.functions import bitwise_or as bitwise_or
from .eager.functions import bitwise_right_shift as bitwise_right_shift
from .eager.functions import bitwise_xor as bitwise_xor
from .eager.functions import broadcast_to as broadcast_to
from .eager.functions import cast as cast
from .eager.functions import ceil as ceil
from .eager.functions import concat as concat
from .eager.functions import cos as cos
from .eager.functions import cosh as cosh
from .eager.functions import divide as divide
from .eager.functions import equal as equal
from .eager.functions import erf as erf
from .eager.functions import exp as exp
from .eager.functions import expm1 as expm1
from .eager.functions import flip as flip
from .eager.functions import floor as floor
from .eager.functions import floor_divide as floor_divide
from .eager.functions import full as full
from .eager.functions import gather as gather
from .eager.functions import greater as greater
from .eager.functions import greater_equal as greater_equal
from .eager.functions import iota as iota
from .eager.functions import isfinite as isfinite
from .eager.functions import isinf as isinf
from .eager.functions import isnan as isnan
from .eager.functions import less as less
from .eager.functions import less_equal as less_equal
from .eager.functions import log as log
from .eager.functions import log10 as log10
from .eager.functions import log1p as log1p
from .eager.functions import log2 as log2
from .eager.functions import log_softmax as log_softmax
from .eager.functions import logaddexp as logaddexp
from .eager.functions import logical_and as logical_and
from .eager.functions import logical_not as logical_not
from .eager.functions import logical_or as logical_or
from .eager.functions import logical_xor as logical_xor
from .eager.functions import logsumexp as logsumexp
from .eager.functions import max as max
from .eager.functions import maximum as maximum
from .eager.functions import mean as mean
from .eager.functions import min as min
from .eager.functions import minimum as minimum
from .eager.functions import multiply as multiply
from .eager.functions import negative as negative
from .eager.functions import not_equal as not_equal
from .eager.functions import permute_dims as permute_dims
from .eager.functions import power as power
from .eager.functions import prod as prod
from .eager.functions import random_bits as random_bits
from .eager.functions import reciprocal as reciprocal
from .eager.functions import relu as relu
from .eager.functions import remainder as remainder
from .eager.functions import reshape as reshape
from .eager.functions import round as round
from .eager.functions import rsqrt as rsqrt
from .eager.functions import scatter as scatter
from .eager.functions import sigmoid as sigmoid
from .eager.functions import sign as sign
from .eager.functions import silu as silu
from .eager.functions import sin as sin
from .eager.functions import sinh as sinh
from .eager.functions import softmax as softmax
from .eager.functions import softplus as softplus
from .eager.functions import sqrt as sqrt
from .eager.functions import square as square
from .eager.functions import subtract as subtract
from .eager.functions import sum as sum
from .eager.functions import tan as tan
from .eager.functions import tanh as tanh
from .eager.functions import trunc as trunc
from .eager.functions import where as where
from .eager.functions import bitwise_count as bitwise_count
from .eager.functions import cbrt as cbrt
from .eager.functions import complex as complex
from .eager.functions import copysign as copysign
from .eager.functions import deg2rad as deg2rad
from .eager.functions import digamma as digamma
from .eager.functions import erfc as erfc
from .eager.functions import erfinv as erfinv
from .eager.functions import exp2 as exp2
from .eager.functions import fmax as fmax
from .eager.functions import fmin as fmin
from .eager.functions import fmod as fmod
from .eager.functions import frac as frac
from .eager.functions import gcd as gcd
from .eager.functions import hardsigmoid as hardsigmoid
from .eager.functions import hardswish as hardswish
from .eager.functions import heaviside as heaviside
from .eager.functions import hypot as hypot
from .eager.functions import lcm as lcm
from .eager.functions import lerp as lerp
from .eager.functions import lgamma as lgamma
from .eager.functions import logaddexp2 as logaddexp2
from .eager.functions import logsigmoid as logsigmoid
from .eager.functions import mish as mish
from .eager.functions import nextafter as nextafter
from .eager.functions import rad2deg as rad2deg
from .eager.functions import signbit as signbit
from .eager.functions import sinc as sinc
from .eager.functions import softsign as softsign
from .eager.functions import tanhshrink as tanhshrink
from .eager.functions import xlogy as xlogy
from .eager.functions import entr as entr
from .eager.functions import power as pow  # noqa: F401 - the name the standard gives it
from .interchange.host_array import asarray as asarray
from .interchange.host_array import astype as astype
from .interchange.host_array import from_dlpack as from_dlpack
from .interchange.host_array import tensor as tensor
from .interchange.array_namespace import API_VERSION as __array_api_version__  # noqa: F401, N811
from .interchange.array_namespace import namespace_info as __array_namespace_info__  # noqa: F401
from .ops.elementwise.activation import clip as clip
from .ops.elementwise.activation import gelu as gelu
from .ops.elementwise.arithmetic import addcdiv as addcdiv
from .ops.elementwise.arithmetic import addcmul as addcmul
from .ops.elementwise.arithmetic import conj as conj
from .ops.elementwise.arithmetic import imag as imag
from .ops.elementwise.arithmetic import nan_to_num as nan_to_num
from .ops.elementwise.arithmetic import positive as positive
from .ops.elementwise.arithmetic import real as real
from .ops.elementwise.special import logit as logit
from .ops.elementwise.transcendental import float_power as float_power
from .ops.creation.creation import (
    arange as arange, broadcast_arrays as broadcast_arrays, empty as empty, empty_like as empty_like,
    eye as eye, full_like as full_like, linspace as linspace, logspace as logspace, meshgrid as meshgrid,
    ones as ones, ones_like as ones_like, tril as tril, triu as triu, zeros as zeros,
    zeros_like as zeros_like,
)  # fmt: skip
from .dispatch.host_fallback import FallbackWarning as FallbackWarning
from .dispatch.host_fallback import fallback as fallback
from .dispatch.host_fallback import fallback_counts as fallback_counts
from .ops.elementwise.family import broadcast_shapes as broadcast_shapes
from .ops.indexing.nonzero import argwhere as argwhere
from .ops.indexing.nonzero import nonzero as nonzero
from .ops.indexing.indexing import take as take
from .ops.matmul.matmul import matmul as matmul
from .ops.matmul.matmul import matrix_transpose as matrix_transpose
from .ops.matmul.matmul import tensordot as tensordot
from .ops.matmul.matmul import vecdot as vecdot
from .ops.movement.movement import expand_dims as expand_dims
from .ops.movement.movement import flatten as flatten
from .ops.movement.movement import moveaxis as moveaxis
from .ops.movement.movement import squeeze as squeeze
from .ops.movement.movement import stack as stack
from .dispatch.kernel_preference import prefer_kernel as prefer_kernel
from .ops.indexing.take_along_axis import scatter_add as scatter_add
from .ops.indexing.take_along_axis import scatter_reduce as scatter_reduce
from .ops.reduction.reduction import count_nonzero as count_nonzero
from .ops.reduction.scan import cummax as cummax
from .ops.reduction.scan import cummin as cummin
from .ops.reduction.scan import cumprod as cumprod
from .ops.reduction.scan import cumsum as cumsum
from .ops.reduction.scan import cumulative_prod as cumulative_prod
from .ops.reduction.scan import cumulative_sum as cumulative_sum
from .ops.reduction.scan import diff as diff
from .ops.ordering.sorting import kthvalue as kthvalue
from .ops.ordering.sorting import median as median
from .ops.ordering.sorting import quantile as quantile
from .ops.ordering.sorting import topk as topk
from .ops.reduction.reduction import std as std
from .ops.reduction.reduction import var as var
from .tensor.tensor import Tensor as Tensor

if env.logged():
    from .dispatch import decision_log as decision_log

e = 2.718281828459045
pi = 3.141592653589793
inf = float("inf")
nan = float("nan")
newaxis = None

if TYPE_CHECKING:
    from .random.generator import Generator as Generator
    from .random.generator import bernoulli as bernoulli
    from .random.generator import manual_seed as manual_seed
    from .random.generator import normal as normal
    from .random.generator import rand as rand
    from .random.generator import randint as randint
    from .random.generator import randn as randn
    from .random.generator import uniform as uniform
    from .ops.movement.tile_roll_split import chunk as chunk
    from .ops.movement.tile_roll_split import repeat as repeat
    from .ops.movement.tile_roll_split import repeat_interleave as repeat_interleave
    from .ops.movement.tile_roll_split import roll as roll
    from .ops.movement.tile_roll_split import rot90 as rot90
    from .ops.movement.tile_roll_split import split as split
    from .ops.movement.tile_roll_split import swapaxes as swapaxes
    from .ops.movement.tile_roll_split import tile as tile
    from .ops.movement.tile_roll_split import unfold as unfold
    from .ops.movement.tile_roll_split import unstack as unstack
    from .ops.elementwise.isclose import allclose as allclose
    from .ops.elementwise.isclose import isclose as isclose
    from .ops.movement.diagonal import diagflat as diagflat
    from .ops.movement.diagonal import diag as diag
    from .ops.movement.diagonal import diag_embed as diag_embed
    from .ops.movement.diagonal import diagonal as diagonal
    from .ops.movement.diagonal import trace as trace
    from .ops.matmul.einsum import corrcoef as corrcoef
    from .ops.matmul.einsum import cov as cov
    from .ops.matmul.einsum import einsum as einsum
    from .ops.matmul.einsum import kron as kron
    from .ops.matmul.einsum import outer as outer
    from .ops.ordering.search import bincount as bincount
    from .ops.ordering.search import bucketize as bucketize
    from .ops.ordering.search import histogram as histogram
    from .ops.ordering.search import searchsorted as searchsorted
    from .ops.indexing.index_select import index_fill as index_fill
    from .ops.indexing.index_select import masked_scatter as masked_scatter
    from .ops.indexing.index_select import index_add as index_add
    from .ops.indexing.index_select import index_copy as index_copy
    from .ops.indexing.index_select import index_put as index_put
    from .ops.indexing.index_select import index_select as index_select
    from .ops.indexing.index_select import masked_fill as masked_fill
    from .ops.indexing.index_select import masked_select as masked_select
    from .ops.movement.stacking import atleast_1d as atleast_1d
    from .ops.movement.stacking import atleast_2d as atleast_2d
    from .ops.movement.stacking import atleast_3d as atleast_3d
    from .ops.movement.stacking import column_stack as column_stack
    from .ops.movement.stacking import dstack as dstack
    from .ops.movement.stacking import hstack as hstack
    from .ops.movement.stacking import vstack as vstack
    from .ops.movement.view_scatter import diagonal_scatter as diagonal_scatter
    from .ops.movement.view_scatter import narrow as narrow
    from .ops.movement.view_scatter import select as select
    from .ops.movement.view_scatter import select_scatter as select_scatter
    from .ops.movement.view_scatter import slice_scatter as slice_scatter
    from .ops.reduction.nan_reductions import aminmax as aminmax
    from .ops.reduction.nan_reductions import nanmean as nanmean
    from .ops.reduction.nan_reductions import nanmedian as nanmedian
    from .ops.reduction.nan_reductions import nanquantile as nanquantile
    from .ops.reduction.nan_reductions import nansum as nansum
    from .ops.reduction.nan_reductions import std_mean as std_mean
    from .ops.reduction.nan_reductions import var_mean as var_mean
    from .ops.reduction.trapezoid import cumulative_trapezoid as cumulative_trapezoid
    from .ops.reduction.trapezoid import trapezoid as trapezoid
    from .ops.movement.combining import block_diag as block_diag
    from .ops.movement.combining import cartesian_prod as cartesian_prod
    from .ops.movement.combining import combinations as combinations
    from .ops.movement.combining import dsplit as dsplit
    from .ops.movement.combining import hsplit as hsplit
    from .ops.movement.combining import tensor_split as tensor_split
    from .ops.movement.combining import vsplit as vsplit
    from .ops.matmul.added_products import addbmm as addbmm
    from .ops.matmul.added_products import addmm as addmm
    from .ops.matmul.added_products import addmv as addmv
    from .ops.matmul.added_products import addr as addr
    from .ops.matmul.added_products import baddbmm as baddbmm
    from .ops.matmul.added_products import inner as inner
    from .ops.ordering.unique_along import unique as unique
    from .ops.ordering.unique_along import unique_consecutive as unique_consecutive
    from .ops.creation.index_grids import tril_indices as tril_indices
    from .ops.creation.index_grids import triu_indices as triu_indices
    from .ops.creation.index_grids import vander as vander
    from .ops.matmul.distance import cdist as cdist
    from .ops.matmul.distance import dist as dist
    from .ops.matmul.distance import renorm as renorm
    from .ops.linalg.determinant import logdet as logdet
    from .eager.torch_forms import adjoint as adjoint
    from .eager.torch_forms import expand as expand
    from .eager.torch_forms import fliplr as fliplr
    from .eager.torch_forms import flipud as flipud
    from .eager.torch_forms import is_complex as is_complex
    from .eager.torch_forms import is_floating_point as is_floating_point
    from .eager.torch_forms import is_tensor as is_tensor
    from .eager.torch_forms import isneginf as isneginf
    from .eager.torch_forms import isposinf as isposinf
    from .eager.torch_forms import max_with_indices as max_with_indices
    from .eager.torch_forms import min_with_indices as min_with_indices
    from .eager.torch_forms import msort as msort
    from .eager.torch_forms import numel as numel
    from .eager.torch_forms import t as t
    from .eager.torch_forms import take_along_dim as take_along_dim
    from .eager.torch_forms import unflatten as unflatten
    from .eager.explain import explain as explain
    from .amp.autocast_mode import autocast as autocast
    from .func.checkpoint import checkpoint as checkpoint
    from .compiler import RecompileWarning as RecompileWarning
    from .compiler import SlowerThanEagerWarning as SlowerThanEagerWarning
    from .compiler import compile as compile
    from .compiler import mark_dynamic as mark_dynamic
    from .compiler import mark_static as mark_static
    from .func import vmap as vmap
    from .control_flow import cond as cond
    from .control_flow import scan as scan
    from .control_flow import while_loop as while_loop
    from . import amp as amp
    from . import distributions as distributions
    from . import fft as fft
    from . import distributed as distributed
    from . import library as library
    from . import func as func
    from . import linalg as linalg
    from . import special as special
    from . import nn as nn
    from . import optim as optim
    from . import random as random
    from .serialization.safetensors import load as load
    from .serialization.safetensors import save as save
    from .dtypes.info import can_cast as can_cast
    from .dtypes.info import finfo as finfo
    from .dtypes.info import iinfo as iinfo
    from .dtypes.info import isdtype as isdtype
    from .dtypes.info import result_type as result_type
    from .ops.ordering.unique import isin as isin
    from .ops.ordering.unique import unique_all as unique_all
    from .ops.ordering.unique import unique_counts as unique_counts
    from .ops.ordering.unique import unique_inverse as unique_inverse
    from .ops.ordering.unique import unique_values as unique_values
    from .ops.matmul.scaled_matmul import scaled_matmul as scaled_matmul
    from .ops.reduction.segment import (
        one_hot as one_hot, segment_max as segment_max, segment_mean as segment_mean,
        segment_min as segment_min, segment_prod as segment_prod, segment_sum as segment_sum,
    )  # fmt: skip
    from .distributions import binomial as binomial
    from .distributions import exponential as exponential
    from .distributions import poisson as poisson
    from .distributions import truncated_normal as truncated_normal
    from .random.sampling import (
        multinomial as multinomial, permutation as permutation, rand_like as rand_like,
        randint_like as randint_like, randn_like as randn_like, randperm as randperm,
    )  # fmt: skip
    from .ops.nn.average_pooling import avg_pool2d as avg_pool2d
    from .ops.nn.convolution_transpose import conv_transpose1d as conv_transpose1d
    from .ops.nn.convolution_transpose import conv_transpose2d as conv_transpose2d
    from .ops.nn.convolution_transpose import conv_transpose3d as conv_transpose3d
    from .ops.nn.regression_loss import mse_loss as mse_loss
    from .ops.elementwise.complex import angle as angle
    from .ops.elementwise.complex import polar as polar
    from .ops.elementwise.complex import view_as_complex as view_as_complex
    from .ops.elementwise.complex import view_as_real as view_as_real
    from .ops.nn.convolution import conv1d as conv1d
    from .ops.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
    from .ops.nn.convolution import conv2d as conv2d
    from .ops.nn.convolution import conv3d as conv3d
    from .ops.nn.pooling import max_pool2d as max_pool2d
    from .ops.nn.normalization import layer_norm as layer_norm
    from .ops.nn.loss import cross_entropy as cross_entropy
    from .ops.nn.loss import nll_loss as nll_loss
    from .devices.threads_and_memory import empty_cache as empty_cache
    from .devices.threads_and_memory import get_num_threads as get_num_threads
    from .devices.threads_and_memory import set_num_threads as set_num_threads
    from .amp.matmul_precision import get_matmul_precision as get_matmul_precision
    from .amp.matmul_precision import set_matmul_precision as set_matmul_precision
    from .devices.stream import Event as Event
    from .devices.stream import Stream as Stream
    from .devices.stream import stream as stream
    from .library import KernelSource as KernelSource
    from .library import kernel as kernel


provide(
    compile="tensorbus.compiler:compile",
    dual_written="tensorbus.autograd.forward_mode:written_from",
    fused_function="tensorbus.eager_fusion.fused_function:call_fused",
    functional_call="tensorbus.nn.utils.stateless:functional_call",
    fused_vjp="tensorbus.eager_fusion.fused_vjp:derivative",
)

_LATER: Final = {
    "random.generator": "Generator bernoulli manual_seed normal rand randint randn uniform",
    "ops.movement.tile_roll_split": """chunk repeat repeat_interleave roll rot90 split swapaxes tile
    unfold unstack""",
    "ops.elementwise.isclose": "allclose isclose",
    "ops.movement.diagonal": "diag diag_embed diagflat diagonal trace",
    "ops.matmul.einsum": "corrcoef cov einsum kron outer",
    "ops.ordering.search": "bincount bucketize histogram searchsorted",
    "ops.indexing.index_select": """index_add index_copy index_fill index_put index_select masked_fill
    masked_scatter masked_select""",
    "ops.movement.stacking": "atleast_1d atleast_2d atleast_3d column_stack dstack hstack vstack",
    "ops.movement.view_scatter": "diagonal_scatter narrow select select_scatter slice_scatter",
    "ops.reduction.nan_reductions": "aminmax nanmean nanmedian nanquantile nansum std_mean var_mean",
    "ops.reduction.trapezoid": "cumulative_trapezoid trapezoid",
    "ops.movement.combining": "block_diag cartesian_prod combinations dsplit hsplit tensor_split vsplit",
    "ops.matmul.added_products": "addbmm addmm addmv addr baddbmm inner",
    "ops.ordering.unique_along": "unique unique_consecutive",
    "ops.creation.index_grids": "tril_indices triu_indices vander",
    "ops.matmul.distance": "cdist dist renorm",
    "ops.linalg.determinant": "logdet",
    "eager.torch_forms": " ".join(torch_names.FORMS),
    "eager.explain": "explain",
    "func": "vmap",
    "control_flow": "cond scan while_loop",
    "compiler": "RecompileWarning SlowerThanEagerWarning compile mark_dynamic mark_static",
    "func.checkpoint": "checkpoint",
    "amp.autocast_mode": "autocast",
    "serialization.safetensors": "load save",
    "devices.threads_and_memory": "empty_cache get_num_threads set_num_threads",
    "amp.matmul_precision": "get_matmul_precision set_matmul_precision",
    "devices.stream": "Event Stream stream",
    "dtypes.info": "can_cast finfo iinfo isdtype result_type",
    "ops.ordering.unique": "isin unique_all unique_counts unique_inverse unique_values",
    "ops.matmul.scaled_matmul": "scaled_matmul",
    "ops.reduction.segment": "one_hot segment_max segment_mean segment_min segment_prod segment_sum",
    "distributions": "binomial exponential poisson truncated_normal",
    "random.sampling": "multinomial permutation rand_like randint_like randn_like randperm",
    "ops.nn.attention": "scaled_dot_product_attention",
    "ops.nn.average_pooling": "avg_pool2d",
    "ops.nn.convolution_transpose": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "ops.nn.regression_loss": "mse_loss",
    "ops.nn.convolution": "conv1d conv2d conv3d",
    "ops.nn.pooling": "max_pool2d",
    "ops.nn.normalization": "layer_norm",
    "ops.nn.loss": "cross_entropy nll_loss",
    "ops.elementwise.complex": "angle polar view_as_complex view_as_real",
    "library": "KernelSource kernel",
}
_find, _names, _OFFERED = lazy_exports(
    __name__, _LATER, "amp distributed distributions fft func library linalg nn optim random special"
)


def __dir__() -> list[str]:
    return sorted({*_names(), *torch_names.ALIASES})


def __getattr__(name: str) -> Any:
    """Import the parts that not every program needs when they are first named."""
    if name in _OFFERED:
        return _find(name)
    if name in torch_names.ALIASES:
        return globals().setdefault(name, _attribute(torch_names.ALIASES[name])(sys.modules[__name__]))
    # `from tensorbus import backend_api` asks here first: a part not yet imported must load no plugin.
    if not name.startswith("_") and name not in plugin_ops.modules():
        value = plugin_ops.find(name)
        if value is not None:
            return value
    raise AttributeError(f"module 'tensorbus' has no attribute {name!r}{torch_modules.of_path(name)}")


torch_modules.tell_of_missing_modules()
_hint_by(torch_modules.of_path)
