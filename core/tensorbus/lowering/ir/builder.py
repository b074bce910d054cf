"""Writing a kernel in loop IR: its arguments, its names and the block that statements go to.

Every length, stride and attribute becomes a parameter whose value is given at launch, except 0 and 1, on
which the structure of code depends. Two graphs that differ in sizes only therefore give the same kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import index
from types import MappingProxyType
from typing import Final

from ...dtypes.definition import NARROW, DType, Scalar, bool_, float32, int32, uint8
from ...errors import TensorbusError
from ...tracing.sym_int import is_open
from .index_expr import ONE, ZERO, const
from .loop_ir import (
    INDEX,
    Array,
    Assign,
    Barrier,
    Buffer,
    Cast,
    Const,
    CountWorkgroup,
    Expr,
    For,
    If,
    Kind,
    Let,
    LoopKernel,
    Stmt,
    Store,
    Var,
)

COUNTS: Final = "arrived"
"""The buffer in which workgroups are counted."""
PARAMETER: dict[DType, DType] = {bool_: uint8, **dict.fromkeys(NARROW, float32)}
"""The dtypes that do not pass as arguments by value, and what passes in their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A kernel with the sizes of one use of it.

    ``values`` are those of the parameters, in order; an entry that is a ``RuntimeArg`` is read from the
    operands of each call. ``grid`` are the lengths of the parallel loops, axis 0 first. ``tiled`` says that
    work-items near each other on axis 1 share memory, as those on axis 0 do: workgroups are best square.
    ``most`` is the most work-items that a workgroup should have where the kernel does not say it; 0: as many
    as the device finds right. ``fills`` has for each buffer how many elements an iteration of the one loop
    fills, all of them and those of iteration k from k times so many on, without reading others'; 0: nothing
    is known. Empty: of no buffer.
    """

    kernel: LoopKernel
    values: tuple[Scalar | RuntimeArg, ...]
    grid: tuple[int, ...]
    tiled: bool = False
    most: int = 0
    fills: tuple[int, ...] = ()

    @property
    def group(self) -> int:
        """The number of work-items along axis 0 that are a workgroup; 0: any number."""
        return self.kernel.group

    @property
    def shares(self) -> bool:
        """Whether a workgroup has memory of its own, or its work-items wait for each other."""
        return any(map(_is_common, self.kernel.body))


def _is_common(s: Stmt) -> bool:
    match s:
        case Array():
            return s.space == "shared"
        case For() | If():
            return any(map(_is_common, s.body))
        case _:
            return isinstance(s, Barrier | CountWorkgroup)


@dataclass(frozen=True, slots=True)
class RuntimeArg:
    """A parameter's value that comes with the call: an operand's offset, or the Python scalar it is.

    ``what`` may also be ``"code"``: the number by which the device knows errors of ``op``.
    """

    what: str
    operand: int
    plus: int = 0
    op: str = ""


@dataclass(slots=True)
class Builder:
    """The state of a kernel that is being written."""

    name: str
    buffers: dict[str, Buffer] = field(default_factory=dict)
    params: dict[str, tuple[Var, Scalar | RuntimeArg]] = field(default_factory=dict)
    block: list[Stmt] = field(default_factory=list)
    grid: dict[int, int] = field(default_factory=dict)
    count: int = 0
    lets: dict[str, Expr] = field(default_factory=dict)
    changing: set[str] = field(default_factory=set)

    def buffer(self, name: str, dtype: DType, writes: bool = False, shared: bool = False) -> str:
        """Declare a memory argument; return its name."""
        known = self.buffers.get(name, Buffer(name, dtype))
        self.buffers[name] = replace(known, writes=known.writes or writes, shared=known.shared or shared)
        return name

    def size(self, role: str, value: int) -> Expr:
        """Return the length, stride or attribute called ``role``: a literal for 0 and 1, else a parameter.

        An open one that may be 1 is a parameter then, too: a plan need not leave that size to another.
        """
        if value == 0:
            return ZERO
        if not is_open(value) and value == 1:
            return ONE
        return self.param(role, INDEX, value)

    def param(self, role: str, dtype: DType, value: Scalar | RuntimeArg) -> Expr:
        """Return the parameter called ``role`` as a value of ``dtype``."""
        known = self.params.get(role)
        if known is None:
            var = Var(role, PARAMETER.get(dtype, dtype))
            self.params[role] = (var, value)
        else:
            var = known[0]
            if known[1] != value and value == value:  # NaN is not equal to itself
                raise TensorbusError(
                    f"parameter {role!r} of {self.name!r} is both {known[1]!r} and {value!r}"
                )
        return var if var.dtype is dtype else Cast(var, dtype)

    def fresh(self, prefix: str) -> str:
        """Return a name not used yet: of the form ``word_1``, which no argument has."""
        self.count += 1
        return f"{prefix}_{self.count}"

    def emit(self, statement: Stmt) -> None:
        """Append a statement to the current block."""
        self.block.append(statement)

    def let(self, value: Expr, prefix: str = "t", mutable: bool = False) -> Var:
        """Bind a value to a new name and return it."""
        var = Var(self.fresh(prefix), value.dtype, value.lanes)
        self.emit(Let(var, value, mutable))
        if mutable:
            self.changing.add(var.name)
        elif value.dtype is INDEX:
            self.lets[var.name] = value
        return var

    def all(self, values: Sequence[Expr]) -> tuple[Expr, ...]:
        """Bind values to names: they are then known before anything is stored over their operands."""
        return tuple(e if isinstance(e, Var | Const) else self.let(e) for e in values)

    def arrive(self, index: Expr, total: Expr) -> Var:
        """Count the workgroup at a counter; return whether it is the last of ``total``."""
        last = Var(self.fresh("last"), bool_)
        self.emit(CountWorkgroup(self.buffer(COUNTS, int32, writes=True), index, total, last))
        return last

    def assign(self, var: Var, value: Expr) -> None:
        """Give a mutable name a new value."""
        self.emit(Assign(var, value))

    def array(self, dtype: DType, size: int) -> str:
        """Declare a private array; return its name."""
        name = self.fresh("acc")
        self.emit(Array(name, dtype, index(size)))
        return name

    def store(
        self, buffer: str, index: Expr, value: Expr, count: Expr | None = None, nontemporal: bool = False,
        combine: str = "",
    ) -> None:  # fmt: skip
        """Store a value."""
        self.emit(Store(buffer, index, value, count, nontemporal, combine))

    @contextmanager
    def inner(self) -> Iterator[list[Stmt]]:
        """Collect what is emitted meanwhile in a block of its own, which the caller places."""
        outer, self.block = self.block, []
        try:
            yield self.block
        finally:
            self.block = outer

    @contextmanager
    def loop(
        self, start: Expr, stop: Expr, *, step: int = 1, kind: Kind = "serial", prefix: str = "k"
    ) -> Iterator[Expr]:
        """Emit a loop around what is emitted meanwhile; yields the variable."""
        var = Var(self.fresh(prefix), INDEX)
        with self.inner() as body:
            yield var
        self.emit(For(var, start, stop, tuple(body), index(step), kind))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """Emit a condition around what is emitted meanwhile."""
        with self.inner() as body:
            yield
        self.emit(If(condition, tuple(body)))

    def finish(
        self, loops: Sequence[tuple[Var, Expr, int]], task: bool = False, tiled: bool = False,
        fills: Mapping[str, int] = MappingProxyType({}),
    ) -> Launch:  # fmt: skip
        """Wrap the body in parallel loops ``(variable, length, value)``, grid axis 0 first.

        ``fills``: see ``Launch``, by the names of buffers; of one loop only. Without loops there is one
        iteration, which is a ``task``.
        """
        body = tuple(self.block)
        for axis, (var, length, _) in enumerate(loops):
            body = (For(var, ZERO, length, body, 1, "parallel", axis),)
        params = tuple(v for v, _ in self.params.values())
        kernel = LoopKernel(self.name, tuple(self.buffers.values()), params, body, task or not loops)
        values = tuple(value for _, value in self.params.values())
        filled = tuple(fills.get(name, 0) for name in self.buffers) if fills and len(loops) == 1 else ()
        return Launch(
            kernel=kernel, values=values, grid=tuple(n for _, _, n in loops), tiled=tiled, fills=filled
        )


def literal(value: Scalar, dtype: DType) -> Const:
    """Return a Python scalar as a literal of ``dtype``; integers wrap."""
    if dtype is INDEX:
        return const(int(value.real))
    return Const(fit(value, dtype), dtype)


def fit(value: Scalar, dtype: DType) -> Scalar:
    """Return the Python scalar in the kind of ``dtype``; integers wrap to its range.

    >>> from tensorbus.dtypes import uint8
    >>> fit(300, uint8)
    44
    """
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_complex:
        return complex(value)
    value = value.real
    if dtype.kind == "float":
        return float(value)
    bits = 8 * dtype.itemsize
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if dtype.kind == "int" and wrapped >> (bits - 1) else wrapped
