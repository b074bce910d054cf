"""Ops that a program or a package defines in Python: ``tb.library``.

An annotated function comes in, an op leaves: with kernels for devices, a shape rule, a derivative, a batching
rule. In order: ``schema``, ``call_layout``, ``shared_memory``, ``call_codegen``, ``rules``, ``custom_op``,
``opcheck``.
"""

from .custom_op import CustomOp as CustomOp
from .custom_op import VmapInfo as VmapInfo
from .custom_op import custom_op as custom_op
from .custom_op import custom_op_names as custom_op_names
from .custom_op import get_op as get_op
from .custom_op import unregister as unregister
from .opcheck import OpCheckError as OpCheckError
from .opcheck import opcheck as opcheck
