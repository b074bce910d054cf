"""tensorbus: tensors on any device, whose devices are plugins.

Everything public is named here. Importing this package imports no array library and no backend: a device is
brought up when it is first asked for.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from . import plugin_ops as plugin_ops
from .version import __version__ as __version__
from .autograd import backward as backward
from .autograd import enable_grad as enable_grad
from .autograd import grad as grad
from .autograd import is_grad_enabled as is_grad_enabled
from .autograd import no_grad as no_grad
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
from .errors import DeviceError as DeviceError
from .errors import DeviceUnavailableError as DeviceUnavailableError
from .errors import DtypeError as DtypeError
from .errors import IndexingError as IndexingError
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
from .functions import cumulative_sum as cumulative_sum
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
from .interchange import asarray as asarray
from .interchange import from_dlpack as from_dlpack
from .interchange import tensor as tensor
from .ops.activation import clip as clip
from .ops.activation import gelu as gelu
from .ops.arithmetic import conj as conj
from .ops.convolution import avg_pool2d as avg_pool2d
from .ops.convolution import conv1d as conv1d
from .ops.convolution import conv2d as conv2d
from .ops.convolution import conv3d as conv3d
from .ops.convolution import max_pool2d as max_pool2d
from .ops.creation import arange as arange
from .ops.creation import empty as empty
from .ops.creation import empty_like as empty_like
from .ops.creation import eye as eye
from .ops.creation import full_like as full_like
from .ops.creation import linspace as linspace
from .ops.creation import ones as ones
from .ops.creation import ones_like as ones_like
from .ops.creation import tril as tril
from .ops.creation import triu as triu
from .ops.creation import zeros as zeros
from .ops.creation import zeros_like as zeros_like
from .ops.elementwise import broadcast_shapes as broadcast_shapes
from .ops.indexing import nonzero as nonzero
from .ops.indexing import take as take
from .ops.loss import cross_entropy as cross_entropy
from .ops.loss import mse_loss as mse_loss
from .ops.loss import nll_loss as nll_loss
from .ops.matmul import matmul as matmul
from .ops.matmul import matrix_transpose as matrix_transpose
from .ops.matmul import tensordot as tensordot
from .ops.movement import expand_dims as expand_dims
from .ops.movement import flatten as flatten
from .ops.movement import moveaxis as moveaxis
from .ops.movement import squeeze as squeeze
from .ops.movement import stack as stack
from .ops.normalization import layer_norm as layer_norm
from .random import Generator as Generator
from .random import bernoulli as bernoulli
from .random import manual_seed as manual_seed
from .random import normal as normal
from .random import rand as rand
from .random import randint as randint
from .random import randn as randn
from .random import uniform as uniform
from .ops.reduction import std as std
from .ops.reduction import var as var
from .ops.softmax import logsumexp as logsumexp
from .stream import Event as Event
from .stream import Stream as Stream
from .stream import stream as stream
from .tensor import Tensor as Tensor

e = 2.718281828459045
pi = 3.141592653589793
inf = float("inf")
nan = float("nan")
newaxis = None

if TYPE_CHECKING:
    from . import nn as nn
    from . import optim as optim
    from .serialization import load as load
    from .serialization import save as save


def __getattr__(name: str) -> Any:
    """Import the parts that not every program needs when they are first named."""
    if name in ("nn", "optim"):
        return importlib.import_module(f".{name}", __name__)
    if name in ("save", "load"):
        return getattr(importlib.import_module(".serialization", __name__), name)
    # `from tensorbus import backend_api` asks here first: a part not yet imported must load no plugin.
    if not name.startswith("_") and importlib.util.find_spec(f"tensorbus.{name}") is None:
        found = plugin_ops.find(name)
        if found is not None:
            return found
    raise AttributeError(f"module 'tensorbus' has no attribute {name!r}")
