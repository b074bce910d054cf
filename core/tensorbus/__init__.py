"""tensorbus: tensors on any device, whose devices are plugins.

Everything public is named here. Importing this package imports no array library and no backend: a device is
brought up when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from . import other_names as other_names
from . import plugin_ops as plugin_ops
from . import settings as settings
from .later import later
from .version import __version__ as __version__
from .autograd import backward as backward
from .autograd import enable_grad as enable_grad
from .autograd import grad as grad
from .autograd import inference_mode as inference_mode
from .autograd import is_grad_enabled as is_grad_enabled
from .autograd import no_grad as no_grad
from .autograd import set_grad_enabled as set_grad_enabled
from .default_dtype import get_default_dtype as get_default_dtype
from .default_dtype import set_default_dtype as set_default_dtype
from .device import Device as Device
from .device import device as device
from .device import devices as devices
from .device import get_default_device as get_default_device
from .device import set_default_device as set_default_device
from .dtypes import DType as DType
from .dtypes import bfloat16 as bfloat16
from .dtypes import bool_ as bool  # noqa: F401 - the name the standard gives it
from .dtypes import complex64 as complex64
from .dtypes import complex128 as complex128
from .dtypes import float8_e4m3fn as float8_e4m3fn
from .dtypes import float8_e5m2 as float8_e5m2
from .dtypes import float16 as float16
from .dtypes import float32 as float32
from .dtypes import float64 as float64
from .dtypes import int8 as int8
from .dtypes import int16 as int16
from .dtypes import int32 as int32
from .dtypes import int64 as int64
from .dtypes import uint8 as uint8
from .dtypes import uint16 as uint16
from .dtypes import uint32 as uint32
from .dtypes import uint64 as uint64
from .errors import ArgumentError as ArgumentError
from .errors import AutogradError as AutogradError
from .errors import AxisError as AxisError
from .errors import DeviceError as DeviceError
from .errors import DeviceUnavailableError as DeviceUnavailableError
from .errors import DtypeError as DtypeError
from .errors import IndexingError as IndexingError
from .errors import LinAlgError as LinAlgError
from .errors import OutOfMemoryError as OutOfMemoryError
from .errors import PluginError as PluginError
from .errors import ShapeError as ShapeError
from .errors import StateError as StateError
from .errors import TensorbusError as TensorbusError
from .errors import UnsupportedDtypeError as UnsupportedDtypeError
from .errors import UnsupportedOpError as UnsupportedOpError
from .functions import abs as abs
from .functions import acos as acos
from .functions import acosh as acosh
from .functions import add as add
from .functions import all as all
from .functions import any as any
from .functions import argmax as argmax
from .functions import argmin as argmin
from .functions import asin as asin
from .functions import asinh as asinh
from .functions import argsort as argsort
from .functions import logcumsumexp as logcumsumexp
from .functions import scatter_along_axis as scatter_along_axis
from .functions import sort as sort
from .functions import take_along_axis as take_along_axis
from .functions import atan as atan
from .functions import atan2 as atan2
from .functions import atanh as atanh
from .functions import bitwise_and as bitwise_and
from .functions import bitwise_invert as bitwise_invert
from .functions import bitwise_left_shift as bitwise_left_shift
from .functions import bitwise_or as bitwise_or
from .functions import bitwise_right_shift as bitwise_right_shift
from .functions import bitwise_xor as bitwise_xor
from .functions import broadcast_to as broadcast_to
from .functions import cast as cast
from .functions import ceil as ceil
from .functions import concat as concat
from .functions import cos as cos
from .functions import cosh as cosh
from .functions import divide as divide
from .functions import equal as equal
from .functions import erf as erf
from .functions import exp as exp
from .functions import expm1 as expm1
from .functions import flip as flip
from .functions import floor as floor
from .functions import floor_divide as floor_divide
from .functions import full as full
from .functions import gather as gather
from .functions import greater as greater
from .functions import greater_equal as greater_equal
from .functions import iota as iota
from .functions import isfinite as isfinite
from .functions import isinf as isinf
from .functions import isnan as isnan
from .functions import less as less
from .functions import less_equal as less_equal
from .functions import log as log
from .functions import log10 as log10
from .functions import log1p as log1p
from .functions import log2 as log2
from .functions import log_softmax as log_softmax
from .functions import logaddexp as logaddexp
from .functions import logical_and as logical_and
from .functions import logical_not as logical_not
from .functions import logical_or as logical_or
from .functions import logical_xor as logical_xor
from .functions import logsumexp as logsumexp
from .functions import max as max
from .functions import maximum as maximum
from .functions import mean as mean
from .functions import min as min
from .functions import minimum as minimum
from .functions import multiply as multiply
from .functions import negative as negative
from .functions import not_equal as not_equal
from .functions import permute_dims as permute_dims
from .functions import power as power
from .functions import prod as prod
from .functions import random_bits as random_bits
from .functions import reciprocal as reciprocal
from .functions import relu as relu
from .functions import remainder as remainder
from .functions import reshape as reshape
from .functions import round as round
from .functions import rsqrt as rsqrt
from .functions import scaled_dot_product_attention as scaled_dot_product_attention
from .functions import scatter as scatter
from .functions import sigmoid as sigmoid
from .functions import sign as sign
from .functions import silu as silu
from .functions import sin as sin
from .functions import sinh as sinh
from .functions import softmax as softmax
from .functions import softplus as softplus
from .functions import sqrt as sqrt
from .functions import square as square
from .functions import subtract as subtract
from .functions import sum as sum
from .functions import tan as tan
from .functions import tanh as tanh
from .functions import trunc as trunc
from .functions import where as where
from .functions import bitwise_count as bitwise_count
from .functions import cbrt as cbrt
from .functions import complex as complex
from .functions import copysign as copysign
from .functions import deg2rad as deg2rad
from .functions import digamma as digamma
from .functions import erfc as erfc
from .functions import erfinv as erfinv
from .functions import exp2 as exp2
from .functions import fmod as fmod
from .functions import frac as frac
from .functions import gcd as gcd
from .functions import hardsigmoid as hardsigmoid
from .functions import hardswish as hardswish
from .functions import heaviside as heaviside
from .functions import hypot as hypot
from .functions import lcm as lcm
from .functions import lerp as lerp
from .functions import lgamma as lgamma
from .functions import logaddexp2 as logaddexp2
from .functions import logsigmoid as logsigmoid
from .functions import mish as mish
from .functions import nextafter as nextafter
from .functions import rad2deg as rad2deg
from .functions import signbit as signbit
from .functions import sinc as sinc
from .functions import softsign as softsign
from .functions import tanhshrink as tanhshrink
from .functions import xlogy as xlogy
from .functions import entr as entr
from .functions import power as pow  # noqa: F401 - the name the standard gives it
from .interchange import asarray as asarray
from .interchange import astype as astype
from .interchange import from_dlpack as from_dlpack
from .interchange import tensor as tensor
from .namespace import API_VERSION as __array_api_version__  # noqa: F401, N811
from .namespace import namespace_info as __array_namespace_info__  # noqa: F401
from .ops.activation import clip as clip
from .ops.activation import gelu as gelu
from .ops.arithmetic import addcdiv as addcdiv
from .ops.arithmetic import addcmul as addcmul
from .ops.arithmetic import conj as conj
from .ops.arithmetic import imag as imag
from .ops.arithmetic import nan_to_num as nan_to_num
from .ops.arithmetic import positive as positive
from .ops.arithmetic import real as real
from .ops.special import logit as logit
from .ops.creation import arange as arange
from .ops.creation import broadcast_arrays as broadcast_arrays
from .ops.creation import empty as empty
from .ops.creation import empty_like as empty_like
from .ops.creation import eye as eye
from .ops.creation import full_like as full_like
from .ops.creation import linspace as linspace
from .ops.creation import logspace as logspace
from .ops.creation import meshgrid as meshgrid
from .ops.creation import ones as ones
from .ops.creation import ones_like as ones_like
from .ops.creation import tril as tril
from .ops.creation import triu as triu
from .hosting import FallbackWarning as FallbackWarning
from .hosting import fallback as fallback
from .hosting import fallback_counts as fallback_counts
from .ops.creation import zeros as zeros
from .ops.creation import zeros_like as zeros_like
from .ops.elementwise import broadcast_shapes as broadcast_shapes
from .ops.found import nonzero as nonzero
from .ops.indexing import take as take
from .ops.matmul import matmul as matmul
from .ops.matmul import matrix_transpose as matrix_transpose
from .ops.matmul import tensordot as tensordot
from .ops.matmul import vecdot as vecdot
from .ops.movement import expand_dims as expand_dims
from .ops.movement import flatten as flatten
from .ops.movement import moveaxis as moveaxis
from .ops.movement import squeeze as squeeze
from .ops.movement import stack as stack
from .preference import prefer_kernel as prefer_kernel
from .ops.along import scatter_add as scatter_add
from .ops.along import scatter_reduce as scatter_reduce
from .ops.reduction import count_nonzero as count_nonzero
from .ops.scan import cummax as cummax
from .ops.scan import cummin as cummin
from .ops.scan import cumprod as cumprod
from .ops.scan import cumsum as cumsum
from .ops.scan import cumulative_prod as cumulative_prod
from .ops.scan import cumulative_sum as cumulative_sum
from .ops.scan import diff as diff
from .ops.sorting import kthvalue as kthvalue
from .ops.sorting import median as median
from .ops.sorting import quantile as quantile
from .ops.sorting import topk as topk
from .ops.reduction import std as std
from .ops.reduction import var as var
from .tensor import Tensor as Tensor

if settings.logged():
    from . import decision as decision

e = 2.718281828459045
pi = 3.141592653589793
inf = float("inf")
nan = float("nan")
newaxis = None

if TYPE_CHECKING:
    from .random import Generator as Generator
    from .random import bernoulli as bernoulli
    from .random import manual_seed as manual_seed
    from .random import normal as normal
    from .random import rand as rand
    from .random import randint as randint
    from .random import randn as randn
    from .random import uniform as uniform
    from .ops.arrange import chunk as chunk
    from .ops.arrange import repeat as repeat
    from .ops.arrange import repeat_interleave as repeat_interleave
    from .ops.arrange import roll as roll
    from .ops.arrange import rot90 as rot90
    from .ops.arrange import split as split
    from .ops.arrange import swapaxes as swapaxes
    from .ops.arrange import tile as tile
    from .ops.arrange import unfold as unfold
    from .ops.arrange import unstack as unstack
    from .ops.closeness import allclose as allclose
    from .ops.closeness import isclose as isclose
    from .ops.diagonals import diag as diag
    from .ops.diagonals import diag_embed as diag_embed
    from .ops.diagonals import diagonal as diagonal
    from .ops.diagonals import trace as trace
    from .ops.einsum import corrcoef as corrcoef
    from .ops.einsum import cov as cov
    from .ops.einsum import einsum as einsum
    from .ops.einsum import kron as kron
    from .ops.einsum import outer as outer
    from .ops.search import bincount as bincount
    from .ops.search import bucketize as bucketize
    from .ops.search import histogram as histogram
    from .ops.search import searchsorted as searchsorted
    from .ops.selecting import index_add as index_add
    from .ops.selecting import index_copy as index_copy
    from .ops.selecting import index_select as index_select
    from .ops.selecting import masked_fill as masked_fill
    from .ops.selecting import masked_select as masked_select
    from .ops.stacking import atleast_1d as atleast_1d
    from .ops.stacking import atleast_2d as atleast_2d
    from .ops.stacking import atleast_3d as atleast_3d
    from .ops.stacking import column_stack as column_stack
    from .ops.stacking import dstack as dstack
    from .ops.stacking import hstack as hstack
    from .ops.stacking import vstack as vstack
    from .explaining import explain as explain
    from .autocasting import autocast as autocast
    from .checkpointing import checkpoint as checkpoint
    from .compiler import RecompileWarning as RecompileWarning
    from .compiler import compile as compile
    from .compiler import mark_dynamic as mark_dynamic
    from .compiler import mark_static as mark_static
    from .func import vmap as vmap
    from . import distributions as distributions
    from . import fft as fft
    from . import linalg as linalg
    from . import special as special
    from . import nn as nn
    from . import optim as optim
    from . import random as random
    from .serialization import load as load
    from .serialization import save as save
    from .dtype_info import can_cast as can_cast
    from .dtype_info import finfo as finfo
    from .dtype_info import iinfo as iinfo
    from .dtype_info import isdtype as isdtype
    from .dtype_info import result_type as result_type
    from .ops.sets import isin as isin
    from .ops.sets import unique_all as unique_all
    from .ops.sets import unique_counts as unique_counts
    from .ops.sets import unique_inverse as unique_inverse
    from .ops.sets import unique_values as unique_values
    from .ops.scaled_matmul import scaled_matmul as scaled_matmul
    from .ops.segment import one_hot as one_hot
    from .ops.segment import segment_max as segment_max
    from .ops.segment import segment_mean as segment_mean
    from .ops.segment import segment_min as segment_min
    from .ops.segment import segment_prod as segment_prod
    from .ops.segment import segment_sum as segment_sum
    from .distributions import binomial as binomial
    from .distributions import exponential as exponential
    from .distributions import poisson as poisson
    from .distributions import truncated_normal as truncated_normal
    from .sampling import multinomial as multinomial
    from .sampling import permutation as permutation
    from .sampling import rand_like as rand_like
    from .sampling import randint_like as randint_like
    from .sampling import randn_like as randn_like
    from .sampling import randperm as randperm
    from .ops.average_pooling import avg_pool2d as avg_pool2d
    from .ops.convolution_transpose import conv_transpose1d as conv_transpose1d
    from .ops.convolution_transpose import conv_transpose2d as conv_transpose2d
    from .ops.convolution_transpose import conv_transpose3d as conv_transpose3d
    from .ops.regression_loss import mse_loss as mse_loss
    from .ops.complex import angle as angle
    from .ops.complex import polar as polar
    from .ops.complex import view_as_complex as view_as_complex
    from .ops.complex import view_as_real as view_as_real
    from .ops.convolution import conv1d as conv1d
    from .ops.convolution import conv2d as conv2d
    from .ops.convolution import conv3d as conv3d
    from .ops.pooling import max_pool2d as max_pool2d
    from .ops.normalization import layer_norm as layer_norm
    from .ops.loss import cross_entropy as cross_entropy
    from .ops.loss import nll_loss as nll_loss
    from .resources import empty_cache as empty_cache
    from .resources import get_num_threads as get_num_threads
    from .resources import set_num_threads as set_num_threads
    from .precision import get_matmul_precision as get_matmul_precision
    from .precision import set_matmul_precision as set_matmul_precision
    from .stream import Event as Event
    from .stream import Stream as Stream
    from .stream import stream as stream
    from .user_kernel import KernelSource as KernelSource
    from .user_kernel import kernel as kernel


_LATER: Final = {
    "random": "Generator bernoulli manual_seed normal rand randint randn uniform",
    "ops.arrange": "chunk repeat repeat_interleave roll rot90 split swapaxes tile unfold unstack",
    "ops.closeness": "allclose isclose",
    "ops.diagonals": "diag diag_embed diagonal trace",
    "ops.einsum": "corrcoef cov einsum kron outer",
    "ops.search": "bincount bucketize histogram searchsorted",
    "ops.selecting": "index_add index_copy index_select masked_fill masked_select",
    "ops.stacking": "atleast_1d atleast_2d atleast_3d column_stack dstack hstack vstack",
    "explaining": "explain",
    "func": "vmap",
    "compiler": "RecompileWarning compile mark_dynamic mark_static",
    "checkpointing": "checkpoint",
    "autocasting": "autocast",
    "serialization": "load save",
    "resources": "empty_cache get_num_threads set_num_threads",
    "precision": "get_matmul_precision set_matmul_precision",
    "stream": "Event Stream stream",
    "dtype_info": "can_cast finfo iinfo isdtype result_type",
    "ops.sets": "isin unique_all unique_counts unique_inverse unique_values",
    "ops.scaled_matmul": "scaled_matmul",
    "ops.segment": "one_hot segment_max segment_mean segment_min segment_prod segment_sum",
    "distributions": "binomial exponential poisson truncated_normal",
    "sampling": "multinomial permutation rand_like randint_like randn_like randperm",
    "ops.average_pooling": "avg_pool2d",
    "ops.convolution_transpose": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "ops.regression_loss": "mse_loss",
    "ops.convolution": "conv1d conv2d conv3d",
    "ops.pooling": "max_pool2d",
    "ops.normalization": "layer_norm",
    "ops.loss": "cross_entropy nll_loss",
    "ops.complex": "angle polar view_as_complex view_as_real",
    "user_kernel": "KernelSource kernel",
}
_find, __dir__, _OFFERED = later(__name__, _LATER, "distributions fft linalg nn optim random special")


def __getattr__(name: str) -> Any:
    """Import the parts that not every program needs when they are first named."""
    if name in _OFFERED:
        return _find(name)
    # `from tensorbus import backend_api` asks here first: a part not yet imported must load no plugin.
    if not name.startswith("_") and name not in plugin_ops.modules():
        found = plugin_ops.find(name)
        if found is not None:
            return found
    raise AttributeError(f"module 'tensorbus' has no attribute {name!r}{other_names.hint(name)}", name=name)
