"""Ops that a program or a package defines in Python: ``tb.library``.

An annotated function comes in, an op leaves: with kernels for devices, a shape rule, a derivative, a batching
rule. Kernels are functions of tensors, or source in the language of a device. In order: ``schema``,
``call_layout``, ``shared_memory``, ``call_codegen``, ``kernel_source``, ``rules``, ``custom_op``,
``kernel_definition``, ``user_kernel``, ``opcheck``.
"""

from .custom_op import CustomOp as CustomOp
from .custom_op import VmapInfo as VmapInfo
from .custom_op import custom_op as custom_op
from .custom_op import custom_op_names as custom_op_names
from .custom_op import get_op as get_op
from .custom_op import unregister as unregister
from .kernel_source import KernelSource as KernelSource
from .opcheck import OpCheckError as OpCheckError
from .opcheck import opcheck as opcheck
from .user_kernel import kernel as kernel
