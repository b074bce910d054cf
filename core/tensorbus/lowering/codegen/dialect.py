"""A device's C-family language, as data: its types, an expression per prim, and how it launches kernels.

A template is text with ``{0}``, ``{1}`` ... for operands, ``{T}`` for the register type, ``{U}`` for the
unsigned type of its width, ``{M}`` for one that products wrap in, ``{W}`` for its bits, ``{S}`` for the
dtype's name, ``{f}`` for the suffix of math functions and ``{P}`` for the type of a complex number's parts.
In casts ``{T}`` is the target's type, ``{R}`` and ``{F}`` are the type and the name of the source. The keys
of ``expressions`` are the prims that the device computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...dtypes.definition import DType
from ...system.former_names import former_names
from ..target import Target


@former_names(wide_past="wide_nontemporal")
@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRule:
    """The names of a dtype: ``storage`` in buffers, ``register`` in arithmetic.

    ``load`` has ``{p}`` (the buffer) and ``{i}``; ``store`` has ``{v}`` as well, and so has ``store_exact``
    of a value that has no more bits than the dtype. ``rounded`` rounds a register value ``{0}`` to the
    precision of the dtype where registers hold more. ``wide_load``, ``wide_store``, ``wide_rounded`` and
    ``wide_nontemporal`` (a store that bypasses the caches) are those of vectors of ``{lanes}``, where the
    dialect's do not do; ``wide_cast`` rounds what was not computed of numbers of the dtype alone, and
    ``access_array`` stands for the dialect's where no variable may be of ``storage``. A complex dtype is a
    struct of two parts ``x`` and ``y``.
    """

    storage: str
    register: str
    unsigned: str = ""
    math: str = ""
    suffix: str = ""
    load: Template = "{p}[{i}]"
    store: Template = "{p}[{i}] = {v}"
    store_exact: Template = ""
    rounded: Template = ""
    wide_load: Template = ""
    wide_store: Template = ""
    wide_rounded: Template = ""
    wide_cast: Template = ""
    wide_nontemporal: Template = ""
    access_array: str = ""


@dataclass(frozen=True, slots=True)
class Helper:
    """A function of the language that an expression calls, and the call. Written once for each dtype used.

    ``needs`` are the functions that it calls itself.
    """

    name: str
    call: str
    source: str
    needs: tuple[Helper, ...] = ()


Template = str | Helper
ByKind = Mapping[str, Template]
"""A template for each kind of operand: ``bool``, ``int``, ``uint``, ``float``, ``complex`` or ``index``."""


@former_names(
    solo="task",
    solo_types="task_types",
    vector_past="vector_nontemporal",
    packet_array="access_array",
    packet_read="access_read",
    packet_write="access_write",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """All that the renderer and the schedules know of a language and the device behind it.

    ``parallel`` names the work-item on each grid axis, and ``strides`` how many there are on it, where a
    launch may have fewer than the loop has iterations. It may have more, but for kernels whose ``group`` is
    not 0: these have as many as the grid says, so that barriers stand in no condition. Without ``parallel``
    the loops are written as loops: over the whole axis, or from and to what ``bounds`` gives for it, where a
    call runs a part of the grid.
    ``share`` are the lines that begin the loop of a task over its part of axis 0, of length ``{n}``.
    ``task_types`` stand in for ``types`` in kernels of tasks. ``wide`` are the expressions of whole vectors
    of floats that are not written as those of single ones; ``target.vector_ops`` says which ops have any.
    ``single`` and ``wide_single`` come before both for floats that are computed in single precision, and
    ``short`` before them all for what is rounded to a narrow dtype at once: its last bits do not count.
    ``vector_nontemporal`` stores a vector past the caches; ``fetch`` is a statement that prefetches ``{n}``
    elements of a buffer from ``{i}`` on, where the language has one. ``access_array`` declares an array of
    ``{n}`` elements that is aligned as the widest access asks for; ``access_read`` moves ``{n}`` bytes to
    such an array ``{to}`` from aligned memory ``{from}``, and ``access_write`` to such memory from an array.
    ``paged`` follows the name of an array of a page or more: it is to begin where pages do, as buffers do. A
    processor that has written a little beyond where it reads, but for whole pages, takes what it reads next
    for what it has written, and waits.
    ``plus`` adds ``{1}`` to a variable ``{0}`` of floats, where a compiler is known to get sums wrong.
    ``product`` is that of two complex numbers ``a`` and ``b``.
    ``inline`` begins the head of a helper, ``param`` is an argument that passes by value. Where ``buffer``
    promises that arguments do not overlap, ``aliased_buffer`` does not; ``independent`` then tells compilers
    before an innermost loop that its iterations touch different elements. ``rest`` is a statement that keeps
    compilers from making vectors of the loop that it begins. ``last`` is the condition, at the
    end of a kernel of tasks, that all others are through, and that what they stored is seen: ``{p}`` counts
    them, ``{count}`` is how many iterations this call had of ``{n}``. ``combined`` are the ops by which a
    value ``{v}`` is combined atomically with the one at ``{i}`` of a buffer ``{p}``, for each dtype that has
    them; ``combined_shared`` are those of arrays that a workgroup shares, where they are written otherwise.
    """

    name: str
    types: Mapping[DType, TypeRule]
    index: TypeRule
    expressions: Mapping[str, ByKind]
    casts: Mapping[tuple[str, str], Template]
    kernel: str
    task: str
    buffer: str
    aliased_buffer: str = ""
    independent: str = ""
    rest: str = ""
    param: str = "const {T} {name}"
    inline: str = "static inline "
    constant: str = "const "
    task_types: Mapping[DType, TypeRule] = field(default_factory=dict)
    parallel: tuple[str, ...] = ()
    strides: tuple[str, ...] = ()
    bounds: tuple[tuple[str, str], ...] = ()
    share: tuple[str, ...] = ()
    barrier: str = ""
    shared: str = ""
    paged: str = ""
    unroll: str = ""
    wide: Mapping[str, Template] = field(default_factory=dict)
    single: Mapping[str, Template] = field(default_factory=dict)
    short: Mapping[tuple[str, DType], Template] = field(default_factory=dict)
    wide_single: Mapping[str, Template] = field(default_factory=dict)
    vector_type: str = "{T}{lanes}"
    vector_load: Template = ""
    vector_store: Template = ""
    vector_store_some: Template = ""
    vector_nontemporal: Template = ""
    fetch: Template = ""
    plus: str = ""
    product: str = "tb_pair_{S}(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)"
    access_array: str = ""
    access_read: Template = ""
    access_write: Template = ""
    splat: str = "({V})({0})"
    report: Template = ""
    last: Template = ""
    arrive: Template = ""
    combined: Mapping[tuple[str, DType], Template] = field(default_factory=dict)
    combined_shared: Mapping[tuple[str, DType], Template] = field(default_factory=dict)
    infinity: str = "INFINITY"
    nan: str = "NAN"
    prologue: str = ""
    narrow: Helper | None = None
    target: Target = field(default_factory=Target)

    def __post_init__(self) -> None:
        """Take subgroup shuffles by their former names as well."""
        former = {op: rule for op, rule in self.expressions.items() if op.startswith("swap_")}
        if former:
            named = {op.replace("swap_", "shuffle_xor_"): rule for op, rule in former.items()}
            object.__setattr__(self, "expressions", {**named, **self.expressions})
