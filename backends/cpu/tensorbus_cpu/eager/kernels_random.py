"""Random words: by ``csource/random.c``, few of them or without a compiler by NumPy. Both give the same."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, Kernel, dtypes

from ..compiler import NATIVE
from ..memory import empty, run
from .kernels_native import routine

_NUMPY_WORDS: Final = 32
"""So few words are drawn before anything was loaded or compiled in the time that it takes."""
_PIECE: Final = 1 << 11
_WORDS: Final = 4


def _prepare(call: Call) -> Callable[..., Any]:
    shape = call.attrs["shape"]
    words = prod(shape)
    if words < _NUMPY_WORDS or NATIVE.compiler() is None:
        return lambda state: run(_in_numpy, state, shape)
    native = routine("random", dtypes.uint64, dtypes.uint32, source="random")
    fill = native.prepared("random", 2, (words,), (-(-words // _WORDS),), (_PIECE,))

    def draw(state: Any) -> Any:
        out = empty(shape, np.uint32)
        fill(np.ascontiguousarray(state), out)
        return out

    return draw


def _in_numpy(state: Any, shape: tuple[int, ...]) -> Any:
    """Philox4x32-10 in place: the rounds work on four columns and allocate nothing."""
    blocks = -(-prod(shape) // _WORDS)
    mask, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    key = int(state[0])
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    place = np.arange(blocks, dtype=np.uint64) + state[1]
    x0, x1 = place & mask, place >> word
    x2, x3 = np.zeros_like(x0), np.zeros_like(x0)
    for _ in range(10):
        left, right = x0, x2
        left *= np.uint64(0xD2511F53)
        right *= np.uint64(0xCD9E8D57)
        y0, y2 = right >> word, left >> word
        y0 ^= x1
        y0 ^= np.uint64(k0)
        y2 ^= x3
        y2 ^= np.uint64(k1)
        right &= mask
        left &= mask
        x0, x1, x2, x3 = y0, right, y2, left
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    words = np.empty((blocks, _WORDS), np.uint32)
    for column, x in enumerate((x0, x1, x2, x3)):
        words[:, column] = x
    return words.reshape(-1)[: prod(shape)].reshape(shape)


def random_kernels() -> dict[str, Kernel]:
    """Return the kernel of random words."""
    return {"random_bits": Kernel(name="native", prepare=_prepare)}
