"""What the tests of the cuda device share."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """The same numbers in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def cupy_or_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names in CuPy's place where it is not installed, so that modules can be imported that only use it."""
    if importlib.util.find_spec("cupy") is not None:
        yield
        return
    before = set(sys.modules)
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    cupy.cuda, cuda.driver = cuda, SimpleNamespace()
    cuda.runtime = SimpleNamespace(CUDARuntimeError=RuntimeError)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("tensorbus_cuda."):
            del sys.modules[name]
