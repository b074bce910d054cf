"""Element types: one object for each, the sets of them, the defaults, and which scalars each one holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from ..errors import DtypeError, suggest
from ..tracing.sym_int import SymInt

Kind = Literal["bool", "int", "uint", "float", "complex"]
Scalar = bool | int | float | complex


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: one object for each, compared by identity.

    ``itemsize`` is in bytes.
    """

    name: str
    kind: Kind
    itemsize: int

    @property
    def is_floating(self) -> bool:
        """True for real floating-point dtypes."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """True for complex dtypes."""
        return self.kind == "complex"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integer dtypes (not bool)."""
        return self.kind in ("int", "uint")

    @property
    def is_inexact(self) -> bool:
        """True for dtypes that can carry a gradient: real and complex floating point."""
        return self.kind in ("float", "complex")

    def __repr__(self) -> str:
        return f"tensorbus.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> str | tuple[object, ...]:
        return (dtype, (self.name,))


bool_: Final = DType("bool", "bool", 1)
int8: Final = DType("int8", "int", 1)
int16: Final = DType("int16", "int", 2)
int32: Final = DType("int32", "int", 4)
int64: Final = DType("int64", "int", 8)
uint8: Final = DType("uint8", "uint", 1)
uint16: Final = DType("uint16", "uint", 2)
uint32: Final = DType("uint32", "uint", 4)
uint64: Final = DType("uint64", "uint", 8)
float8_e4m3fn: Final = DType("float8_e4m3fn", "float", 1)
float8_e5m2: Final = DType("float8_e5m2", "float", 1)
float16: Final = DType("float16", "float", 2)
bfloat16: Final = DType("bfloat16", "float", 2)
float32: Final = DType("float32", "float", 4)
float64: Final = DType("float64", "float", 8)
complex64: Final = DType("complex64", "complex", 8)
complex128: Final = DType("complex128", "complex", 16)

ALL: Final[tuple[DType, ...]] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
BY_NAME: Final[dict[str, DType]] = {d.name: d for d in ALL}

SIGNED: Final = (int8, int16, int32, int64)
UNSIGNED: Final = (uint8, uint16, uint32, uint64)
INTEGER: Final = SIGNED + UNSIGNED
FLOATING: Final = (float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64)
COMPLEX: Final = (complex64, complex128)
INEXACT: Final = FLOATING + COMPLEX
REAL: Final = INTEGER + FLOATING
NUMERIC: Final = REAL + COMPLEX
BOOL: Final = (bool_,)

NARROW: Final = (float8_e4m3fn, float8_e5m2, float16, bfloat16)
"""Dtypes whose sums and products are accumulated in float32."""

_PYTHON: Final[dict[object, DType]] = {bool: bool_, int: int64, float: float64, complex: complex128}

default_int: Final = int64
default_float: DType = float32  # default_dtype.py changes these two: read them as dtypes.default_float
default_complex: DType = complex64


def dtype(name: str | DType | type) -> DType:
    """Return the dtype called ``name``; a ``DType`` is returned as it is.

    Python's ``bool``, ``int``, ``float`` and ``complex`` stand for the dtypes that hold them exactly: bool,
    int64, float64 and complex128, as in NumPy and PyTorch. Raises ``DtypeError`` for an unknown name.

    >>> dtype("float32"), dtype(float)
    (tensorbus.float32, tensorbus.float64)
    """
    if isinstance(name, DType):
        return name
    known = BY_NAME.get(name) if isinstance(name, str) else None
    if isinstance(name, type):
        known = _PYTHON.get(name)
    if known is None:
        other = getattr(name, "name", getattr(name, "__name__", None))  # another library's dtype
        hint = f" Write {other!r} for it." if other in BY_NAME else suggest(str(name), BY_NAME)
        raise DtypeError(f"no dtype is called {name!r}.{hint} There are: {', '.join(BY_NAME)}.")
    return known


_NUMBERS: Final[tuple[type, ...]] = (int, float, complex)


def plain(value: Any) -> Any:
    """Return a number of a subclass of Python's types as Python's own: an ``IntEnum``, NumPy's ``float64``.

    The standard counts it as a Python scalar, so it is weak. Whatever else is given comes back as it is.

    >>> class Celsius(float): ...
    >>> type(plain(Celsius(3.5)))
    <class 'float'>
    """
    for kind in _NUMBERS:
        if isinstance(value, kind):
            return value if type(value) in (kind, bool) else kind(value)
    return value


def as_scalar(name: str, value: object) -> Scalar:
    """Return a number, or a 0-dimensional array or tensor, as a Python scalar.

    Raises ``DtypeError`` for anything else.
    """
    if isinstance(value, (bool, int, float, complex)) or type(value) is SymInt:
        return value  # type: ignore[return-value]
    item = getattr(value, "item", None)
    if item is None or getattr(value, "shape", None) != ():
        raise DtypeError(f"{name}: a number is needed, got {value!r} of type {type(value).__name__}.")
    return as_scalar(name, item())


def check_scalar(name: str, value: Scalar, dtype: DType) -> Scalar:
    """Return ``value`` as the Python type of ``dtype``. Raises ``DtypeError`` where it does not fit.

    >>> check_scalar("full", 3, float32)
    3.0
    """
    value = as_scalar(name, value)
    if isinstance(value, complex):
        if not dtype.is_complex and dtype is not bool_:
            raise DtypeError(f"{name}: {value!r} is complex and does not fit in {dtype}.")
        return value if dtype.is_complex else bool(value)
    if dtype is bool_:
        return bool(value)
    if dtype.is_integer:
        if isinstance(value, float) and not value.is_integer():
            raise DtypeError(f"{name}: {value!r} is not a whole number and does not fit in {dtype}.")
        low, high = integer_range(dtype)
        if not low <= int(value) <= high:
            raise DtypeError(f"{name}: {_brief(value)} does not fit in {dtype}, which holds {low} to {high}.")
        return int(value)
    try:
        return complex(value) if dtype.is_complex else float(value)
    except OverflowError:
        raise DtypeError(f"{name}: {_brief(value)} is too large for {dtype}.") from None


def weak_operand(number: Scalar, dtype: DType) -> Scalar:
    """Return a Python number as kernels of ``dtype`` take it: integers beyond 64 bits as floats.

    Array libraries make objects of such integers, which their functions of floats refuse.

    >>> weak_operand(1 << 64, float32), weak_operand(3, float32)
    (1.8446744073709552e+19, 3)
    """
    if type(number) is int and dtype.is_inexact and not -_INT64 <= number < _INT64:
        return check_scalar("a number", number, dtype)
    return number


def _brief(value: float) -> str:
    return (
        f"an integer of {value.bit_length()} bits"
        if isinstance(value, int) and value.bit_length() > 128
        else repr(value)
    )


def real_of(a: DType) -> DType:
    """Return the dtype of the parts of a complex dtype; other dtypes as they are."""
    return {complex64: float32, complex128: float64}.get(a, a)


_INT64: Final = 1 << 63
_LARGEST: Final = {
    float8_e4m3fn: 448.0, float8_e5m2: 57344.0, float16: 65504.0, bfloat16: (2 - 2.0**-7) * 2.0**127,
    float32: (2 - 2.0**-23) * 2.0**127, float64: (2 - 2.0**-52) * 2.0**1023,
}  # fmt: skip


def largest(a: DType) -> float:
    """Return the largest finite number of a real floating-point dtype.

    >>> largest(float16)
    65504.0
    """
    return _LARGEST[a]


def complex_of(a: DType) -> DType:
    """Return the complex dtype whose parts are of dtype ``a``. Raises ``DtypeError`` where there is none."""
    pair = {float32: complex64, float64: complex128, complex64: complex64, complex128: complex128}.get(a)
    if pair is None:
        raise DtypeError(f"no complex dtype has parts of {a}; cast them to float32 or float64.")
    return pair


def integer_range(a: DType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer dtype.

    >>> integer_range(int8)
    (-128, 127)
    """
    bits = 8 * a.itemsize
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if a.kind == "int" else (0, (1 << bits) - 1)
