"""Definition of an op, and the table of all ops.

An op is data: its name, how Python arguments become operands and attributes, its shape and dtype rule, its
decomposition, its derivative. This module must not know tensors, devices or kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, ParamSpec

from ..backend_interface.spec import Shape as Shape
from ..backend_interface.spec import Spec as Spec
from ..dtypes.definition import DType
from ..errors import PluginError, ShapeError, UnsupportedOpError, suggest
from ..system import fork_safe_locks

if TYPE_CHECKING:
    from ..tensor.tensor import Tensor

P = ParamSpec("P")
Domain = tuple[float, float] | tuple[tuple[float, float] | None, ...]
"""Between which numbers operands are sampled: one pair for all of them, or one each (None: any)."""
Attrs = Mapping[str, Any]
Cost = Literal["light", "function", "heavy"]
"""The cost of an op beside reading its operands and writing its result.

``light``: a few instructions an element, or moving it. ``function``: a mathematical function an element.
``heavy``: more than can be computed as an element is read: products, reductions, sorts, factorizations.
"""
Jvp = Literal["linear", "multilinear", "pointwise"]
"""The forward derivative of an op by what kind of function it is: see ``Op``."""
Autocast = Literal["narrow", "wide"]
"""The dtype that ``autocast`` casts floating operands to: its own narrow one, or float32."""
USER: Final = "user"
"""The family of the ops that a program brings its own kernels for."""
AFTER: Final = "after"
"""The attribute of a node of a graph whose last operand is the ``ordered`` call that it follows."""
CONTROL_FLOW: Final = "control flow"
"""The family of the ops whose attributes are graphs that they run."""
Strides = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRule:
    """The rule of an op whose result shows elements of its first operand, the base: what a write does there.

    ``put(base, value, shape, **attrs)``, the inverse of the op, returns the base, of ``shape``, with the
    elements that the result shows replaced by ``value``. ``base`` is None unless the result is ``partial``,
    that is, shows not all of the base. ``refuses`` says why nothing is written through a result of another
    size than the base, with ``refuses_all`` through any. ``strides(strides, shape, **attrs)`` returns those
    of the result, in elements, for a base of these strides and this shape; without it they are unknown.
    ``copies``, of the same arguments, and with None for unknown strides, says that the result cannot be
    seen in the base's place and is a copy.
    ``compose(first, then)`` returns the attributes of the one op that does what two of them do, one on the
    other's result; ``apart(one, other)`` says that two results of one base share no element.
    """

    put: Callable[..., Any]
    partial: bool = False
    refuses: str = ""
    refuses_all: bool = False
    strides: Callable[..., Strides | None] | None = None
    copies: Callable[..., bool] | None = None
    compose: Callable[[Attrs, Attrs], dict[str, Any]] | None = None
    apart: Callable[[Attrs, Attrs], bool] | None = None


MAX_RANK: Final = 64
"""The largest number of axes of a tensor: that of NumPy's arrays."""
_MAX_ELEMENTS: Final = 1 << 59
"""Of 16 bytes each these are all that 63 bits count: no device and no array library has more."""


def check_size(name: str, shape: Shape) -> None:
    """Raise ``ShapeError`` for too many axes, or lengths, those of 0 left out, that no device can address.

    Tensors without elements are no exception: their lengths decide strides, and shapes of other results.
    """
    if len(shape) > MAX_RANK:
        raise ShapeError(f"{name}: a tensor has at most {MAX_RANK} dimensions, got {len(shape)}.")
    size = 1
    for n in shape:
        if type(n) is int and n > 1:  # an open length is bounded by the tensors that have it
            size *= n
    if size >= _MAX_ELEMENTS:
        raise ShapeError(
            f"{name}: shape {shape} has lengths for {size} elements, more than any device can hold."
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Op(Generic[P]):
    """A named operation and its rules. Calling it runs it on the device of its operands.

    ``arguments(*args, **kwargs)`` is the op's Python signature: it returns the operands and the attributes,
    the latter in a form that hashes. ``normalize(operands, **attrs)`` gives the attributes that kernels see
    (non-negative axes, full shapes). ``infer(operands, **attrs)`` is the shape and dtype rule; it raises what
    is wrong with them. ``compute(dtypes, **attrs)`` gives the dtypes that operands are cast to first.
    ``decompose`` takes tensors and attributes and is written in other ops; an op without one is a prim.
    ``vjp`` names what it needs among ``g`` (the gradient of the result), ``out``, the operands and the
    attributes, and returns one gradient (or None for zero) per operand; what it does not name is not kept, so
    one that needs only the shape of the operand ``x`` names ``x_shape``. It may name ``wanted``, a bool for
    each operand, to leave out gradients that nobody asked for, and ``used``, for each result whether it has a
    gradient, rather than zeros. A composite without one is differentiated
    through its decomposition. ``broadcasts`` marks the ops whose
    kernels serve every shape; their gradients are summed back to the operands' shapes for them.

    ``jvp`` is the forward derivative, from tangents of the operands to that of the result. ``"linear"``: the
    op itself, on the tangents, zeros for those of other operands that can have one. ``"multilinear"``: the
    sum of the op with one operand replaced by its tangent at a time. ``"pointwise"``: one of
    elements alone, so that the derivative is its own transpose and the vjp serves. A function names what it
    needs: for an operand ``x`` its tangent ``x_t`` (None for zero; of ``*xs`` the list ``xs_t``), the
    operands, ``out``, the attributes; it returns the tangent of the result, or a tuple, or one of these
    words. Without one, or where it returns ``NotImplemented``, the vjp, which is linear in ``g``, is
    transposed; an op that has no vjp either is differentiated through its
    decomposition.

    An op of several results names them in ``results``: ``infer`` gives a tuple of specs, kernels and
    ``decompose`` give tuples, a call returns a named tuple, and ``g`` and ``out`` of its ``vjp`` are tuples
    (zeros stand for the gradient of a result that nobody used). A last name that begins with ``*`` stands for
    any number, of results as of operands; a call then returns a plain tuple.

    ``batch(operands, batched, **attrs)`` is the batching rule: each operand that ``batched`` marks has an
    additional axis 0 of examples, and so has the result (each result). An op without one decomposes there.
    ``shard(operands, results, **attrs)`` is the sharding rule, which yields how the op can be split over
    ranks (``sharding_rules``); an op without one decomposes there, a prim runs on the whole of its operands.
    ``late`` names attributes on which neither shapes nor dtypes depend: kernels may take them with each call
    instead of being prepared for them. ``view`` marks an op whose result shows elements of its only operand:
    a write to one of the two is seen in the other. ``may_overwrite`` names operands, or ``out``, that the
    ``vjp`` reads where PyTorch's derivative does not: writing over their tensors before ``backward()`` is no
    error, and the derivative has what stood there. A function gives them for the operands' shapes.

    ``samples()`` yields the sample calls (``testing.sample.Sample``) that a plugin's op is tested with; those
    of core's own lie in ``testing/samples``, by the op's name or its family, and depend on three fields:
    ``domain`` is where an op is defined and has derivatives; one that is not ``smooth`` is defined to have no
    derivative where it changes; ``identity`` tells whether a reduction of no elements has a result.

    What the rest of tensorbus has to know of an op is a field as well; no other module lists ops by what they
    are. ``cost`` guides fusion: a value of heavy ops is stored, one of functions is not computed again for
    each reader. A composite has the cost of its decomposition; its own counts where a language has an
    expression for it. ``recompute`` allows a backward program to compute the op again rather than to keep its
    result. ``ordered`` is for ops that do more than compute, as collectives: a program does each call, used
    or not, in the order in which they were captured. Its graph says so by one more operand, the call before,
    and the attribute ``after``. ``autocast`` is ``"narrow"`` for ops that gain by a narrow dtype and
    accumulate in a wide one,
    ``"wide"`` for those whose sums or exponentials overflow or round away in it; a dtype is
    what operands are cast to, whatever the narrow one is; None takes what comes.
    ``raises_for`` names the operands whose values decide whether a call raises that ``infer`` accepts:
    indices, which may be out of range, or matrices, which may be singular. ``method`` says that the op is a
    method of its first operand too. ``memoize`` lets the eager function of an op of one operand ``x``
    recognize a call by its arguments as they stand, before they are normalized. ``unsqueezes`` is for an op
    that keeps the rank and works along ``axis``: a 0-dimensional tensor is then a line of one element along
    axis 0 or -1, as in PyTorch. ``check(*operands)`` raises what is wrong with Python numbers among the two
    operands of an elementwise op, which ``infer`` does not see.
    """

    name: str
    family: str
    operands: tuple[str, ...]
    arguments: Callable[P, tuple[tuple[Any, ...], dict[str, Any]]]
    infer: Callable[..., Any]
    results: tuple[str, ...] = ()
    normalize: Callable[..., dict[str, Any]] | None = None
    compute: Callable[..., tuple[DType, ...]] | None = None
    decompose: Callable[..., Any] | None = None
    vjp: Callable[..., tuple[Any, ...]] | None = None
    jvp: Callable[..., Any] | Jvp | None = None
    batch: Callable[..., Any] | None = None
    view: ViewRule | None = None
    may_overwrite: tuple[str, ...] | Callable[[Sequence[Shape]], tuple[str, ...]] = ()
    shard: Callable[..., Iterable[Any]] | None = None
    samples: Callable[[], Iterable[Any]] | None = None
    domain: Domain | None = None
    smooth: bool = True
    identity: bool = True
    dtypes: tuple[DType, ...]
    broadcasts: bool = False
    late: tuple[str, ...] = ()
    cost: Cost = "heavy"
    recompute: bool = False
    ordered: bool = False
    autocast: Autocast | DType | None = None
    raises_for: tuple[str, ...] = ()
    method: bool = True
    memoize: bool = False
    unsqueezes: bool = False
    check: Callable[..., None] | None = None
    doc: str = ""
    needs: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        if self.vjp is not None:
            code = self.vjp.__code__
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            object.__setattr__(self, "needs", frozenset(names))

    def specs(self, operands: tuple[Spec, ...], attrs: Attrs) -> tuple[Spec, ...]:
        """Return the spec of each result: ``infer``, with one result as a tuple of one."""
        inferred = self.infer(operands, **attrs)
        specs: tuple[Spec, ...] = inferred if self.results else (inferred,)
        for spec in specs:
            check_size(self.name, spec.shape)
        return specs

    @property
    def is_prim(self) -> bool:
        """True where a device must supply the kernel itself."""
        return self.decompose is None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """Run the op on the device of its operands."""
        out: Tensor = table.function(self.name)(*args, **kwargs)
        return out

    @property
    def function(self) -> Callable[P, Tensor]:
        """The Python function that runs the op: the same as calling it, with one call less."""
        return table.function(self.name)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class InPlaceCall(NamedTuple):
    """A call of an op whose result is to be stored in the buffer of the operand with number ``target``.

    ``by`` is what does so, as errors name it.
    """

    name: str
    operands: tuple[Any, ...]
    attrs: Attrs
    target: int = 0
    by: str = "an assignment to elements"


def _unbound(*_: Any) -> Any:
    raise RuntimeError("tensorbus.eager.call binds the table at import")


class OpTable:
    """All ops by name. Refuses a second op of one name; answers a miss with the near names.

    Who goes through the table sees the ops of core and plugins, not those that a program made for itself.
    """

    def __init__(self) -> None:
        self._ops: dict[str, Op[...]] = {}
        self._unlisted: dict[str, Op[...]] = {}
        self._owners: dict[str, str] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._runners: dict[str, Callable[..., Any]] = {}
        self._make_function: Callable[[Op[...]], Callable[..., Any]] | None = None
        self._make_runner: Callable[[Op[...]], Callable[..., Any]] | None = None
        self.dynamic_slice: Callable[[Any, Shape, Shape, Shape], Any] = _unbound
        self.run_in_place: Callable[[InPlaceCall], bool] = _unbound
        self.link_by_key: Callable[..., Any] = _unbound
        self.unlink: Callable[[Any], Any] = _unbound
        self._on_miss: Callable[[str], None] | None = None
        self._lock = fork_safe_locks.reentrant()

    def add(self, op: Op[P], owner: str = "tensorbus") -> Op[P]:
        """Register ``op``; again, to say whose it is. Raises ``PluginError`` where another has its name."""
        with self._lock:
            if self._ops.get(op.name, op) is not op or op.name in self._unlisted:
                raise PluginError(
                    f"op {op.name!r} of {owner!r} is already defined by {self.owner(op.name)!r};"
                    f" one of them must choose another name."
                )
            self._ops[op.name] = op
            self._owners[op.name] = owner
        return op

    def add_unlisted(self, op: Op[P], owner: str = "the program") -> Op[P]:
        """Register ``op`` by its name without listing it: it belongs to one program, or to one function."""
        with self._lock:
            if op.name in self:
                raise PluginError(f"op {op.name!r} is already defined; another name is needed.")
            self._unlisted[op.name] = op
            self._owners[op.name] = owner
        return op

    def discard(self, name: str) -> None:
        """Forget an op that a plugin or the program had added."""
        with self._lock:
            self._ops.pop(name, None)
            self._unlisted.pop(name, None)
            self._owners.pop(name, None)
            self._functions.pop(name, None)
            self._runners.pop(name, None)

    def bind(
        self, make_function: Callable[[Op[...]], Callable[..., Any]],
        make_runner: Callable[[Op[...]], Callable[..., Any]],
        dynamic_slice: Callable[[Any, Shape, Shape, Shape], Any],
        run_in_place: Callable[[InPlaceCall], bool],
        link_by_key: Callable[..., Any],
        unlink: Callable[[Any], Any],
    ) -> None:  # fmt: skip
        """Set what makes the Python function of an op, and its runner on operands and attributes.

        ``dynamic_slice`` takes a box of a tensor, which is known to fit; ``run_in_place`` makes a call in
        place where no other reference can tell, and returns whether it did. ``link_by_key`` makes a tensor a
        view of another, taken by a key; ``unlink`` makes it none. Called once, by the module that runs ops.
        """
        self._make_function, self._make_runner = make_function, make_runner
        self.dynamic_slice, self.run_in_place = dynamic_slice, run_in_place
        self.link_by_key, self.unlink = link_by_key, unlink

    def on_miss(self, find: Callable[[str], None]) -> None:
        """Set what may add an op that the table lacks: the search for plugins' ops."""
        self._on_miss = find

    def function(self, name: str) -> Callable[..., Any]:
        """Return the Python function that runs the op."""
        function = self._functions.get(name)
        if function is None:
            op = self[name]
            assert self._make_function is not None, "tensorbus.eager.call binds the table at import"
            with self._lock:
                function = self._functions.setdefault(name, self._make_function(op))
        return function

    def run(self, name: str, operands: Sequence[Any], attrs: Attrs, *, below: bool = False) -> Any:
        """Run an op on operands and attributes as its rules know them, past its Python signature.

        ``below`` all modes: see ``dispatch.modes``.
        """
        runner = self._runners.get(name)
        if runner is None:
            assert self._make_runner is not None, "tensorbus.eager.call binds the table at import"
            runner = self._runners.setdefault(name, self._make_runner(self[name]))
        return runner(operands, dict(attrs), below)

    def owner(self, name: str) -> str:
        """Return which distribution defined the op."""
        return self._owners.get(name, "the program")

    def __getitem__(self, name: str) -> Op[...]:
        op = self._ops.get(name) or self._unlisted.get(name)
        if op is None and self._on_miss is not None:
            self._on_miss(name)
            op = self._ops.get(name) or self._unlisted.get(name)
        if op is None:
            raise UnsupportedOpError(f"no op is called {name!r}.{suggest(name, self._ops)}")
        return op

    def __contains__(self, name: object) -> bool:
        return name in self._ops or name in self._unlisted

    def __iter__(self) -> Iterator[Op[...]]:
        return iter(list(self._ops.values()))

    def __len__(self) -> int:
        return len(self._ops)

    def names(self) -> Iterable[str]:
        """Return all names, in order of definition."""
        return list(self._ops)


table = OpTable()
