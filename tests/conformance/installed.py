"""Which device types are installed, and which of them can be used here."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType
from tensorbus.errors import DeviceError, PluginError

OWED: Final = frozenset({dt.bool_, dt.int64, dt.float32, dt.uint32, dt.uint64})
"""The dtypes that every device has, because tensorbus itself computes in them."""


@cache
def _probed() -> dict[str, str | None]:
    results: dict[str, str | None] = {}
    for name in plugins.known_types():
        try:
            plugins.backend(name)
        except (DeviceError, PluginError) as error:
            results[name] = str(error)
        else:
            results[name] = None
    return results


def available() -> list[str]:
    """Return the device types that can be used."""
    return [name for name, reason in _probed().items() if reason is None]


def reasons() -> dict[str, str]:
    """Return why each of the others cannot."""
    return {name: reason for name, reason in _probed().items() if reason is not None}


def lacks(device: str, dtype: DType) -> bool:
    """Return whether the device does not have ``dtype``; assert that it then says so."""
    if dtype in dtypes(device):
        return False
    with pytest.raises(tb.UnsupportedDtypeError, match=f"{device}:0 has no {dtype}"):
        tb.asarray([1], dtype=dtype, device=device)
    return True


@cache
def dtypes(device: str) -> frozenset[DType]:
    """Return what the device computes in."""
    return tb.device(device).properties.dtypes


def missing_dtype(device: str, error: tb.UnsupportedDtypeError) -> DType | None:
    """Return the dtype that ``error`` says ``device`` lacks, where the device may lack it and does."""
    match = re.search(rf"\b{re.escape(device)}:\d+ has no (\w+)", str(error))
    dtype = dt.BY_NAME.get(match[1]) if match else None
    return None if dtype is None or dtype in OWED or dtype in dtypes(device) else dtype
