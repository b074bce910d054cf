"""Kernels for above a size: those generated from the dialect, and those of ``csource/library.c``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, DType, IndexingError, StridedArray, dtypes

from ..compiler import NATIVE, c_source
from ..memory import DTYPES, NAMES, address, empty, run
from ..native.cpu_features import NoCompilerError
from ..native.kernel_entry import pieces
from .eager_launch import Launch, slots
from .inplace_kernels import is_own

MEMORY_BOUND_SIZE: Final = 1 << 17
COMPUTE_BOUND_SIZE: Final = 1 << 15
SLOW_IN_NUMPY_SIZE: Final = 1 << 13
"""From how many elements on C is faster than NumPy: for ops bound by memory, for others, and where NumPy
takes several passes or one element at a time."""
COMPARISON_SORT_LENGTH, NUMPY_SORT_LENGTH = 48, 4096
"""Up to which length rows are put in order without keys, and from which on NumPy is slower than with them."""
_ARRAY: Final = np.ndarray
_COVERED: Final = frozenset(d for d in DTYPES if d.itemsize > 1 or not d.is_floating) - {
    dtypes.complex64,
    dtypes.complex128,
}
NARROW: Final = (dtypes.float16, dtypes.bfloat16)
_NAN_MAX, _NAN_MIN = (f"((a) != (a) || (a) {sign} (x) ? (a) : (x))" for sign in "><")
_COMBINE: Final = {
    "sum": "((a) + (x))", "add": "((a) + (x))", "prod": "((a) * (x))", "multiply": "((a) * (x))",
    "max": _NAN_MAX, "min": _NAN_MIN, "set": "(x)",
}  # fmt: skip


def combining(op: str) -> str:
    """Return the macro that adds a value to what was combined before."""
    return f"COMBINE(a, x) {_COMBINE[op]}"


def is_covered(call: Call) -> bool:
    """Return whether C has all dtypes of a call."""
    return _COVERED.issuperset((*call.dtypes, call.out_dtype))


def has_types(types: Iterable[DType]) -> bool:
    """Return whether C has all of these dtypes here."""
    own = {*types}
    compiler = NATIVE.compiler() if own <= _COVERED else None
    return compiler is not None and (compiler.has_half or dtypes.float16 not in own)


@cache
def _generated() -> dict[str, Any]:
    from tensorbus.backend_api import from_dialect

    compiler = NATIVE.compiler()
    return {} if compiler is None else dict(from_dialect(compiler))


class GeneratedKernel:
    """A call's generated kernel, made when it is first needed, or ``otherwise`` where it cannot serve."""

    def __init__(self, call: Call, otherwise: Callable[..., Any]) -> None:
        self.call = call
        self.otherwise = otherwise
        self._run: Callable[..., Any] | None = None

    def __call__(self, *values: Any) -> Any:
        """Run it."""
        if self._run is None:
            self._run = self._prepared()
        operands = [_strided(x) if type(x) is _ARRAY else x for x in values]
        if self._run is self.otherwise or None in operands:
            return self.otherwise(*values)
        try:
            out = self._run(*operands)
        except NoCompilerError:  # it compiles for each layout
            return self.otherwise(*values)
        return np.ndarray(out.shape, DTYPES[out.dtype], out.buffer)

    def _prepared(self) -> Callable[..., Any]:
        kernel: Any = _generated().get(self.call.op)
        try:
            covered = kernel is not None and (not _narrow(self.call) or NATIVE.needed().has_half)
            run: Callable[..., Any] = kernel.prepare(self.call) if covered else self.otherwise
        except NoCompilerError:
            return self.otherwise
        return run


def over(call: Call, place: int) -> Callable[..., bool] | None:
    """Return what writes a large elementwise result over an array."""
    kernel: Any = _generated().get(call.op) if is_covered(call) and serves(call) else None
    write = None if kernel is None else kernel.inplace(call, place)
    if write is None:
        return None

    def large(*values: Any) -> bool:
        if not is_own(values[place]):
            return False
        operands = [_strided(x) if type(x) is _ARRAY else x for x in values]
        operands[place] = _strided(values[place].view())  # which nobody else refers to
        try:
            return None not in operands and write(*operands)
        except NoCompilerError:
            return False

    return large


def _strided(x: Any) -> StridedArray | None:
    """Return the array as generated kernels take it; None where its elements do not lie on their grid."""
    size = x.itemsize
    if not x.flags.aligned or any(s % size for s in x.strides):
        return None
    return StridedArray(x, x.shape, tuple([s // size for s in x.strides]), 0, NAMES[x.dtype])


def _narrow(call: Call) -> bool:
    return dtypes.float16 in (*call.dtypes, call.out_dtype)


def packed(x: Any) -> Any:
    """Return the array in C order: itself, or a copy."""
    return x if x.flags.c_contiguous and x.flags.aligned else copied(x)


def copied(x: Any) -> Any:
    """Return a copy in C order, made by all threads where it is large."""
    if x.size < MEMORY_BOUND_SIZE:
        return run(x.copy, "C")
    return _copying(NAMES[x.dtype])(x)


@cache
def _copying(dtype: DType) -> Callable[[Any], Any]:
    """Return what copies arrays of a dtype: one kernel, which knows its program for each layout."""

    def otherwise(x: Any) -> Any:
        return run(x.copy, "C")

    call = Call(
        op="cast", dtypes=(dtype,), shapes=None, attrs={"dtype": dtype}, out_dtype=dtype, out_shape=None,
        index=0,
    )  # fmt: skip
    return GeneratedKernel(call, otherwise) if is_covered(call) else otherwise


class Routine:
    """Functions of ``library.c``, or of another ``source``, compiled for given types."""

    def __init__(self, name: str, operand: DType, out: DType, *macros: str, source: str = "library") -> None:
        compiler = NATIVE.needed()
        dialect = compiler.dialect(0)
        wide = dtypes.float32 if out in NARROW else out
        rule, own, result = dialect.types[operand], dialect.types[wide], dialect.types[out]
        load, store = rule.load, result.store
        assert isinstance(load, str)
        assert isinstance(store, str)
        lines = [
            dialect.prologue, f"#define NAME_{name}", f"#define T {rule.storage}",
            f"#define A {own.register}",
            f"#define OUT {result.storage}", f"#define LOAD(p, i) {_macro(load)}",
            f"#define STORE(p, i, v) {_macro(store)}",
            *(f"#define {macro}" for macro in macros),
        ]  # fmt: skip
        self._library = compiler.library("\n".join([*lines, c_source(source)]))
        self._prepared = compiler.prepared

    def run(
        self,
        name: str,
        arrays: Sequence[Any],
        params: Sequence[int | float],
        grid: Sequence[int],
        piece: Sequence[int],
    ) -> None:
        """Call a function with the arrays' memory."""
        self.prepared(name, len(arrays), params, grid, piece)(*arrays)

    def prepared(
        self, name: str, count: int, params: Sequence[int | float], grid: Sequence[int], piece: Sequence[int]
    ) -> Callable[..., None]:
        """Return what calls a function with the memory of ``count`` arrays."""
        launch = self._prepared(getattr(self._library, f"tb_{name}"), count, slots(params), grid, piece)
        return lambda *arrays: launch(*[0 if x is None else address(x) for x in arrays])

    def launch(
        self,
        name: str,
        buffers: Sequence[int],
        params: Sequence[int | float],
        grid: Sequence[int],
        piece: Sequence[int],
    ) -> Launch:
        """Return a function's launch, one of a call's."""
        function = getattr(self._library, f"tb_{name}")
        return Launch(function=function, buffers=buffers, params=params, grid=grid, piece=piece)


def _macro(template: str) -> str:
    return template.format(p="(p)", i="(i)", v="(v)")


routine: Final = cache(Routine)


def serves(call: Call) -> bool:
    """Return whether there is a compiler that has a call's dtypes."""
    compiler = NATIVE.compiler()
    return compiler is not None and (compiler.has_half or not _narrow(call))


def takes_places(call: Call) -> bool | str:
    """Say whether ``scatter`` serves a call that puts values along an axis."""
    assert call.shapes is not None
    if not is_covered(call) or call.dtypes[0] is dtypes.bool_:
        return f"not in {call.dtypes[0]}"
    if prod(call.shapes[-1]) < MEMORY_BOUND_SIZE:
        return f"{MEMORY_BOUND_SIZE} values at least"
    return True if serves(call) else NATIVE.reason or "the compiler has no float16"


class IndexArrays:
    """Index arrays over their common shape as ``library.c`` takes them: two axes, each with one stride."""

    def __init__(self, x_shape: Sequence[int], indices: Sequence[Any], axis: int | None = None) -> None:
        """Take one index for each of the first axes, or one for ``axis``, the others staying in place."""
        shape, depth = indices[0].shape, len(indices)
        last = axis is None or axis == len(shape) - 1
        split = len(shape) - 1 if last or axis is None else axis + 1
        self.lead, self.columns = prod(shape[:split]), prod(shape[split:])
        self.count = self.lead * self.columns
        self.arrays = [_flat(index, (self.lead, self.columns)) for index in indices]
        self.steps = [1, 0, 0]
        if axis is None:
            self.lengths = list(x_shape[:depth])
            self.skips = [prod(x_shape[k + 1 : depth]) for k in range(depth)]
        else:
            inner = prod(x_shape[axis + 1 :])
            self.lengths, self.skips = [x_shape[axis]], [inner]
            self.steps = [1 if last else shape[axis], x_shape[axis] * inner, int(not last)]

    def params(self, width: int, chunk: int = 0, shift: int = 0, owners: int = 0) -> list[int]:
        """Return the parameters."""
        numbers = [self.columns, chunk, self.count, shift, owners, width, *self.steps]
        for index, length, skip in zip(self.arrays, self.lengths, self.skips, strict=True):
            numbers += [length, skip, *(s // 8 for s in index.strides)]
        return numbers

    def check(self, op: str, error: Any, axis: int | None = None) -> None:
        """Raise the error that a kernel reported."""
        if error[0]:
            at, wrong = int(error[1]), int(error[2])
            length = self.lengths[at]
            place = at if axis is None else axis
            raise IndexingError(f"{op}: index {wrong} is out of range for axis {place} of length {length}.")


def _flat(index: Any, shape: tuple[int, int]) -> Any:
    index = np.asarray(index, np.int64)
    try:
        return index.reshape(shape, copy=False)
    except ValueError:
        return packed(index).reshape(shape)


def gather(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a gather or of taking along an axis: rows copied as bytes."""
    axis = call.attrs.get("axis")

    def large(x: Any, *indices: Any) -> Any:
        if NATIVE.compiler() is None or 0 in x.shape:
            return otherwise(x, *indices)
        places = IndexArrays(x.shape, indices, axis)
        rest = x.shape[len(indices) :] if axis is None else ()
        width = prod(rest) * x.itemsize
        out, error = empty((*indices[0].shape, *rest), x.dtype), np.zeros(3, np.int64)
        grid = (places.columns, places.lead)
        native = routine("gather", dtypes.uint8, dtypes.uint8, f"K {len(indices)}", *_wrap(axis))
        piece = pieces(grid, max(32768 // width, 1))
        native.run("gather", (packed(x), out, error, *places.arrays), places.params(width), grid, piece)
        places.check(call.op, error, axis)
        return out

    return large


_CACHED_BYTES: Final = 1 << 22
"""Up to how many bytes what is scattered to stays in a cache."""
_STORE_COST, _PARTITION_COST = 6, 50
"""What putting a value somewhere costs one thread, and dealing it out to several, in elements of rows."""


def _wrap(axis: int | None) -> list[str]:
    return [] if axis is None else ["WRAP"]


def scatter(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a scatter or of putting along an axis: in the order of indices on any threads."""
    mode, dtype, axis = call.attrs["mode"], call.dtypes[0], call.attrs.get("axis")

    def large(x: Any, *rest: Any) -> Any:
        value, indices = (rest[0], rest[1:]) if axis is None else (rest[1], rest[:1])
        if not serves(call) or dtype is dtypes.bool_ or 0 in x.shape:
            return otherwise(x, *rest)
        places = IndexArrays(x.shape, indices, axis)
        rows = prod(x.shape[: len(indices)]) if axis is None else x.size
        width = x.size // rows
        alone = x.nbytes <= _CACHED_BYTES and NATIVE.threads * (_STORE_COST + width) < _PARTITION_COST + width
        chunk = max(-(-places.count // 256), 65536 // width, 1)
        chunk = -(-chunk // places.columns) * places.columns if places.columns <= chunk else chunk
        chunks = -(-places.count // chunk)
        shift = max((rows - 1).bit_length() - 8, 0)
        owners = (rows - 1 >> shift) + 1
        params = places.params(width, chunk, shift, owners)
        narrow = ["NARROW"] if width == 1 and rows < 1 << 32 else []
        macros = (f"K {len(indices)}", combining(mode), *narrow, *_wrap(axis))
        native = routine("scatter", dtype, dtype, *macros)
        if alone:
            out, error = copied(x), np.zeros(3, np.int64)
            params = places.params(width, places.count)
            native.run("direct", (out, packed(value), error, *places.arrays), params, (1,), (1,))
            places.check(call.op, error, axis)
            return out
        ranges, counts = np.empty((chunks, 2), np.int64), np.zeros((chunks, owners), np.int64)
        error, value = np.zeros(3, np.int64), packed(value)
        native.run("survey", (ranges, counts, error, *places.arrays), params, (chunks,), (1,))
        places.check(call.op, error, axis)
        out = copied(x)
        if (ranges[1:, 0] > ranges[:-1, 1]).all():
            native.run("direct", (out, value, None, *places.arrays), params, (chunks,), (1,))
            return out
        ends = counts.T.ravel().cumsum()
        starts = np.ascontiguousarray((ends - counts.T.ravel()).reshape(owners, chunks).T)
        entries = empty((places.count, 8 if narrow and x.itemsize <= 4 else 16), np.uint8)
        native.run("deal", (entries, value, starts, *places.arrays), params, (chunks,), (1,))
        native.run("serve", (out, value, ends[chunks - 1 :: chunks].copy(), entries), params, (owners,), (1,))
        return out

    return large


def _length(call: Call) -> int:
    return call.shapes[0][call.attrs["axis"]] if call.shapes else 0


def sort(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a sort: by passes over the digits of keys, or rows by NumPy in all threads.

    NumPy is as fast for rows of some thousand wide elements. Keys of narrow floats are those of float32.
    """
    axis, descending, own = call.attrs["axis"], call.attrs["descending"], call.dtypes[0]
    length, passes = _length(call), GeneratedKernel(call, otherwise)
    rows = prod(call.shapes[0]) // length if call.shapes else 0
    quick = own not in NARROW and length > (
        COMPARISON_SORT_LENGTH if own.itemsize <= 2 else NUMPY_SORT_LENGTH
    )
    wide = DTYPES[dtypes.float32 if own in NARROW else own]

    def large(x: Any) -> Any:
        if quick or rows < NATIVE.threads or NATIVE.compiler() is None:
            return passes(x)
        out = copied(np.moveaxis(x, axis, -1)).astype(wide, copy=False)
        in_threads(
            lambda part: part.sort(axis=-1), np.array_split(out.reshape(rows, length), 4 * NATIVE.threads)
        )
        out = out[..., ::-1] if descending else out
        return np.moveaxis(out, -1, axis).astype(x.dtype, copy=False)

    return large


def argsort(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of an argsort: by passes over digits; short rows of narrow floats in all threads."""
    if call.dtypes[0] not in NARROW or _length(call) > COMPARISON_SORT_LENGTH:
        return GeneratedKernel(call, otherwise)
    axis = call.attrs["axis"]

    def large(x: Any) -> Any:
        other = max((k for k in range(x.ndim) if k != axis), key=lambda k: x.shape[k])
        out = empty(x.shape, np.int64)
        places = np.array_split(np.arange(x.shape[other]), 4 * NATIVE.threads)
        before = (slice(None),) * other

        def fill(part: Any) -> None:
            if len(part):
                at = (*before, slice(part[0], part[-1] + 1))
                out[at] = otherwise(x[at])

        in_threads(fill, places)
        return out

    return large


def in_threads(function: Callable[[Any], object], parts: Sequence[Any]) -> None:
    """Call a function that leaves Python to others, on every part, in as many threads as the device has."""
    if NATIVE.threads == 1:
        for part in parts:
            function(part)
        return
    with ThreadPoolExecutor(NATIVE.threads) as pool:
        try:
            running = [pool.submit(function, part) for part in parts]
        except RuntimeError:  # the interpreter is ending and starts no threads
            running = []
        for each in running:
            each.result()
    if not running:
        for part in parts:
            function(part)
