"""Kernels that a program brings along, as source in the languages of its devices."""

from .user_kernel import KernelSource as KernelSource
from .user_kernel import kernel as kernel
