"""What backends and plugins import, and all that they may import, from tensorbus core.

This module follows semantic versioning by ``API_VERSION``: a manifest's ``api`` range is checked against it.
It re-exports; it holds no code.
"""

from __future__ import annotations

from . import dtypes as dtypes
from .api_version import API_VERSION as API_VERSION
from .capture import trace as trace
from .dtypes import DType as DType
from .errors import DeviceError as DeviceError
from .errors import DeviceUnavailableError as DeviceUnavailableError
from .errors import DtypeError as DtypeError
from .errors import IndexingError as IndexingError
from .errors import OutOfMemoryError as OutOfMemoryError
from .errors import PluginError as PluginError
from .errors import ShapeError as ShapeError
from .errors import TensorbusError as TensorbusError
from .errors import UnsupportedDtypeError as UnsupportedDtypeError
from .errors import UnsupportedOpError as UnsupportedOpError
from .hookspecs import hookimpl as hookimpl
from .kernels.from_namespace import from_namespace as from_namespace
from .kernels.strided import strided_views as strided_views
from .ops.op import Op as Op
from .runtime import Call as Call
from .runtime import DeviceProperties as DeviceProperties
from .runtime import Kernel as Kernel
from .runtime import KernelTable as KernelTable
from .runtime import MemoryStats as MemoryStats
from .runtime import Runtime as Runtime
from .runtime import SupportsDLPack as SupportsDLPack
from .runtime import SupportsHostArrays as SupportsHostArrays
from .runtime import SupportsPeerCopy as SupportsPeerCopy
from .runtime import SupportsStreams as SupportsStreams
from .settings import cache_dir as cache_dir
from .strided import StridedArray as StridedArray
