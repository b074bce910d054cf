"""Generators, and numbers drawn from them: one stream for one seed on every device.

A generator is a seed and a position in the stream of ``random_bits``; drawing steps over what was handed out.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Final

from ..dispatch.levels import Level, levels
from ..dispatch.modes import base_device, lift_to, outer_device, value_modes
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import ArgumentError, DtypeError, ShapeError
from ..interchange.transfer import check_dtype, from_bytes
from ..ops.call_errors import with_form
from ..ops.creation.creation import DeviceLike, asked, check_shape, iota, resolve
from ..ops.creation.random import random_bits
from ..ops.definition import Shape
from ..ops.elementwise.comparison import bitwise_and, bitwise_right_shift, less
from ..ops.elementwise.transcendental import cos, log, sqrt
from ..ops.elementwise.where_cast import cast
from ..ops.fused_function import fuse_in_eager
from ..ops.movement.family import as_shape
from ..ops.movement.movement import broadcast_to, concat, reshape, slice
from ..system import fork_safe_locks
from ..system.rank_of_thread import rank_of_thread
from ..tracing import host_prologue
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import CaptureTracer, active_tracer

if TYPE_CHECKING:
    from ..tensor.tensor import Tensor


class Generator:
    """A stream of random numbers: a seed and a position. Safe to share between threads.

    >>> import tensorbus as tb
    >>> first, second = (tb.uniform((2,), generator=tb.Generator(0)) for _ in range(2))
    >>> first.tolist() == second.tolist()
    True
    """

    __slots__ = ("_lock", "_position", "_seed")

    def __init__(self, seed: int = 0) -> None:
        self._lock = fork_safe_locks.simple()
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of ``seed`` (64 bits count) from its beginning."""
        try:
            whole = int(seed)
        except (TypeError, ValueError, OverflowError):
            raise ArgumentError(f"manual_seed: a whole number is needed, got {seed!r}.") from None
        host_prologue.call_each_run(self, partial(self._go, whole & 0xFFFFFFFFFFFFFFFF, 0))
        return self

    def _go(self, seed: int, position: int) -> None:
        self._seed, self._position = seed, position

    def get_state(self) -> tuple[int, int]:
        """Return the seed and the position, for ``set_state``."""
        host_prologue.note_read("the state of a random generator")
        return self._seed, self._position

    def set_state(self, state: tuple[int, int]) -> None:
        """Go to a position that ``get_state`` returned."""
        host_prologue.call_each_run(self, partial(self._go, int(state[0]), int(state[1])))

    def advance(self, words: int) -> tuple[int, int]:
        """Return the seed and the first block of the next ``words`` words, and step over them."""
        with self._lock:
            first = self._position
            self._position = (self._position - -words // 4) & 0xFFFFFFFFFFFFFFFF
        return self._seed, first


default_generator: Final = Generator(0)
"""The stream of the process. Ranks that are threads have one each, which starts where their caller's is."""


def generator_of_thread() -> Generator:
    """Return the stream that random functions draw from here unless they are handed another."""
    rank = rank_of_thread()
    if rank is None:
        return default_generator
    own: Generator = rank.generator
    return own


@with_form
def manual_seed(seed: int) -> Generator:
    """Seed the stream that every random function draws from unless it is handed another generator.

    In a rank of a distributed program it is that of the rank.
    """
    return generator_of_thread().manual_seed(seed)


def drawing(shape: Shape, device: DeviceLike, generator: Generator | None) -> Tensor:
    """Return the state from which ``random_bits`` draws words of ``shape``, and step over them."""
    source, words = generator or generator_of_thread(), prod(check_shape("random", as_shape("random", shape)))
    spreading, each = _spreading(), words
    if spreading:
        words = 4 * (-(-words // 4)) * prod(level.count for level in spreading)
    target = resolve(device)
    where = base_device(target)

    def state(words: int) -> Tensor:
        check_dtype("random", dt.uint64, where)
        data = struct.pack("=2Q", *source.advance(words))
        return from_bytes(memoryview(data), (2,), dt.uint64, where)

    def fresh(words: int) -> Tensor:
        return _taped(_tape.get(), partial(state, words))

    captured = partial(
        host_prologue.value_each_run, source, fresh, words
    )  # each run draws what the tape around it says
    drawn = fresh(words) if active_tracer() is None else _taped(_tape.get(), captured)
    if spreading:  # in the levels, but outside of them where the device is
        drawn = _of_each(lift_to(drawn, outer_device(target)), spreading, each)
    lifted: Tensor = lift_to(drawn, target)
    return lifted


def _spreading() -> list[Level]:
    """Return the levels in which each of several examples draws numbers of its own."""
    spreading = [level for level in levels() if level.randomness != "same"] if active_modes else []
    if any(level.randomness == "error" for level in spreading):
        raise ArgumentError(
            "random numbers were drawn inside of a transform with randomness='error'; pass randomness='same'"
            " for numbers that all examples share, or 'different' for each its own."
        )
    return spreading


def _of_each(state: Tensor, spreading: Sequence[Level], each: int) -> Tensor:
    """Return a state that differs between examples: each steps over the ``each`` words of those before."""
    counts = tuple([level.count for level in spreading])
    seed, first = slice(state, (0,), (1,), (1,)), slice(state, (1,), (1,), (1,))
    firsts = iota(prod(counts), dtype=dt.uint64, device=state.device) * (-(-each // 4)) + first
    column = (prod(counts), 1)
    pairs = concat([broadcast_to(reshape(seed, (1, 1)), column), reshape(firsts, column)], axis=1)
    out = reshape(pairs, (*counts, 2))
    for level in spreading:
        out = level.of_each(out)
    return out


def _words(shape: Shape, device: DeviceLike, generator: Generator | None) -> Tensor:
    return random_bits(drawing(shape, device, generator), shape)


def _taped(tape: Tape | None, draw: Callable[[], Tensor]) -> Tensor:
    """Return the next state of ``tape`` or, where it records, of those around it, and then of ``draw``."""
    if tape is None:
        return draw()
    if tape.within is not active_tracer():
        return _taped(tape.outer, draw)
    if tape.playing:
        return tape.states.pop(0)
    drawn = _taped(tape.outer, draw)
    tape.states.append(drawn)
    return drawn


@dataclass(slots=True)
class Tape:
    """The states from which numbers were drawn; while ``playing`` the same ones are drawn again, in order.

    A context manager, for this thread or task. It is for what the capture records ``within`` which it began,
    or for what runs outside of any. ``outer`` is the one that was there before.
    """

    states: list[Tensor] = field(default_factory=list)
    playing: bool = False
    within: CaptureTracer | None = None
    outer: Tape | None = None
    _token: Token[Tape | None] | None = None

    def __enter__(self) -> None:
        self.within, self.outer = active_tracer(), _tape.get()
        self._token = _tape.set(self)

    def __exit__(self, *exception: object) -> None:
        self.within = self.outer = None
        if self._token is not None:
            _tape.reset(self._token)


_tape: ContextVar[Tape | None] = ContextVar("tensorbus_tape", default=None)


@contextmanager
def untaped() -> Iterator[None]:
    """Let what is drawn inside concern no tape: it is only tried, and taken back."""
    token = _tape.set(None)
    try:
        yield
    finally:
        _tape.reset(token)


def floating(name: str, dtype: DType | str | None) -> DType:
    """Return the dtype to draw in: the default one for None. Raises ``DtypeError`` for integers."""
    kind = dt.default_float if dtype is None else dt.dtype(dtype)
    if not kind.is_floating:
        raise DtypeError(f"{name}: a floating-point dtype is needed, got {kind}.")
    return kind


_BITS: Final = {dt.float16: 11, dt.bfloat16: 8, dt.float8_e4m3fn: 4, dt.float8_e5m2: 3}
"""Bits of the fraction in the narrow dtypes: more would round up to 1."""


def distributed(x: Tensor) -> Tensor | None:
    """Return ``x`` where ranks have parts of it, so that each draws numbers for its own; else None."""
    mode = value_modes.get(x._vtype.device.type) if value_modes else None
    return x if hasattr(mode, "random_bits") else None


def _bits_for(state: Tensor, shape: Shape, like: Tensor | None) -> Tensor:
    """Return ``random_bits``; for what is ``distributed`` laid out as it, along the last axes."""
    if like is None or distributed(like) is None:
        return random_bits(state, shape)
    mode: Any = value_modes[like._vtype.device.type]
    bits: Tensor = mode.random_bits(state, shape, like)
    return bits


def unit_of(state: Tensor, shape: Shape, bits: int = 24, like: Tensor | None = None) -> Tensor:
    """Return multiples of ``2**-bits`` in [0, 1): the same float32 on every device.

    They lie as ``like``, a tensor of the last axes of ``shape``, does where ranks have parts of it.
    """
    return cast(bitwise_right_shift(_bits_for(state, shape, like), 32 - bits), dt.float32) * 2.0**-bits


def open_unit(shape: Shape, device: DeviceLike, generator: Generator | None) -> Tensor:
    """Return odd multiples of ``2**-24``: between 0 and 1 and never one of them; the same everywhere."""
    return open_unit_of(drawing(shape, device, generator), shape)


@fuse_in_eager
def open_unit_of(state: Tensor, shape: Shape, like: Tensor | None = None) -> Tensor:
    """Return what ``open_unit`` draws from a state."""
    return unit_of(state, shape, 23, like) + 2.0**-24


@with_form
def uniform(
    shape: int | tuple[int, ...], /, low: float = 0.0, high: float = 1.0, *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return numbers spread evenly over ``[low, high)``, from 24 random bits each, fewer for narrow dtypes.

    Between other limits than 0 and 1 the largest of them may be rounded to ``high``.
    """
    kind = floating("uniform", dtype)
    size = as_shape("uniform", shape)
    return uniform_of(drawing(size, device, generator), size, low, high, kind)


@fuse_in_eager
def uniform_of(
    state: Tensor, shape: Shape, low: Any, high: Any, kind: DType, like: Tensor | None = None
) -> Tensor:
    """Return what ``uniform`` draws from a state."""
    unit = unit_of(state, shape, _BITS.get(kind, 24), like)
    spread = unit if (low, high) == (0.0, 1.0) else unit * (high - low) + low
    return spread if kind is dt.float32 else cast(spread, kind)


@with_form
def normal(
    shape: int | tuple[int, ...], /, mean: float = 0.0, std: float = 1.0, *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return normally distributed numbers (Box and Muller 1958, two words for each).

    Raises ``ShapeError`` for what is no shape.
    """
    if isinstance(std, (tuple, list)):
        raise ShapeError(f"normal: the shape comes first, normal({std!r}, {shape!r}, {mean!r}).")
    kind = floating("normal", dtype)
    size = as_shape("normal", shape)
    return normal_of(drawing((2, *size), device, generator), size, mean, std, kind)


@fuse_in_eager
def normal_of(
    state: Tensor, shape: Shape, mean: Any, std: Any, kind: DType, like: Tensor | None = None
) -> Tensor:
    """Return what ``normal`` draws from a state for twice the elements."""
    pairs = unit_of(state, (2, *shape), 24, like)
    radius = sqrt(-2.0 * log(1.0 - pairs[0]))
    drawn = radius * cos((2 * math.pi) * pairs[1]) * std + mean
    return drawn if kind is dt.float32 else cast(drawn, kind)


@with_form
def randint(
    low: int, high: Any, shape: int | tuple[int, ...] | None = None, *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return integers from ``low`` up to but without ``high``, at most 2**63 apart, in any real dtype.

    ``randint(high, shape)``, with a tuple, begins at 0. A number takes 32 random bits, and 64 where more than
    2**32 are possible. Raises ``ShapeError`` for an empty or larger range and for what is no shape,
    ``DtypeError`` for limits that the dtype does not hold.

    >>> import tensorbus as tb
    >>> tb.randint(5, 6, (2,)).tolist(), tb.randint(1, (2,)).tolist()
    ([5, 5], [0, 0])
    """
    if shape is None:
        if hasattr(high, "__index__"):  # more likely two limits
            raise ShapeError(
                f"randint: a shape is needed: randint({low!r}, {high!r}, (3,)), or randint(9, (3,))."
            )
        low, high, shape = 0, low, high
    return integers("randint", low, high, as_shape("randint", shape), dtype, device, generator)


def integers(
    name: str, low: int, high: int, size: Shape, dtype: DType | str | None, device: DeviceLike,
    generator: Generator | None, like: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return what ``randint`` draws, laid out as ``like`` where ranks have parts of it."""
    span = high - low
    if not 0 < span <= 1 << 63:
        raise ShapeError(f"{name}: the range must hold 1 to 2**63 integers, got [{low}, {high}).")
    kind = dt.default_int if dtype is None else dt.dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise DtypeError(f"{name}: an integer or floating-point dtype is needed, got {kind}.")
    for bound in (low, high - 1):
        dt.check_scalar(name, bound, kind)
    states = [drawing(size, device, generator) for _ in range(1 if span <= 1 << 32 else 2)]
    return _integers(*states, shape=size, low=low, span=span, kind=kind, like=like)


@fuse_in_eager
def _integers(*states: Tensor, shape: Shape, low: int, span: int, kind: DType, like: Tensor | None) -> Tensor:
    high, *low_words = [cast(_bits_for(state, shape, like), dt.uint64) for state in states]
    drawn = _share(high, low_words[0], span) if low_words else bitwise_right_shift(high * span, 32)
    return cast((drawn if low >= 0 else cast(drawn, dt.int64)) + low, kind)


def _share(high: Any, low: Any, span: int) -> Any:
    """Return the upper half of the 128 bits of ``(high * 2**32 + low) * span``, from products of 32 bits."""
    upper, lower = divmod(span, 1 << 32)
    mask = (1 << 32) - 1
    outer, inner = high * lower, low * upper
    carried = bitwise_right_shift(low * lower, 32) + bitwise_and(outer, mask) + bitwise_and(inner, mask)
    return high * upper + sum(bitwise_right_shift(part, 32) for part in (outer, inner, carried))


@with_form
def bernoulli(
    p: float | Tensor, shape: int | tuple[int, ...] | None = None, *, device: DeviceLike = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return a bool tensor that is true with probability ``p``; exactly the same on every device.

    ``p`` is a number, or a tensor of probabilities: then the result is on its device, of its shape unless
    another is given, to which it broadcasts. Raises ``ShapeError`` for a number outside [0, 1]; probabilities
    in a tensor are not read back: those outside give always, or never, true.

    >>> import tensorbus as tb
    >>> tb.bernoulli(tb.asarray([0.0, 1.0])).tolist()
    [False, True]
    """
    if isinstance(p, (int, float)):
        if not 0 <= p <= 1:
            raise ShapeError(f"bernoulli: a probability lies in [0, 1], got {p}.")
        if shape is None:
            raise ShapeError("bernoulli: a shape is needed where the probability is a number.")
        size = as_shape("bernoulli", shape)
        return chosen(drawing(size, device, generator), size, p)
    size = p.shape if shape is None else as_shape("bernoulli", shape)
    wide = cast(p, dt.float32) if p.dtype is not dt.float64 else p
    return chosen(drawing(size, p.device, generator), size, wide, distributed(p))


@fuse_in_eager
def chosen(state: Tensor, shape: Shape, p: Any, like: Tensor | None = None) -> Tensor:
    """Return what ``bernoulli`` draws from a state."""
    return less(unit_of(state, shape, 24, like), p)


@with_form
def rand(
    *shape: int | Sequence[int], dtype: DType | str | None = None, device: DeviceLike = None,
    generator: Generator | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return numbers spread evenly over [0, 1): PyTorch's name for ``uniform``."""
    drawn = uniform(_spread(shape), dtype=dtype, device=device, generator=generator)
    return asked(drawn, requires_grad)


@with_form
def randn(
    *shape: int | Sequence[int], dtype: DType | str | None = None, device: DeviceLike = None,
    generator: Generator | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return normally distributed numbers: PyTorch's name for ``normal``."""
    drawn = normal(_spread(shape), dtype=dtype, device=device, generator=generator)
    return asked(drawn, requires_grad)


def _spread(shape: Any) -> Shape:
    return tuple(shape[0]) if len(shape) == 1 and not hasattr(shape[0], "__index__") else tuple(shape)
