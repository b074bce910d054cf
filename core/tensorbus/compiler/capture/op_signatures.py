"""The plan, the specs and the key of an op on operands of some types and shapes, worked out once for each.

Planning runs rules of ops, which a user may have defined: nothing of it is part of what is captured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...dispatch import kernel_preference
from ...dispatch.plan import Plan, has_own_equality, new_cache, plain_attrs, plan
from ...errors import ShapeError
from ...ops.definition import Op, Spec
from ...tracing.sym_int import hints, texts
from ..programs.op_trace import Key
from .side_effect_observer import unobserved


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSignature:
    """The plan and results of an op on operands of these types and shapes."""

    plan: Plan
    specs: tuple[Spec, ...]
    key: Key


_signatures: dict[Any, OpSignature] = new_cache()
_MAX_SIGNATURES: Final = 1 << 14


def signature_of(
    op: Op[...], kinds: Sequence[Any], shapes: Sequence[Any], attrs: Mapping[str, Any]
) -> OpSignature:
    """Return the signature of an op whose lengths are numbers, from the cache if it is there."""
    if any(map(has_own_equality, attrs.values())):
        attrs = plain_attrs(dict(attrs))
    named = [repr(v) if type(v) in (float, complex) else v for v in attrs.values()]
    key = (op, *kinds, *shapes, *attrs, *named)
    if kernel_preference.active():
        key = (kernel_preference.preferred(op.name), *key)
    try:
        signature = _signatures.get(key)
    except TypeError:  # an attribute that does not hash: dispatch says so as it does without a capture
        signature = None
    if signature is not None:
        return signature
    with unobserved():
        planned = plan(op, kinds, None if op.broadcasts else shapes, attrs, captured=True)
    specs = tuple(Spec(s, d) for s, d in zip(shapes, planned.computed, strict=True))
    signature = OpSignature(
        plan=planned, specs=_result_specs(op, specs, planned.attrs), key=_key(op, planned.attrs, planned)
    )
    if any(map(has_own_equality, attrs.values())):
        return signature
    if len(_signatures) >= _MAX_SIGNATURES:
        _signatures.clear()
    _signatures[key] = signature
    return signature


def symbolic_signature(
    op: Op[...], kinds: Sequence[Any], shapes: Sequence[Any], attrs: Mapping[str, Any]
) -> OpSignature:
    """Return the signature of an op whose shapes or attributes have open lengths."""
    with unobserved():
        hinted = plan(op, kinds, None if op.broadcasts else hints(list(shapes)), hints(attrs), captured=True)
    normalized = {k: v for k, v in attrs.items() if k != "device" or op.family != "creation"}
    specs = tuple(Spec(s, d) for s, d in zip(shapes, hinted.computed, strict=True))
    if op.normalize is not None:
        normalized = op.normalize(specs, **normalized)
    result_specs = _result_specs(op, specs, normalized)
    planned = replace(
        hinted, attrs=normalized, shapes=tuple(s.shape for s in result_specs) if hinted.outs else ()
    )
    return OpSignature(
        plan=planned, specs=result_specs, key=_key(op, {k: texts(v) for k, v in normalized.items()}, planned)
    )


def _key(op: Op[...], attrs: Mapping[str, Any], planned: Plan) -> Key:
    return op.name, tuple((k, repr(v)) for k, v in attrs.items()), planned.out, planned.outs


def _result_specs(op: Op[...], specs: tuple[Spec, ...], attrs: Mapping[str, Any]) -> tuple[Spec, ...]:
    try:
        with unobserved():  # a shape rule of the user's is part of the op, not of what is captured
            return op.specs(specs, attrs)
    except ShapeError as error:
        raise (error if str(error).startswith(f"{op.name}:") else ShapeError(f"{op.name}: {error}")) from None
