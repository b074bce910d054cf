"""Which device types are installed, and which of them can be used here."""

from __future__ import annotations

from functools import cache

import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.dtypes import DType
from tensorbus.errors import DeviceError, PluginError


@cache
def _probed() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in plugins.known_types():
        try:
            plugins.backend(name)
        except (DeviceError, PluginError) as error:
            found[name] = str(error)
        else:
            found[name] = None
    return found


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
