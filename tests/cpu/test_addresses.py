"""Where the elements of an array lie, read without NumPy's help."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tensorbus_cpu import memory


def arrays() -> list[np.ndarray]:
    a = np.arange(24.0).reshape(2, 3, 4)
    fixed = a.copy()
    fixed.flags.writeable = False
    return [
        a, a[1, ::2, 1:], a[..., ::-1], a.T, fixed, np.zeros(()), np.zeros((0, 3)),
        a.astype(ml_dtypes.bfloat16), np.frombuffer(bytes(9), np.uint8)[1:].view("i8"),
    ]  # fmt: skip


@pytest.mark.parametrize("array", arrays())
@pytest.mark.parametrize("known", [True, False])
def test_the_address_is_the_one_that_numpy_tells(
    array: np.ndarray, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(memory, "_PLACE", None)
    assert memory.address(array) == array.ctypes.data


def test_the_place_is_seen_here() -> None:
    assert memory._PLACE is not None
