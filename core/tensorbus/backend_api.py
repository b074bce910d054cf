"""All that backends and plugins may import from tensorbus core.

This module follows semantic versioning by ``API_VERSION``: a manifest's ``api`` range is checked against it.
It re-exports; what only some devices need, the code generator above all, is imported when it is first named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from . import dtypes as dtypes
from .amp.matmul_precision import get_matmul_precision as get_matmul_precision
from .backend_interface.capabilities import SourceCall as SourceCall
from .backend_interface.capabilities import SupportsAddresses as SupportsAddresses
from .backend_interface.capabilities import SupportsCache as SupportsCache
from .backend_interface.capabilities import SupportsDLPack as SupportsDLPack
from .backend_interface.capabilities import SupportsHostArrays as SupportsHostArrays
from .backend_interface.capabilities import SupportsHostMemory as SupportsHostMemory
from .backend_interface.capabilities import SupportsHostViews as SupportsHostViews
from .backend_interface.capabilities import SupportsImmediateErrors as SupportsImmediateErrors
from .backend_interface.capabilities import SupportsInterruptibleWaits as SupportsInterruptibleWaits
from .backend_interface.capabilities import SupportsLateErrors as SupportsLateErrors
from .backend_interface.capabilities import SupportsLending as SupportsLending
from .backend_interface.capabilities import SupportsPeerCopy as SupportsPeerCopy
from .backend_interface.capabilities import SupportsPinnedMemory as SupportsPinnedMemory
from .backend_interface.capabilities import SupportsReadChecks as SupportsReadChecks
from .backend_interface.capabilities import SupportsReadErrors as SupportsReadErrors
from .backend_interface.capabilities import SupportsStreams as SupportsStreams
from .backend_interface.capabilities import SupportsThreads as SupportsThreads
from .backend_interface.capabilities import SupportsUserKernels as SupportsUserKernels
from .backend_interface.capabilities import SupportsWritingOver as SupportsWritingOver
from .backend_interface.communication import REDUCTIONS as REDUCTIONS
from .backend_interface.communication import Communicator as Communicator
from .backend_interface.communication import CommunicatorFactory as CommunicatorFactory
from .backend_interface.communication import Rendezvous as Rendezvous
from .backend_interface.communication import Store as Store
from .backend_interface.communication import StoreFactory as StoreFactory
from .backend_interface.compilation import CompiledForInspection as CompiledForInspection
from .backend_interface.compilation import CompileRequest as CompileRequest
from .backend_interface.compilation import Executable as Executable
from .backend_interface.compilation import Knob as Knob
from .backend_interface.compilation import Lowering as Lowering
from .backend_interface.compilation import ProgramPart as ProgramPart
from .backend_interface.compilation import SymbolicProgram as SymbolicProgram
from .backend_interface.compilation import at_sizes as at_sizes
from .backend_interface.foreign_finalizer import call_when_gone as call_when_gone
from .backend_interface.graph import Graph as Graph
from .backend_interface.graph import Node as Node
from .backend_interface.graph import SubGraph as SubGraph
from .backend_interface.handle_counter import HandleCounter as HandleCounter
from .backend_interface.handle_counter import Life as Life
from .backend_interface.launching import Launcher as Launcher
from .backend_interface.launching import LauncherFactory as LauncherFactory
from .backend_interface.launching import LaunchRequest as LaunchRequest
from .backend_interface.launching import Ranks as Ranks
from .backend_interface.launching import Show as Show
from .backend_interface.mailbox import Mailbox as Mailbox
from .backend_interface.mailbox import PostedReceive as PostedReceive
from .backend_interface.protocols import Call as Call
from .backend_interface.protocols import DeviceProperties as DeviceProperties
from .backend_interface.protocols import Kernel as Kernel
from .backend_interface.protocols import KernelTable as KernelTable
from .backend_interface.protocols import MemoryStats as MemoryStats
from .backend_interface.protocols import Runtime as Runtime
from .backend_interface.spec import Spec as Spec
from .backend_interface.store_arguments import store_amount as store_amount
from .backend_interface.store_arguments import store_key as store_key
from .backend_interface.store_arguments import store_keys as store_keys
from .backend_interface.store_arguments import store_pairs as store_pairs
from .backend_interface.store_arguments import store_seconds as store_seconds
from .backend_interface.store_arguments import store_sum as store_sum
from .backend_interface.store_arguments import store_value as store_value
from .backend_interface.strided_array import StridedArray as StridedArray
from .dtypes.definition import DType as DType
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
from .interchange.transfer import device_address as device_address
from .interchange.transfer import device_contiguous as device_contiguous
from .interchange.transfer import device_empty as device_empty
from .interchange.transfer import from_bytes as from_bytes
from .interchange.transfer import from_memory as from_memory
from .interchange.transfer import to_bytes as to_bytes
from .kernels.from_namespace import from_namespace as from_namespace
from .kernels.strided_views import strided_views as strided_views
from .ops.definition import Op as Op
from .ops.elementwise.family import broadcast_shapes as broadcast_shapes
from .ops.elementwise.family import elementwise_composites as elementwise_composites
from .ops.elementwise.family import elementwise_op as elementwise  # noqa: F401 - plugins register theirs by a hook
from .plugins import host_type as host_type
from .plugins.api_version import API_VERSION as API_VERSION
from .plugins.hookspecs import hookimpl as hookimpl
from .system.disk_cache import cache_load as cache_load
from .system.disk_cache import cache_store as cache_store
from .system.disk_cache import cached_library as cached_library
from .system.disk_cache import code_stamp as code_stamp
from .system.disk_cache import private_folder as private_folder
from .system.disk_cache import with_line_numbers as with_line_numbers
from .system.disk_cache import write_whole as write_whole
from .system.env import c_compiler as c_compiler
from .system.env import cache_dir as cache_dir
from .system.env import metal_host as metal_host
from .system.env import threads as threads
from .system.fork_safe_locks import cached_property as cached_property
from .system.items import items_at as items_at
from .system.weak_tables import WeakSet as WeakSet
from .system.weak_tables import WeakTable as WeakTable
from .system.weak_tables import WeakValues as WeakValues

if TYPE_CHECKING:
    from .decompose.decompose import decompose as decompose
    from .decompose.tracer import graph_of_op as graph_of_op
    from .decompose.tracer import trace as trace
    from .devices.device import Device as Device
    from .devices.stream_capture import StreamCapture as StreamCapture
    from .devices.stream_capture import capturing as capturing
    from .distributed.collectives.combination import combined as combined
    from .distributed.collectives.combination import copied as copied
    from .distributed.launch.supervisor import Failed as Failed
    from .distributed.launch.supervisor import supervise as supervise
    from .executors.kernel_interpreter import Interpreting as Interpreting
    from .executors.legalize import is_generated as is_generated
    from .executors.legalize import prepared as prepared
    from .executors.library_call import library_call as library_call
    from .executors.replay_interface import Queued as Queued
    from .executors.replay_interface import Script as Script
    from .executors.source_lowering import DialectLowering as DialectLowering
    from .graph.fingerprint import name_of as name_of
    from .kernels.device_error_reports import Reports as Reports
    from .kernels.dlpack_capsule import from_capsule as from_capsule
    from .kernels.dlpack_capsule import to_capsule as to_capsule
    from .kernels.from_dialect import GENERATED_COMPOSITES as GENERATED_COMPOSITES
    from .kernels.from_dialect import from_dialect as from_dialect
    from .kernels.from_dialect import is_alone as is_alone
    from .kernels.from_dialect import pack as pack
    from .kernels.namespace_linalg import linalg_from_namespace as linalg_from_namespace
    from .kernels.user_source import from_source as from_source
    from .kernels.user_source import launch_of as launch_of
    from .kernels.user_source import source_head as source_head
    from .kernels.via_host import FFT as FFT
    from .kernels.via_host import LINALG as LINALG
    from .kernels.via_host import host_kernels as host_kernels
    from .lowering.codegen.c_expressions import CASTS as CASTS
    from .lowering.codegen.c_expressions import EXPRESSIONS as EXPRESSIONS
    from .lowering.codegen.c_expressions import RANDOM as RANDOM
    from .lowering.codegen.c_expressions import SATURATING as SATURATING
    from .lowering.codegen.c_float8 import float8_types as float8_types
    from .lowering.codegen.c_math import C_SINGLE as C_SINGLE
    from .lowering.codegen.c_math import C_WIDE_SINGLE as C_WIDE_SINGLE
    from .lowering.codegen.c_math import OPENCL_SINGLE as OPENCL_SINGLE
    from .lowering.codegen.c_math import OPENCL_WIDE_SINGLE as OPENCL_WIDE_SINGLE
    from .lowering.codegen.dialect import Dialect as Dialect
    from .lowering.codegen.dialect import Helper as Helper
    from .lowering.codegen.dialect import TypeRule as TypeRule
    from .lowering.codegen.numbers_in_memory import numbers_in_memory as numbers_in_memory
    from .lowering.codegen.render import kernel_parts as kernel_parts
    from .lowering.heuristics import Heuristics as Heuristics
    from .lowering.ir import builder as _builder
    from .lowering.ir import index_expr as index_expr
    from .lowering.ir import loop_ir as _ir
    from .lowering.ir import verify as _verify
    from .lowering.ir.builder import Launch as Launch
    from .lowering.ir.builder import RuntimeArg as RuntimeArg
    from .lowering.ir.kernel_task import COUNTS_SLOT as COUNTS_SLOT
    from .lowering.ir.kernel_task import ERROR_SLOT as ERROR_SLOT
    from .lowering.ir.kernel_task import KernelLaunch as KernelLaunch
    from .lowering.ir.kernel_task import LaunchList as LaunchList
    from .lowering.ir.kernel_task import LibraryCall as LibraryCall
    from .lowering.ir.kernel_task import parallel_loops as parallel_loops
    from .lowering.ir.layout import Layout as Layout
    from .lowering.ir.loop_ir import INDEX as INDEX
    from .lowering.library import Library as Library
    from .lowering.program.lower import lower as lower
    from .lowering.program.memory_planner import plan_memory as plan_memory
    from .lowering.program.program import ParallelBatch as ParallelBatch
    from .lowering.program.program import Program as Program
    from .lowering.program.program import parts_of as parts_of
    from .lowering.program.program import slots_of as slots_of
    from .lowering.program.program import steps_of as steps_of
    from .lowering.schedules.attention import forward as _attention
    from .lowering.schedules.attention import score_code as _score_code
    from .lowering.schedules.attention.key_parts import cut_keys as cut_keys
    from .lowering.schedules.attention.key_parts import join_key_parts as join_key_parts
    from .lowering.schedules.attention.key_parts import key_part_slots as key_part_slots
    from .lowering.schedules.attention.score_code import ScoreCode as ScoreCode
    from .lowering.schedules.pointwise.stores import PAST as PAST
    from .lowering.schedules.pointwise.stores import stored_past as stored_past
    from .lowering.schedules.schedule import Schedule as Schedule
    from .lowering.schedules.schedule import ScheduleRequest as ScheduleRequest
    from .lowering.target import Target as Target
    from .ops.fused_update import is_fused_update as is_fused_update
    from .ops.nn import attention_blocks as _attention_blocks
    from .ops.nn.attention_blocks import takes_products as takes_products
    from .system.build_folder import build_folder as build_folder
    from .system.build_folder import run_compiler as run_compiler
    from .system.private_folders import safe_by_path as safe_by_path
    from .system.shared_library import load_library as load_library
    from .tracing.plan_env import PlanEnv as PlanEnv
    from .tracing.sym_int import SymInt as SymInt
    from .tracing.sym_int import at as at
    from .tracing.sym_int import hints as hints
    from .tracing.sym_int import is_open as is_open
    from .tracing.sym_int import near as near
    from .tracing.sym_int import substitute as substitute

    LoopKernel = _ir.LoopKernel
    KernelBuilder = _builder.Builder
    AttentionProblem = _attention.Problem
    attention_tiles = _attention.tiles_of
    ScoreNumbers = _score_code.Numbers
    AttentionAttrs = _attention_blocks.Attrs
    verify_kernel = _verify.verify

_LATER: Final = {
    "decompose": "decompose.decompose",
    "graph_of_op": "decompose.tracer",
    "takes_products": "ops.nn.attention_blocks",
    "trace": "decompose.tracer",
    "Device": "devices.device",
    "StreamCapture": "devices.stream_capture",
    "capturing": "devices.stream_capture",
    "DialectLowering": "executors.source_lowering",
    "Interpreting": "executors.kernel_interpreter",
    "library_call": "executors.library_call",
    "Queued": "executors.replay_interface",
    "Script": "executors.replay_interface",
    "is_generated": "executors.legalize",
    "is_fused_update": "ops.fused_update",
    "prepared": "executors.legalize",
    "name_of": "graph.fingerprint",
    "from_dialect": "kernels.from_dialect",
    "GENERATED_COMPOSITES": "kernels.from_dialect",
    "pack": "kernels.from_dialect",
    "is_alone": "kernels.from_dialect",
    "from_source": "kernels.user_source",
    "launch_of": "kernels.user_source",
    "source_head": "kernels.user_source",
    "FFT": "kernels.via_host",
    "LINALG": "kernels.via_host",
    "host_kernels": "kernels.via_host",
    "from_capsule": "kernels.dlpack_capsule",
    "to_capsule": "kernels.dlpack_capsule",
    "Reports": "kernels.device_error_reports",
    "linalg_from_namespace": "kernels.namespace_linalg",
    "RuntimeArg": "lowering.ir.builder",
    "Launch": "lowering.ir.builder",
    "KernelBuilder": "lowering.ir.builder:Builder",
    "index_expr": "lowering.ir.kernel_task:ix",
    "CASTS": "lowering.codegen.c_expressions",
    "EXPRESSIONS": "lowering.codegen.c_expressions",
    "RANDOM": "lowering.codegen.c_expressions",
    "SATURATING": "lowering.codegen.c_expressions",
    "float8_types": "lowering.codegen.c_float8",
    "C_SINGLE": "lowering.codegen.c_math",
    "C_WIDE_SINGLE": "lowering.codegen.c_math",
    "OPENCL_SINGLE": "lowering.codegen.c_math",
    "OPENCL_WIDE_SINGLE": "lowering.codegen.c_math",
    "PAST": "lowering.schedules.pointwise.stores",
    "stored_past": "lowering.schedules.pointwise.stores",
    "Dialect": "lowering.codegen.dialect",
    "Helper": "lowering.codegen.dialect",
    "TypeRule": "lowering.codegen.dialect",
    "INDEX": "lowering.ir.loop_ir",
    "LoopKernel": "lowering.ir.loop_ir",
    "Library": "lowering.library",
    "COUNTS_SLOT": "lowering.ir.kernel_task",
    "ERROR_SLOT": "lowering.ir.kernel_task",
    "KernelLaunch": "lowering.ir.kernel_task",
    "parallel_loops": "lowering.ir.kernel_task",
    "Layout": "lowering.ir.layout",
    "combined": "distributed.collectives.combination",
    "copied": "distributed.collectives.combination",
    "Failed": "distributed.launch.supervisor",
    "supervise": "distributed.launch.supervisor",
    "plan_memory": "lowering.program.memory_planner",
    "PlanEnv": "tracing.plan_env",
    "SymInt": "tracing.sym_int",
    "at": "tracing.sym_int",
    "hints": "tracing.sym_int",
    "near": "tracing.sym_int",
    "is_open": "tracing.sym_int",
    "substitute": "tracing.sym_int",
    "lower": "lowering.program.lower",
    "ParallelBatch": "lowering.program.program",
    "LibraryCall": "lowering.ir.kernel_task",
    "Program": "lowering.program.program",
    "parts_of": "lowering.program.program",
    "slots_of": "lowering.program.program",
    "steps_of": "lowering.program.program",
    "kernel_parts": "lowering.codegen.render",
    "numbers_in_memory": "lowering.codegen.numbers_in_memory",
    "Schedule": "lowering.schedules.schedule",
    "LaunchList": "lowering.ir.kernel_task",
    "AttentionAttrs": "ops.nn.attention_blocks:Attrs",
    "AttentionProblem": "lowering.schedules.attention.forward:Problem",
    "attention_tiles": "lowering.schedules.attention.forward:tiles_of",
    "cut_keys": "lowering.schedules.attention.key_parts",
    "join_key_parts": "lowering.schedules.attention.key_parts",
    "key_part_slots": "lowering.schedules.attention.key_parts",
    "ScoreCode": "lowering.schedules.attention.score_code",
    "ScoreNumbers": "lowering.schedules.attention.score_code:Numbers",
    "ScheduleRequest": "lowering.schedules.schedule",
    "Heuristics": "lowering.heuristics",
    "Target": "lowering.target",
    "verify_kernel": "lowering.ir.verify:verify",
    "build_folder": "system.build_folder",
    "run_compiler": "system.build_folder",
    "safe_by_path": "system.private_folders",
    "load_library": "system.shared_library",
}

# What has a new name: the former one goes on working for packages that are installed.
_FORMER: Final = {
    "Batch": "ParallelBatch",
    "Late": "RuntimeArg",
    "Order": "CompileRequest",
    "Part": "ProgramPart",
    "Step": "KernelLaunch",
    "keep": "cache_store",
    "kept": "cache_load",
    "numbered": "with_line_numbers",
}


def __getattr__(name: str) -> Any:
    """Import what only some devices need when it is first named; find renamed ones by their former names."""
    name = _FORMER.get(name, name)
    if name in globals():
        return globals()[name]
    if name in _LATER:
        module, _, own = _LATER[name].partition(":")
        return getattr(importlib.import_module(f".{module}", __package__), own or name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names that there are, those too whose modules are imported when they are first named."""
    return sorted({*globals(), *_LATER})
