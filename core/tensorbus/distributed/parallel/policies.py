"""Policies of ``fully_shard``: in which dtypes a module computes, and where its parts lie."""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes.definition import DType
from ...errors import ArgumentError


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes that a module of ``fully_shard`` computes in; None: as it is.

    Whole parameters have ``param_dtype``, as floating-point arguments of ``forward`` do with
    ``cast_forward_inputs``; gradients are averaged in ``reduce_dtype``, in which those of several batches add
    up; what ``forward`` returns has ``output_dtype``. Parts, their gradients and what an optimizer keeps stay
    in the parameters' dtype. Raises ``ArgumentError`` for a dtype that is not floating-point.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True

    def __post_init__(self) -> None:
        for name in ("param_dtype", "reduce_dtype", "output_dtype"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, DType) and value.is_floating):
                raise ArgumentError(
                    f"MixedPrecisionPolicy: {name} is a floating-point dtype, such as tensorbus.bfloat16, or"
                    f" None; got {value!r}."
                )


@dataclass(frozen=True)
class OffloadPolicy:
    """Parts of parameters, their gradients and what an optimizer keeps lie where the module computes."""


@dataclass(frozen=True)
class CPUOffloadPolicy(OffloadPolicy):
    """Parts of parameters, their gradients and what an optimizer keeps lie in the host's memory.

    With ``pin_memory`` copies to and from a device that has page-locked memory go by that, and nobody waits
    for them: parts lie there from their first use after each change on. Elsewhere it changes nothing.
    """

    pin_memory: bool = True
