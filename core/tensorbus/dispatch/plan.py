"""Plan: what runs a signature of an op, made once and cached.

Stage 4 of dispatch, and the way through all of them: ``plan`` takes the signature of a call, its candidates
with their verdicts, the selection among them, and makes the plan of what was taken. Each stage takes what the
one before it returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any, Final

from ..backend_interface.protocols import Call, Kernel
from ..devices.device import Device, ValueType
from ..dtypes.definition import DType
from ..errors import DeviceError, PluginError, TensorbusError, UnsupportedOpError
from ..ops import fused_function
from ..ops.definition import Op, Shape, Spec, table
from ..ops.elementwise.family import broadcast_shapes
from ..plugins import on_change
from ..system import env
from .candidates import HostFallback, Lifting, ModeRule, Verdict, candidates_of
from .foreign_kernels import Verify, checked, is_foreign, with_fingerprints
from .host_fallback import through_host
from .kernel_preference import on_first_preference
from .kernel_tables import forget, fused_kernels
from .modes import value_modes
from .result_check import mismatch
from .selection import Selection, select
from .signature import Operand, Signature, signature_of

if TYPE_CHECKING:
    from ..backend_interface.compilation import FusedKernels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """The way that one signature of an op runs.

    ``run`` takes values and returns the value (of an op of several results: the values); it is None where the
    op decomposes. Its first result is checked; from then on ``run`` is the kernel alone. ``kernel`` names it
    and its package. ``out`` is the type of the result, ``outs`` and ``shapes`` tell those of several.
    ``lift`` makes operands from outside into values of a mode first; ``run`` is then None too. ``casts``
    are the dtypes that a decomposition's operands need first, None where an operand fits as it is;
    ``computed`` are those that the op computes in. ``source`` is the kernel, and the call that it was chosen
    for. ``keeps`` and ``keeps_out`` say which operands, and whether the result, the derivative needs.
    ``programs`` makes one kernel of several ops, where the device's kernels are generated;
    ``backward_programs`` are those of the derivative. Of a fused function ``saved`` says how many of the last
    operands are what a call left for the derivative.
    """

    op: Op[...]
    operands: tuple[Operand, ...]
    run: Any
    out: ValueType
    casts: tuple[DType | None, ...]
    attrs: Mapping[str, Any]
    computed: tuple[DType, ...] = ()
    outs: tuple[ValueType, ...] = ()
    shapes: tuple[Shape, ...] = ()
    lift: Callable[[Any], Any] | None = None
    kernel: str = ""
    source: tuple[Kernel, Call] | None = None
    programs: FusedKernels | None = None
    saved: int = 0
    backward_programs: dict[Any, Any] = field(init=False, default_factory=dict)
    keeps: tuple[bool, ...] = field(init=False, default=())
    keeps_out: bool = field(init=False, default=False)
    differentiable: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        names = self.op.operands
        if names and names[-1].startswith("*"):
            names = (*names[:-1], *(names[-1][1:],) * (len(self.operands) - len(names) + 1))
        again = self.op.vjp is None and self.op.decompose is not None
        object.__setattr__(self, "keeps", tuple(again or n in self.op.needs for n in names))
        object.__setattr__(self, "keeps_out", "out" in self.op.needs)
        kinds = self.outs or (self.out,)
        object.__setattr__(self, "differentiable", any(kind.dtype.is_inexact for kind in kinds))


# Each use is one operation on a list, which Python makes whole: no lock, as `invalidate` also runs in
# forked children, where a lock that another thread held would never be released.
_caches: list[dict[Any, Plan]] = []
_KEYS: Final = (int, str, tuple, float, complex, bytes)
_PLAIN: Final = frozenset({*_KEYS, bool, type(None)})
_KNOWN_PACKAGES: Final = frozenset({"builtins", "tensorbus", "numpy", "ml_dtypes"})


def new_cache() -> dict[Any, Any]:
    """Return a cache of plans, or what follows from them, that is emptied whenever plugins come or go."""
    cache: dict[Any, Any] = {}
    _caches.append(cache)
    return cache


_LONG_TUPLE: Final = 64
"""Items of a tuple from which on it is worth to look whether all are of one type."""


def has_own_equality(value: Any) -> bool:
    """Return whether a value, or an item of a tuple, has code of its own that says what it is equal to.

    Such a one is no part of a key by which a plan is kept: others, who call with what it is equal to, would
    run its plan. Classes of Python's, NumPy's and core's are known, and those of data.
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        if kind is not tuple or (len(value) > _LONG_TUPLE and {*map(type, value)} == {int}):
            return False
        return any(map(has_own_equality, value))
    base: Any = next((base for base in _KEYS if issubclass(kind, base)), None)
    if base is None:
        plain = kind.__eq__ is object.__eq__ or hasattr(kind, "__dataclass_fields__")
        return not plain and kind.__module__.partition(".")[0] not in _KNOWN_PACKAGES
    if kind.__eq__ is not base.__eq__ or kind.__hash__ is not base.__hash__:
        return True
    return base is tuple and any(map(has_own_equality, tuple.__iter__(value)))


def plain_attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    """Return attributes with Python's numbers in the place of those with an equality of their own."""
    if not any(map(has_own_equality, attrs.values())):
        return attrs
    plain = {name: _plain(value) for name, value in attrs.items()}
    return plain if any(plain[name] is not value for name, value in attrs.items()) else attrs


def _plain(value: Any) -> Any:
    if not has_own_equality(value):
        return value
    if isinstance(value, tuple):
        items = tuple(map(_plain, tuple.__iter__(value)))
        return value if all(a is b for a, b in zip(items, tuple.__iter__(value), strict=True)) else items
    return int.__add__(index(value), 0) if hasattr(type(value), "__index__") else value


def invalidate() -> None:
    """Forget every plan and every kernel table."""
    forget()
    fused_function.forget_programs()
    for cache in _caches:
        cache.clear()


on_change(invalidate)
on_first_preference(invalidate)


def plan(
    op: Op[...], operands: Sequence[Operand], shapes: Sequence[Shape] | None, attrs: Mapping[str, Any],
    computed: tuple[DType, ...] | None = None, *, captured: bool = False,
) -> Plan:  # fmt: skip
    """Plan how ``op`` runs. ``shapes`` is None for elementwise ops, whose plan serves every shape.

    ``computed`` are the dtypes that the op computes in where they are known, as those of a graph's nodes are;
    ``attrs`` are as kernels see them then. Of a ``captured`` op the kernel is prepared when it runs, if ever.
    Raises the error of the op's own rules before any kernel is touched, then ``UnsupportedDtypeError`` or
    ``UnsupportedOpError`` where the device cannot run it.
    """
    signature = signature_of(op, operands, shapes, attrs, computed)
    candidates = candidates_of(signature)
    selection = select(signature, candidates)
    return plan_of(signature, selection, captured=captured)


def plan_of(signature: Signature, selection: Selection, *, captured: bool = False) -> Plan:
    """Return the plan that runs the candidate which was taken."""
    op, device, taken = signature.op, signature.device, selection.taken
    outs = tuple(ValueType.of(o.dtype, device) for o in signature.outs)
    run: Callable[..., Any] | None = None
    kernel, source = "", None
    if isinstance(taken, Verdict):
        kernel, source = f"kernel {taken.name!r} of {taken.owner}", (taken.kernel, signature.call)
        run = _deferred(signature, taken, kernel) if captured else _prepared(signature, taken)
        if env.debugging():
            run = with_fingerprints(run, signature.operands, device, f"{op.name} on {device}: {kernel}")
    elif isinstance(taken, HostFallback):
        run = _on_host(signature)
    elif isinstance(taken, ModeRule):
        run = taken.run
    result = Plan(
        op=op, operands=signature.operands, casts=signature.casts, attrs=signature.call.attrs,
        computed=signature.call.dtypes, run=run, lift=taken.lift if isinstance(taken, Lifting) else None,
        kernel=kernel, source=None if captured else source, out=outs[0], outs=outs if op.results else (),
        shapes=tuple(o.shape for o in signature.outs) if op.results else (),
        programs=_fused_kernels(op, device),
    )  # fmt: skip
    if isinstance(taken, Verdict) and not captured:
        object.__setattr__(result, "run", _checked_once(result, signature, is_foreign(taken.owner)))
    return result


def _fused_kernels(op: Op[...], device: Device) -> FusedKernels | None:
    """Return what fuses derivatives: of core's ops only, which depend on nothing else."""
    own = device.type not in value_modes and table.owner(op.name) == "tensorbus"
    return fused_kernels(device.type) if own else None


def _checked_once(plan: Plan, signature: Signature, foreign: bool) -> Callable[..., Any]:
    """Return the ``run`` of a plan until a first result has turned out to be what the op promises.

    From then on it is the kernel alone, or a kernel of another package with a check of each result.
    """
    run, verify = plan.run, _verification(signature, plan.kernel)

    def first(*values: Any) -> Any:
        result = run(*values)
        if plan.run is first:
            verify(values, result)
            lasting = run
            if foreign:
                shape = signature.outs[0].shape if signature.sized else None
                lasting = checked(run, verify, result, shape, signature.operands)
            object.__setattr__(plan, "run", lasting)
        elif foreign:
            verify(values, result)
        return result

    return first


def _verification(signature: Signature, kernel: str) -> Verify:
    """Return what raises ``PluginError`` for a result that is not what the op promises."""
    op, outs, device = signature.op, signature.outs, signature.device

    def verify(values: Sequence[Any], result: Any) -> None:
        specs: Sequence[Spec] = outs
        if not signature.sized:
            shape = broadcast_shapes(*[v.shape for v in values if hasattr(v, "shape")])
            specs = [Spec(shape, o.dtype) for o in outs]
        text = mismatch(result, specs, device, several=bool(op.results))
        if text is not None:
            raise PluginError(f"{op.name} on {device}: {kernel} {text}.")

    return verify


def _on_host(signature: Signature) -> Callable[..., Any]:
    op, call = signature.op, signature.call

    def kernel_on(host: Device) -> Callable[..., Any]:
        moved = [ValueType.of(o.dtype, host) if isinstance(o, ValueType) else o for o in signature.operands]
        run: Callable[..., Any] | None = plan(op, moved, call.shapes, call.attrs).run
        if run is None:
            raise UnsupportedOpError(f"{op.name}: {host} has no kernel for it to fall back to.")
        return run

    outs = [o.dtype for o in signature.outs]
    return through_host(op.name, signature.device, signature.dtypes, outs, bool(op.results), kernel_on)


def _deferred(signature: Signature, taken: Verdict, kernel: str) -> Callable[..., Any]:
    """Return what prepares the kernel whenever it runs, and checks what one of another package returns."""
    verify = _verification(signature, kernel) if is_foreign(taken.owner) else None

    def run(*values: Any) -> Any:
        result = _prepared(signature, taken)(*values)
        if verify is not None:
            verify(values, result)
        return result

    return run


def _prepared(signature: Signature, taken: Verdict) -> Callable[..., Any]:
    """Return the kernel as a function of the values alone, after the casts that it needs."""
    call, kernel = signature.call, taken.kernel
    if kernel.prepare is not None:
        run = _prepare(call, taken, signature.device)
    else:
        function, attrs = kernel.function, dict(call.attrs)
        assert function is not None
        run = (lambda *values: function(*values, **attrs)) if attrs else function
    if not any(signature.casts):
        return run
    converts = [
        _cast_plan(ValueType.of(d, signature.device), c) if c is not None and isinstance(d, DType) else None
        for d, c in zip(signature.dtypes, signature.casts, strict=True)
    ]
    return lambda *values: run(
        *[v if convert is None else convert.run(v) for convert, v in zip(converts, values, strict=True)]
    )


def _prepare(call: Call, taken: Verdict, device: Device) -> Callable[..., Any]:
    assert taken.kernel.prepare is not None
    where = f"{call.op} on {device}: prepare of kernel {taken.name!r} of {taken.owner}"
    try:
        run: object = taken.kernel.prepare(call)
    except (TensorbusError, MemoryError):
        raise
    except Exception as error:
        raise DeviceError(f"{where} failed with {type(error).__name__}: {error}") from error
    if not callable(run):
        raise PluginError(f"{where} returned {run!r}, and must return a function of the values.")
    return run


def _cast_plan(operand: ValueType, target: DType) -> Plan:
    cast = plan(table["cast"], (operand,), None, {"dtype": target})
    if cast.run is None:
        raise UnsupportedOpError(
            f"cast: {operand.device} has no kernel to turn {operand.dtype} into {target}."
        )
    return cast
