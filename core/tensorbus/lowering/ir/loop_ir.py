"""The loop IR: what a kernel does, as data, before any language is chosen.

Expressions are pure and typed; statements read and write buffers. Shapes and strides are parameters, so that
one kernel serves every shape of its structure. This module must not know a device or a language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ...dtypes.definition import DType, Scalar
from ...system.former_names import former_names

INDEX: Final = DType("index", "int", 8)
"""The type of positions, lengths and strides; wide enough for any buffer."""


@dataclass(frozen=True, slots=True)
class Const:
    """A literal."""

    value: Scalar
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable, a parameter or a local."""

    name: str
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """The element of ``buffer`` at ``index``, or ``lanes`` consecutive ones from there."""

    buffer: str
    index: Expr
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Apply:
    """A scalar function, by the name of the prim, of operands of one dtype (or what the prim says)."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Cast:
    """The value converted as the ``cast`` prim does: saturating from float to integer, NaN giving 0."""

    arg: Expr
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Select:
    """``then`` where ``condition`` holds, else ``other``. Only the chosen one is evaluated."""

    condition: Expr
    then: Expr
    other: Expr
    dtype: DType
    lanes: int = 1


Expr = Const | Var | Load | Apply | Cast | Select


@dataclass(frozen=True, slots=True)
class Let:
    """A name for a value. ``mutable`` ones may be the target of an ``Assign``."""

    var: Var
    value: Expr
    mutable: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """A new value for a mutable local."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Array:
    """An array of its own for each work-item (``private``), or one for each workgroup (``shared``).

    A ``vector`` is one of its own whose elements are as in memory, to be moved at once by a ``VectorAccess``.
    """

    name: str
    dtype: DType
    size: int
    space: Literal["private", "shared", "vector"] = "private"


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[index] = value``; of a vector, only the first ``count`` lanes where that is given.

    ``nontemporal``: nobody reads it before the caches have evicted it, so it may bypass them. ``combine``
    names an op by which the value is combined with the one that is there, atomically.
    """

    buffer: str
    index: Expr
    value: Expr
    count: Expr | None = None
    nontemporal: bool = False
    combine: str = ""


@dataclass(frozen=True, slots=True)
class If:
    """``body`` where ``condition`` holds."""

    condition: Expr
    body: tuple[Stmt, ...]


Kind = Literal["parallel", "serial", "unroll", "rest"]


@dataclass(frozen=True, slots=True)
class For:
    """A loop over ``[start, stop)``.

    The schedule is in ``kind``: ``parallel`` iterations are independent and map to axis ``axis`` of the
    launch grid; they stand outermost and start at 0. ``unroll`` has constant bounds and independent
    iterations, for vector units. ``serial`` runs in order; ``rest`` does, too, and is too short or too seldom
    run for its compiler to make vectors of it: that takes long, and as much code as the loop before it.
    """

    var: Var
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]
    step: int = 1
    kind: Kind = "serial"
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Barrier:
    """All work-items of a workgroup reach this before any goes on; what they stored is seen by the others."""


@dataclass(frozen=True, slots=True)
class Report:
    """A data-dependent error: ``value`` was not within ``[0, limit)``. ``code`` says which op asked."""

    buffer: str
    code: Expr
    value: Expr
    limit: Expr


@dataclass(frozen=True, slots=True)
class Fetch:
    """A hint: ``count`` elements of ``buffer`` from ``index`` on are read soon; there need not be any."""

    buffer: str
    index: Expr
    count: int


@dataclass(frozen=True, slots=True)
class VectorAccess:
    """Moves ``lanes`` elements of ``buffer`` from ``index`` on to a vector ``array``, or from it, at once.

    The index is a multiple of as many elements as the device's widest access has.
    """

    array: str
    buffer: str
    index: Expr
    lanes: int
    writes: bool = False


@dataclass(frozen=True, slots=True)
class LastTaskEpilogue:
    """``body`` once, when all tasks are through: by the last of them, which sees what the others stored.

    It stands behind the parallel loops, whose iterations are ``total`` in all. Tasks count each other in
    ``counter``, behind what is reported there: 0 before, and again when ``body`` begins.
    """

    counter: str
    total: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class CountWorkgroup:
    """All work-items of a workgroup reach this, and the workgroup is counted at ``counter[index]``.

    ``last`` is true in the work-items of the one that makes it ``total``: they see what the other workgroups
    stored before they were counted. The count is 0 before, and again when that workgroup goes on.
    """

    counter: str
    index: Expr
    total: Expr
    last: Var


Stmt = (
    Let | Assign | Array | Store | If | For | Barrier | Report | Fetch | VectorAccess | LastTaskEpilogue
    | CountWorkgroup
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Buffer:
    """A memory argument of a kernel.

    An ``aliased`` one may be the same memory as another, from its beginning on: an element of one is then
    read before that element of the other is written, and never after. Of a ``shared`` one the last task, or
    workgroup, reads what others have stored.
    """

    name: str
    dtype: DType
    writes: bool = False
    aliased: bool = False
    shared: bool = False


@former_names(solo="task")
@dataclass(frozen=True, slots=True)
class LoopKernel:
    """One function for the device. Arguments: ``buffers``, then ``params``, in order.

    ``task`` says that one iteration of the grid is enough work for a core: compilers do not vectorize over
    them. ``group`` is not 0 where work-items share arrays: all along axis 0, so many, are one workgroup then.
    ``code`` is the whole source where a schedule of the device's own wrote it in the device's language; the
    body is empty then, and ``group_bytes`` says how much memory a launch gives to each workgroup.
    """

    name: str
    buffers: tuple[Buffer, ...]
    params: tuple[Var, ...]
    body: tuple[Stmt, ...]
    task: bool = False
    group: int = 0
    code: str = ""
    group_bytes: int = 0

    def __str__(self) -> str:
        from .printer import kernel_text

        return kernel_text(self)
