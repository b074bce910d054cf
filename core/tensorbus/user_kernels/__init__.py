"""Kernels that a program brings along, as source in the languages of its devices.

Source, a shape rule and a derivative come in, an op leaves. In order: ``definition``, ``user_kernel``.
"""

from .user_kernel import KernelSource as KernelSource
from .user_kernel import kernel as kernel
