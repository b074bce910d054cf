"""Random numbers: one stream for one seed on every device.

The bits come from Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
SC 2011), a function of a key (the seed) and a counter, written in integer ops: every device computes the same
bits. A generator only remembers how many blocks of four words it has handed out.
"""

from __future__ import annotations

import math
import threading
from math import prod
from typing import TYPE_CHECKING, Any, Final

from .. import dtypes as dt
from ..dtypes import DType
from ..errors import DtypeError, ShapeError
from .comparison import bitwise_and, bitwise_right_shift, bitwise_xor, less
from .creation import DeviceLike, check_shape, iota
from .movement import as_shape, concat, reshape, slice
from .op import Op, Shape, Spec, table
from .selection import cast
from .transcendental import cos, log, sqrt

if TYPE_CHECKING:
    from ..tensor import Tensor

_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_WORD: Final = 0xFFFFFFFF


def _bits_arguments(state: Any, shape: int | tuple[int, ...], /) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (state,), {"shape": check_shape("random_bits", as_shape("random_bits", shape))}


def _bits_infer(specs: tuple[Spec, ...], *, shape: Shape) -> Spec:
    if specs[0] != Spec((2,), dt.uint64):
        raise ShapeError(f"random_bits: the state is uint64[2], the key and the first block; got {specs[0]}.")
    return Spec(shape, dt.uint32)


def _philox(state: Any, shape: Shape) -> Any:
    """Ten rounds over blocks of four 32-bit words, held in 64 bits so that products keep their high half."""
    blocks = -(-prod(shape) // 4)
    key, counter = slice(state, (0,), (1,), (1,)), slice(state, (1,), (1,), (1,))
    place = iota(blocks, dtype=dt.uint64, device=state.device) + counter
    zero = place * 0
    x0, x1, x2, x3 = _low(place), _high(place), zero, zero
    k0, k1 = _low(key), _high(key)
    for _ in range(10):
        left, right = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = (
            bitwise_xor(bitwise_xor(_high(right), x1), k0),
            _low(right),
            bitwise_xor(bitwise_xor(_high(left), x3), k1),
            _low(left),
        )
        k0, k1 = _low(k0 + _WEYL[0]), _low(k1 + _WEYL[1])
    words = concat([reshape(cast(x, dt.uint32), (blocks, 1)) for x in (x0, x1, x2, x3)], axis=1)
    return reshape(slice(reshape(words, (4 * blocks,)), (0,), (prod(shape),), (1,)), shape)


def _low(x: Any) -> Any:
    return bitwise_and(x, _WORD)


def _high(x: Any) -> Any:
    return bitwise_right_shift(x, 32)


random_bits = table.add(
    Op(
        name="random_bits",
        family="random",
        operands=("state",),
        arguments=_bits_arguments,
        infer=_bits_infer,
        decompose=_philox,
        dtypes=(dt.uint64,),
        doc="The uint32 words of Philox4x32-10 in ``shape``; ``state`` is uint64: the key, then the first block.",
    )
)


class Generator:
    """A stream of random numbers: a seed and a position. Safe to share between threads.

    >>> import tensorbus as tb
    >>> tb.uniform((2,), generator=tb.Generator(0)).tolist() == tb.uniform((2,), generator=tb.Generator(0)).tolist()
    True
    """

    __slots__ = ("_lock", "_position", "_seed")

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of ``seed`` (64 bits count) from its beginning."""
        self._seed = int(seed) & 0xFFFFFFFFFFFFFFFF
        self._position = 0
        return self

    def get_state(self) -> tuple[int, int]:
        """Return the seed and the position, for ``set_state``."""
        return self._seed, self._position

    def set_state(self, state: tuple[int, int]) -> None:
        """Go to a position that ``get_state`` returned."""
        self._seed, self._position = int(state[0]), int(state[1])

    def advance(self, words: int) -> tuple[int, int]:
        """Return the seed and the first block of the next ``words`` words, and step over them."""
        with self._lock:
            first = self._position
            self._position += -(-words // 4)
        return self._seed, first


default_generator: Final = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Seed the stream that every random function draws from unless it is handed another generator."""
    return default_generator.manual_seed(seed)


def _words(shape: Shape, device: DeviceLike, generator: Generator | None) -> Tensor:
    state = (generator or default_generator).advance(prod(check_shape("random", shape)))
    return random_bits(_upload(state, device), shape)


def _upload(state: tuple[int, int], device: DeviceLike) -> Tensor:
    from ..interchange import asarray  # ops stand below the exchange of values with the host

    return asarray(list(state), dtype=dt.uint64, device=device)


def _floating(name: str, dtype: DType | str | None) -> DType:
    kind = dt.default_float if dtype is None else dt.dtype(dtype)
    if not kind.is_floating:
        raise DtypeError(f"{name}: a floating-point dtype is needed, got {kind}.")
    return kind


def _unit(shape: Shape, device: DeviceLike, generator: Generator | None) -> Tensor:
    """Multiples of 2**-24 in [0, 1): the same float32 on every device."""
    return cast(bitwise_right_shift(_words(shape, device, generator), 8), dt.float32) * 2.0**-24


def uniform(
    shape: int | tuple[int, ...], /, low: float = 0.0, high: float = 1.0, *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers spread evenly over ``[low, high)``, from 24 random bits each."""
    kind = _floating("uniform", dtype)
    unit = _unit(as_shape("uniform", shape), device, generator)
    spread = unit if (low, high) == (0.0, 1.0) else unit * (high - low) + low
    return spread if kind is dt.float32 else cast(spread, kind)


def normal(
    shape: int | tuple[int, ...], /, mean: float = 0.0, std: float = 1.0, *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return normally distributed numbers (Box and Muller 1958, two words for each)."""
    kind = _floating("normal", dtype)
    size = as_shape("normal", shape)
    pairs = _unit((2, *size), device, generator)
    radius = sqrt(-2.0 * log(1.0 - pairs[0]))
    drawn = radius * cos((2 * math.pi) * pairs[1]) * std + mean
    return drawn if kind is dt.float32 else cast(drawn, kind)


def randint(
    low: int, high: int, shape: int | tuple[int, ...], *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return integers from ``low`` up to but without ``high``, at most 2**32 apart."""
    if not 0 < high - low <= 1 << 32:
        raise ShapeError(f"randint: the range must hold 1 to 2**32 integers, got [{low}, {high}).")
    kind = dt.default_int if dtype is None else dt.dtype(dtype)
    if not kind.is_integer:
        raise DtypeError(f"randint: an integer dtype is needed, got {kind}.")
    words = cast(_words(as_shape("randint", shape), device, generator), dt.uint64)
    return cast(cast(bitwise_right_shift(words * (high - low), 32), dt.int64) + low, kind)


def bernoulli(p: float, shape: int | tuple[int, ...], *, device: DeviceLike = None, generator: Generator | None = None) -> Tensor:
    """Return a bool tensor that is true with probability ``p``; exactly the same on every device."""
    if not 0 <= p <= 1:
        raise ShapeError(f"bernoulli: a probability lies in [0, 1], got {p}.")
    return less(_unit(as_shape("bernoulli", shape), device, generator), p)


def rand(*shape: int, dtype: DType | str | None = None, device: DeviceLike = None) -> Tensor:
    """Return numbers spread evenly over [0, 1): PyTorch's name for ``uniform``."""
    return uniform(_spread(shape), dtype=dtype, device=device)


def randn(*shape: int, dtype: DType | str | None = None, device: DeviceLike = None) -> Tensor:
    """Return normally distributed numbers: PyTorch's name for ``normal``."""
    return normal(_spread(shape), dtype=dtype, device=device)


def _spread(shape: Any) -> Shape:
    return tuple(shape[0]) if len(shape) == 1 and not hasattr(shape[0], "__index__") else tuple(shape)


