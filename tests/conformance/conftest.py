"""Every test with a ``device`` argument runs on every device that can be used here."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest
import tensorbus as tb

from installed import available, missing_dtype, reasons


def _chosen(config: pytest.Config) -> list[str]:
    asked = [name for operand in config.getoption("--device") or () for name in operand.split(",")]
    wrong = {name: reasons().get(name, "not installed") for name in asked if name not in available()}
    if wrong:
        raise pytest.UsageError(f"--device: {'; '.join(f'{name}: {why}' for name, why in wrong.items())}")
    return asked or available()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Hand out the devices."""
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", _chosen(metafunc.config))


def pytest_report_header(config: pytest.Config) -> str:
    """Say on which devices the tests run, and why not on the others."""
    out = [f"{name} ({why.splitlines()[0]})" for name, why in reasons().items()]
    return f"devices: {', '.join(_chosen(config))}; not available: {', '.join(out) or 'none'}"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a test that needs a dtype which no device owes and this one does not have, naming the dtype."""
    device = getattr(pyfuncitem, "callspec", None) and pyfuncitem.callspec.params.get("device")
    try:
        return (yield)
    except tb.UnsupportedDtypeError as error:
        dtype = missing_dtype(device, error) if isinstance(device, str) else None
        if dtype is None:
            raise
        pytest.skip(f"{device} has no {dtype}")


@pytest.fixture(autouse=True)
def _settled() -> Iterator[None]:
    """Let devices that queue work report what a test of errors left behind, before the next test waits."""
    yield
    for name in available():
        with suppress(tb.TensorbusError):
            tb.Device(name).synchronize()
