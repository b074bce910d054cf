"""Forty operators of those that PyTorch brings samples of: others for each seed."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from typing import Any, Final

import pytest

_COUNT: Final = 40


def drawn_operators(request: pytest.FixtureRequest, serves: Callable[[Any], bool]) -> list[str]:
    """Return names of operators that serve; skips the test where PyTorch, or what that needs, is missing."""
    for name in ("torch", "expecttest"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed, which PyTorch's own samples need")
    from torch.testing._internal.common_methods_invocations import op_db

    draw = random.Random(request.config.getoption("--hypothesis-seed", None))
    return draw.sample(sorted({op.name for op in op_db if serves(op)}), _COUNT)
