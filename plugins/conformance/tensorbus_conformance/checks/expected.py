"""The expected result of a call: by the op's reference, else by its decomposition in float64 on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorbus import Tensor, asarray
from tensorbus.dtypes.definition import DType

from ..agreement import difference, same_bits
from ..native import Array, native, wide
from ..references import Reference, references
from ..trial import HOST, Bound, Trial

ULPS = 32.0
"""The error allowed where the op has no reference of its own and is held to its decomposition in float64."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Results in float64 or complex128, and how far off a device may be."""

    results: tuple[Any, ...]
    ulps: float
    scale: Any
    exact: bool
    dtypes: tuple[DType, ...]
    zeros: bool = False
    judged: Reference | None = None
    operands: tuple[Any, ...] = ()
    attrs: dict[str, Any] | None = None

    def problem(self, got: Sequence[Array], slack: float = 1.0) -> str | None:
        """Return what is wrong with results, or None. ``slack`` multiplies the tolerance."""
        for place, (result, dtype) in enumerate(zip(got, self.dtypes, strict=True)):
            if result.dtype != native(dtype):
                return f"result {place} is {result.dtype}, expected {dtype}"
        if self.judged is not None:
            return self._judge(self.judged, got, slack)
        for place, (result, wanted) in enumerate(zip(got, self.results, strict=True)):
            with np.errstate(all="ignore"):
                if self.exact:
                    want = np.asarray(wanted).astype(result.dtype)
                    text = (
                        None if same_bits(result, want) else (difference(result, wanted, 0) or "other zeros")
                    )
                else:
                    text = difference(result, wanted, self.ulps * slack, self.scale, self.zeros)
            if text is not None:
                return text if len(got) == 1 else f"result {place}: {text}"
        return None

    def _judge(self, reference: Reference, got: Sequence[Array], slack: float) -> str | None:
        assert reference.judge is not None
        with np.errstate(all="ignore"):
            pairs = list(reference.judge([wide(x) for x in got], self.operands, self.attrs or {}))
        eps = max([float(np.finfo(x.dtype).eps) for x in got if x.dtype.kind in "fc"], default=0.0)
        for place, (a, b, scale) in enumerate(pairs):
            if np.shape(a) != np.shape(b):
                return f"property {place}: shape {np.shape(a)}, expected {np.shape(b)}"
            error = np.max(np.abs(np.asarray(a) - np.asarray(b)), initial=0.0)
            limit = self.ulps * slack * eps * float(np.max(scale, initial=0.0))
            if not error <= limit:
                return f"property {place} is off by {error:.3g}, allowed are {limit:.3g}"
        return None


def expected(trial: Trial) -> Expected:
    """Return the results of a call, worked out once from the elements that the dtype under test holds."""
    if "expected" not in trial.worked_out:
        trial.worked_out["expected"] = _expected(trial)
    known: Expected = trial.worked_out["expected"]
    return known


def _expected(trial: Trial) -> Expected:
    bound = trial.bind(trial.tensors(HOST), HOST)
    operands = tuple(_elements(x, d) for x, d in zip(bound.operands, bound.plan.computed, strict=True))
    attrs = dict(bound.attrs)
    reference = references().get(trial.op.name)
    if reference is not None and reference.judge is not None:
        return Expected(
            results=(), ulps=reference.ulps, scale=0.0, exact=False, dtypes=bound.outs, judged=reference,
            operands=operands, attrs=attrs,
        )  # fmt: skip
    if reference is None or reference.function is None:
        return _decomposed(trial, bound)
    with np.errstate(all="ignore"):
        as_held = [_held(x, d) for x, d in zip(bound.operands, bound.plan.computed, strict=True)]
        outs = reference.function(*(as_held if reference.own else operands), **attrs)
        scale = 0.0 if reference.scale is None else reference.scale(*operands, **attrs)
        ulps = reference.ulps
        if reference.terms is not None and bound.outs[0].itemsize >= 4:
            ulps += reference.terms(*operands, **attrs) ** 0.5
    results = tuple(outs) if trial.op.results else (outs,)
    return Expected(
        results=results, ulps=ulps, scale=scale, exact=reference.exact, dtypes=bound.outs,
        zeros=reference.zeros,
    )  # fmt: skip


def _elements(x: Any, dtype: DType) -> Any:
    """Return an operand in the dtype that the op computes in, widened."""
    return wide(_held(x, dtype))


def _held(x: Any, dtype: DType) -> Array:
    """Return an operand in the dtype that the op computes in."""
    held = x.numpy() if isinstance(x, Tensor) else np.array(x)
    with np.errstate(all="ignore"):
        return held if held.dtype == native(dtype) else held.astype(native(dtype))


def in_float64(trial: Trial) -> tuple[Array, ...]:
    """Return the results on the host, worked out from the same elements in float64 and complex128."""
    tensors = [asarray(wide(a) if a.dtype.kind in "fcV" else a, device=HOST) for a in trial.arrays]
    return tuple(x.numpy() for x in trial.run(tensors, HOST))


def _decomposed(trial: Trial, bound: Bound) -> Expected:
    if trial.op.decompose is None:
        results = in_float64(trial)
    else:
        operands = [
            asarray(_elements(x, d), device=HOST)
            for x, d in zip(bound.operands, bound.plan.computed, strict=True)
        ]
        outs = trial.op.decompose(*operands, **bound.attrs)
        results = tuple(x.numpy() for x in (outs if trial.op.results else (outs,)))
    return Expected(results=results, ulps=ULPS, scale=1.0, exact=False, dtypes=bound.outs)
