"""Every installed device is either tested or said to be missing, with its reason."""

from __future__ import annotations

import pytest
import tensorbus as tb

from installed import available, reasons


def test_a_device_is_available() -> None:
    assert available()


def test_every_installed_device_is_available() -> None:
    missing = [f"{name}: {why.splitlines()[0]}" for name, why in reasons().items()]
    if missing:
        pytest.skip(f"installed, but not tested here: {'; '.join(missing)}")


def test_no_unit_has_a_dtype_that_the_manifest_lacks(device: str) -> None:
    declared = set(tb.plugins.backend(device).manifest.dtypes)
    assert {d.name for d in tb.Device(device).properties.dtypes} <= declared
