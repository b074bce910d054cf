"""What backends and plugins import, and all that they may import, from tensorbus core.

This module follows semantic versioning by ``API_VERSION``: a manifest's ``api`` range is checked against it.
It re-exports; what only some devices need, the code generator above all, is imported when it is first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from . import dtypes as dtypes
from .api_version import API_VERSION as API_VERSION
from .caching import code_stamp as code_stamp
from .caching import keep as keep
from .caching import kept as kept
from .caching import numbered as numbered
from .caching import private_folder as private_folder
from .caching import write_whole as write_whole
from .capabilities import SourceCall as SourceCall
from .capabilities import SupportsCache as SupportsCache
from .capabilities import SupportsDLPack as SupportsDLPack
from .capabilities import SupportsHostArrays as SupportsHostArrays
from .capabilities import SupportsHostMemory as SupportsHostMemory
from .capabilities import SupportsHostViews as SupportsHostViews
from .capabilities import SupportsPeerCopy as SupportsPeerCopy
from .capabilities import SupportsPinnedMemory as SupportsPinnedMemory
from .capabilities import SupportsStreams as SupportsStreams
from .capabilities import SupportsThreads as SupportsThreads
from .capabilities import SupportsUserKernels as SupportsUserKernels
from .dtypes import DType as DType
from .errors import DeviceError as DeviceError
from .errors import DeviceUnavailableError as DeviceUnavailableError
from .errors import DtypeError as DtypeError
from .errors import IndexingError as IndexingError
from .errors import LinAlgError as LinAlgError
from .errors import OutOfMemoryError as OutOfMemoryError
from .errors import PluginError as PluginError
from .errors import ShapeError as ShapeError
from .errors import TensorbusError as TensorbusError
from .errors import UnsupportedDtypeError as UnsupportedDtypeError
from .errors import UnsupportedOpError as UnsupportedOpError
from .errors import ValuesError as ValuesError
from .hookspecs import hookimpl as hookimpl
from .kernels.from_namespace import from_namespace as from_namespace
from .kernels.strided import strided_views as strided_views
from .locks import cached_property as cached_property
from .ops.elementwise import broadcast_shapes as broadcast_shapes
from .ops.elementwise import elementwise_op as elementwise  # noqa: F401 - plugins register theirs by a hook
from .ops.op import Op as Op
from .ops.op import Spec as Spec
from .precision import get_matmul_precision as get_matmul_precision
from .runtime import Call as Call
from .runtime import DeviceProperties as DeviceProperties
from .runtime import Executable as Executable
from .runtime import Kernel as Kernel
from .runtime import KernelTable as KernelTable
from .runtime import Knob as Knob
from .runtime import Lowering as Lowering
from .runtime import MemoryStats as MemoryStats
from .runtime import Order as Order
from .runtime import Part as Part
from .runtime import Runtime as Runtime
from .settings import c_compiler as c_compiler
from .settings import cache_dir as cache_dir
from .settings import metal_host as metal_host
from .settings import threads as threads
from .strided import StridedArray as StridedArray

if TYPE_CHECKING:
    from .capture import trace as trace
    from .device import Device as Device
    from .execution.dialect import DialectLowering as DialectLowering
    from .execution.interpret import Interpreting as Interpreting
    from .execution.library import library_call as library_call
    from .execution.playing import Queued as Queued
    from .execution.playing import Script as Script
    from .execution.prepared import is_generated as is_generated
    from .execution.prepared import prepared as prepared
    from .graph.graph import Graph as Graph
    from .graph.graph import Node as Node
    from .graph.naming import name_of as name_of
    from .kernels.dlpack import from_capsule as from_capsule
    from .kernels.dlpack import to_capsule as to_capsule
    from .kernels.from_dialect import from_dialect as from_dialect
    from .kernels.from_dialect import pack as pack
    from .kernels.from_source import from_source as from_source
    from .kernels.from_source import launch_of as launch_of
    from .kernels.from_source import source_head as source_head
    from .kernels.host import FFT as FFT
    from .kernels.host import LINALG as LINALG
    from .kernels.host import host_kernels as host_kernels
    from .kernels.linalg import linalg_from_namespace as linalg_from_namespace
    from .kernels.reports import Reports as Reports
    from .lowering import ir as _ir
    from .lowering import steps as _steps
    from .lowering import verify as _verify
    from .lowering.builder import Late as Late
    from .lowering.builder import Launch as Launch
    from .lowering.c_family import CASTS as CASTS
    from .lowering.c_family import EXPRESSIONS as EXPRESSIONS
    from .lowering.c_family import RANDOM as RANDOM
    from .lowering.c_family import SATURATING as SATURATING
    from .lowering.c_float8 import float8_types as float8_types
    from .lowering.c_math import C_SINGLE as C_SINGLE
    from .lowering.c_math import C_WIDE_SINGLE as C_WIDE_SINGLE
    from .lowering.c_math import OPENCL_SINGLE as OPENCL_SINGLE
    from .lowering.c_math import OPENCL_WIDE_SINGLE as OPENCL_WIDE_SINGLE
    from .lowering.dialect import Dialect as Dialect
    from .lowering.dialect import Helper as Helper
    from .lowering.dialect import TypeRule as TypeRule
    from .lowering.families import Library as Library
    from .lowering.ir import INDEX as INDEX
    from .lowering.job import COUNTS_SLOT as COUNTS_SLOT
    from .lowering.job import ERROR_SLOT as ERROR_SLOT
    from .lowering.job import Step as Step
    from .lowering.layout import Layout as Layout
    from .lowering.memory import plan_memory as plan_memory
    from .lowering.outputs import PAST as PAST
    from .lowering.outputs import stored_past as stored_past
    from .lowering.program import lower as lower
    from .lowering.render import kernel_parts as kernel_parts
    from .lowering.steps import Batch as Batch
    from .lowering.steps import Program as Program
    from .lowering.steps import parts_of as parts_of
    from .lowering.steps import slots_of as slots_of
    from .lowering.steps import steps_of as steps_of
    from .lowering.target import Target as Target

    LoopKernel = _ir.Kernel
    LibraryCall = _steps.Call
    verify_kernel = _verify.verify

_LATER: Final = {
    "trace": "capture",
    "Device": "device",
    "DialectLowering": "execution.dialect",
    "Interpreting": "execution.interpret",
    "library_call": "execution.library",
    "Queued": "execution.playing",
    "Script": "execution.playing",
    "is_generated": "execution.prepared",
    "prepared": "execution.prepared",
    "Graph": "graph.graph",
    "Node": "graph.graph",
    "name_of": "graph.naming",
    "from_dialect": "kernels.from_dialect",
    "pack": "kernels.from_dialect",
    "from_source": "kernels.from_source",
    "launch_of": "kernels.from_source",
    "source_head": "kernels.from_source",
    "FFT": "kernels.host",
    "LINALG": "kernels.host",
    "host_kernels": "kernels.host",
    "from_capsule": "kernels.dlpack",
    "to_capsule": "kernels.dlpack",
    "Reports": "kernels.reports",
    "linalg_from_namespace": "kernels.linalg",
    "Late": "lowering.builder",
    "Launch": "lowering.builder",
    "CASTS": "lowering.c_family",
    "EXPRESSIONS": "lowering.c_family",
    "RANDOM": "lowering.c_family",
    "SATURATING": "lowering.c_family",
    "float8_types": "lowering.c_float8",
    "C_SINGLE": "lowering.c_math",
    "C_WIDE_SINGLE": "lowering.c_math",
    "OPENCL_SINGLE": "lowering.c_math",
    "OPENCL_WIDE_SINGLE": "lowering.c_math",
    "PAST": "lowering.outputs",
    "stored_past": "lowering.outputs",
    "Dialect": "lowering.dialect",
    "Helper": "lowering.dialect",
    "TypeRule": "lowering.dialect",
    "INDEX": "lowering.ir",
    "LoopKernel": "lowering.ir:Kernel",
    "Library": "lowering.families",
    "COUNTS_SLOT": "lowering.job",
    "ERROR_SLOT": "lowering.job",
    "Step": "lowering.job",
    "Layout": "lowering.layout",
    "plan_memory": "lowering.memory",
    "lower": "lowering.program",
    "Batch": "lowering.steps",
    "LibraryCall": "lowering.steps:Call",
    "Program": "lowering.steps",
    "parts_of": "lowering.steps",
    "slots_of": "lowering.steps",
    "steps_of": "lowering.steps",
    "kernel_parts": "lowering.render",
    "Target": "lowering.target",
    "verify_kernel": "lowering.verify:verify",
}


def __getattr__(name: str) -> Any:
    """Import what only some devices need when it is first named."""
    if name in _LATER:
        module, _, own = _LATER[name].partition(":")
        return getattr(importlib.import_module(f".{module}", __package__), own or name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
