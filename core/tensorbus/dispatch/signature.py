"""Signature of a call: what the op's own rules say of it, before any kernel is looked at.

Stage 1 of dispatch. Errors in the arguments, in their devices and dtypes are raised here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backend_interface.protocols import Call
from ..devices.device import Device, ValueType
from ..dtypes.definition import DType
from ..errors import DeviceError, DtypeError, UnsupportedDtypeError
from ..ops.definition import Op, Shape, Spec
from .kernel_tables import tables_of
from .modes import depth, value_modes

Operand = ValueType | type
"""The type of an operand: of a tensor, or of a Python scalar."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Signature:
    """An op, the types of its operands, and what follows from them.

    ``device`` is where the op runs; ``call`` is what kernels are asked about and prepared for. ``casts`` are
    the dtypes that operands are cast to first, None where one fits as it is. ``outs`` are the specs of the
    results, with empty shapes where the signature serves every shape (``sized`` is False).
    """

    op: Op[...]
    operands: tuple[Operand, ...]
    device: Device
    call: Call
    casts: tuple[DType | None, ...]
    outs: tuple[Spec, ...]

    @property
    def dtypes(self) -> tuple[DType | type, ...]:
        """The dtypes of the operands as they come; of Python scalars, their types."""
        return tuple(o.dtype if isinstance(o, ValueType) else o for o in self.operands)

    @property
    def sized(self) -> bool:
        """Whether the shapes of the operands are part of the signature."""
        return self.call.shapes is not None


def signature_of(
    op: Op[...], operands: Sequence[Operand], shapes: Sequence[Shape] | None, attrs: Mapping[str, Any],
    computed: tuple[DType, ...] | None = None,
) -> Signature:  # fmt: skip
    """Apply the rules of ``op``. ``shapes`` is None for elementwise ops, whose plan serves every shape.

    ``computed`` are the dtypes that the op computes in where they are known, as those of a graph's nodes are;
    ``attrs`` are as kernels see them then. Raises the error of the op's own rules, or
    ``UnsupportedDtypeError``.
    """
    attrs = dict(attrs)
    device = common_device(op.name, operands) if operands else attrs["device"]
    if op.family == "creation":
        attrs.pop("device")
    dtypes = tuple(o.dtype if isinstance(o, ValueType) else o for o in operands)
    strong = tuple(d for d in dtypes if isinstance(d, DType))
    normal = computed is not None
    if computed is None:
        computed = op.compute(dtypes, **attrs) if op.compute else strong
    specs = tuple(Spec(s, d) for s, d in zip(shapes or [()] * len(computed), computed, strict=True))
    if op.normalize is not None and not normal:
        attrs = op.normalize(specs, **attrs)
    outs = op.specs(specs, attrs)
    _check_dtypes(op.name, [*strong, *computed, *(o.dtype for o in outs)], device)
    call = Call(
        op=op.name, dtypes=computed, shapes=tuple(shapes) if shapes is not None else None, attrs=attrs,
        out_dtype=outs[0].dtype, out_shape=outs[0].shape if shapes is not None else None, index=device.index,
        weak=tuple(isinstance(o, type) for o in operands),
    )  # fmt: skip
    casts = tuple(
        c if isinstance(d, DType) and d is not c else None for d, c in zip(dtypes, computed, strict=True)
    )
    return Signature(op=op, operands=tuple(operands), device=device, call=call, casts=casts, outs=outs)


def common_device(op: str, operands: Sequence[Operand]) -> Device:
    """Return the device of all operands. Raises ``DeviceError`` naming both where they differ.

    Raises ``DtypeError`` where all of them are Python scalars.
    """
    devices = [o.device for o in operands if isinstance(o, ValueType)]
    if not devices:
        kinds = ", ".join(o.__name__ for o in operands if not isinstance(o, ValueType))
        raise DtypeError(
            f"{op}: at least one operand must be a tensor, got {kinds}. Make one with tensorbus.asarray."
        )
    if value_modes:
        inner = [d for d in devices if d.type in value_modes]
        if inner:  # the innermost mode sees the values of all others as constants
            return max(inner, key=depth)
    for other in devices[1:]:
        if other != devices[0]:
            raise DeviceError(
                f"{op}: operands lie on {devices[0]} and {other}; all must be on one device."
                f" Move one with .to({str(devices[0])!r})."
            )
    return devices[0]


def _check_dtypes(op: str, dtypes: Sequence[DType], device: Device) -> None:
    if device.type in value_modes:
        return
    known = tables_of(device.type).dtypes(device.index)
    if not known.issuperset(dtypes):
        lacking = next(d for d in dtypes if d not in known)
        raise UnsupportedDtypeError(
            f"{op}: {device} has no {lacking}; it has {', '.join(sorted(d.name for d in known))}."
            f" Cast with .to(dtype), or move to another device."
        )
