"""Saving and loading: safetensors files, whose header tells nested data.

In order: ``pytree_json``, ``atomic_file``, ``foreign_formats``, ``safetensors``.
"""

from __future__ import annotations

from .safetensors import CODES as CODES
from .safetensors import load as load
from .safetensors import save as save
