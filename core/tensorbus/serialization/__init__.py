"""Saving and loading: safetensors files, whose header says how nested data was put together."""

from __future__ import annotations

from .safetensors import CODES as CODES
from .safetensors import load as load
from .safetensors import save as save
