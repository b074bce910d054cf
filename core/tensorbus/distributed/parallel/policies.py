"""Policies of ``fully_shard``: in which dtypes a module computes, and where its parts lie."""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes.definition import DType, dtype
from ...errors import ArgumentError


@dataclass(frozen=True, init=False)
class MixedPrecisionPolicy:
    """The dtypes that a module of ``fully_shard`` computes in, or their names; None: as it is.

    Whole parameters have ``param_dtype``, as floating-point arguments of ``forward`` do with
    ``cast_forward_inputs``; gradients are averaged in ``reduce_dtype``, in which those of several batches add
    up; what ``forward`` returns has ``output_dtype``. Parts, their gradients and what an optimizer keeps stay
    in the parameters' dtype. Raises ``ArgumentError`` for a dtype that is not floating-point.

    >>> import tensorbus as tb
    >>> def rank() -> list[str]:
    ...     policy = tb.distributed.MixedPrecisionPolicy("bfloat16", reduce_dtype="float32")
    ...     model = tb.distributed.fully_shard(tb.nn.Linear(2, 2), mp_policy=policy)
    ...     return [str(x.dtype) for x in (model(tb.ones((1, 2))), model.weight)]
    >>> tb.distributed.run_ranks(rank, 2)[0]
    ['bfloat16', 'float32']
    """

    param_dtype: DType | None
    reduce_dtype: DType | None
    output_dtype: DType | None
    cast_forward_inputs: bool

    def __init__(
        self, param_dtype: DType | str | None = None, reduce_dtype: DType | str | None = None,
        output_dtype: DType | str | None = None, cast_forward_inputs: bool = True,
    ) -> None:  # fmt: skip
        chosen = {"param_dtype": param_dtype, "reduce_dtype": reduce_dtype, "output_dtype": output_dtype}
        for name, value in chosen.items():
            object.__setattr__(self, name, _floating(name, value))
        object.__setattr__(self, "cast_forward_inputs", cast_forward_inputs)


def _floating(name: str, value: DType | str | None) -> DType | None:
    chosen = dtype(value) if isinstance(value, str) else value
    if chosen is None or (isinstance(chosen, DType) and chosen.is_floating):
        return chosen
    raise ArgumentError(
        f"MixedPrecisionPolicy: {name} is a floating-point dtype, such as tensorbus.bfloat16, or None; got"
        f" {value!r}."
    )


@dataclass(frozen=True)
class OffloadPolicy:
    """Parts of parameters, their gradients and what an optimizer keeps lie where the module computes.

    >>> import tensorbus as tb
    >>> def rank() -> str:
    ...     model = tb.nn.Linear(2, 2, device="cpu")
    ...     tb.distributed.fully_shard(model, offload_policy=tb.distributed.OffloadPolicy())
    ...     return str(model.weight.to_local().device)
    >>> tb.distributed.run_ranks(rank, 2)[0]
    'cpu:0'
    """


@dataclass(frozen=True)
class CPUOffloadPolicy(OffloadPolicy):
    """Parts of parameters, their gradients and what an optimizer keeps lie in the host's memory.

    With ``pin_memory`` copies to and from a device that has page-locked memory go by that, and nobody waits
    for them: parts lie there from their first use after each change on. Elsewhere it changes nothing.

    >>> import tensorbus as tb
    >>> def rank() -> str:
    ...     model = tb.nn.Linear(2, 2, device="cpu")
    ...     tb.distributed.fully_shard(model, offload_policy=tb.distributed.CPUOffloadPolicy())
    ...     return str(model.weight.to_local().device)
    >>> tb.distributed.run_ranks(rank, 2)[0]
    'cpu:0'
    """

    pin_memory: bool = True
