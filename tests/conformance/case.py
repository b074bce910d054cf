"""What a property test of one op draws. What should come out of it the conformance kit knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType
from tensorbus.ops.definition import table
from tensorbus.testing import sample as kit
from tensorbus_conformance.native import native
from tensorbus_conformance.trial import Trial

from samples import Array

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """Operands as host arrays, in a list if ``listed``, what follows them by position, and attributes."""

    operands: tuple[Array, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = ()
    listed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``samples(draw, dtype)`` draws operands and attributes; ``dtypes`` are those that it can draw."""

    samples: Callable[[Draw, DType], Sample]
    dtypes: tuple[DType, ...] | None = None


_NAMES = {native(d): d for d in dt.ALL}


def trial(name: str, device: str, dtype: DType, sample: Sample) -> Trial:
    """Return the call as the kit takes it, with the arrays that were drawn."""
    fills = tuple(kit.Fill(shape=a.shape, dtype=_NAMES[np.dtype(a.dtype)]) for a in sample.operands)
    args: tuple[Any, ...] = ([*fills],) if sample.listed else fills
    call = kit.Sample(args=(*args, *sample.args), kwargs=sample.attrs)
    trial = Trial(op=table[name], device=device, dtype=dtype, sample=call, place=0)
    trial.__dict__["arrays"] = list(sample.operands)
    return trial
