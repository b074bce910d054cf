"""Kernels that a program brings along, as source in the languages of its devices."""

from .brought import KernelSource as KernelSource
from .brought import kernel as kernel
