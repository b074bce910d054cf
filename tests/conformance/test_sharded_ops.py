"""Every op, in every placement of its operands: the values and gradients of the same op on one device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.ops.definition import Op, table
from tensorbus.ops.lazy_families import load_all
from tensorbus.testing.sample import Fill, Sample, samples_of
from tensorbus_conformance.arrays import make

from error_bounds import assert_alike

load_all()
OPS = [op for op in table if table.owner(op.name) == "tensorbus" and op.operands and samples_of(op)]
MESHES = {"two": (2,), "four": (4,), "square": (2, 2)}
FAST = {"add", "where", "cast", "sum", "max", "mean", "matmul", "reshape", "gather", "softmax"}
"""One op or two of each family that has a rule of its own; all others run in the full tier."""
MAX_CASES = 24
"""Placements of the operands of a sample call that are tried at most, evenly spread over all there are."""

ROUNDINGS = 2**8
"""The sums of a sample call, of its gradients and over the ranks are shorter."""


def _dtype_of(op: Op[...], sample: Sample) -> Any:
    allowed = [d for d in op.dtypes if sample.dtypes is None or d in sample.dtypes]
    return next((d for d in (tb.float32, tb.int64, tb.bool, tb.complex64, *allowed) if d in allowed), None)


def _calls(op: Op[...]) -> Iterator[tuple[Sample, Any]]:
    for sample in samples_of(op):
        dtype = _dtype_of(op, sample)
        if sample.raises is None and not sample.large and dtype is not None:
            yield sample, dtype


def _filled(tree: Any, replace: Callable[[Any], Any]) -> Any:
    if isinstance(tree, (tuple, list)):
        return type(tree)(_filled(x, replace) for x in tree)
    return replace(tree)


def _arrays(sample: Sample, dtype: Any) -> list[Any]:
    arrays: list[Any] = []

    def collect(x: Any) -> Any:
        if isinstance(x, Fill):
            arrays.append(make(x, x.dtype or dtype, f"sharded{len(arrays)}"))
        return x

    _filled(sample.args, collect)
    return arrays


def _run(op: Op[...], sample: Sample, dtype: Any, tensors: list[Any], slopes: bool) -> list[Any]:
    """Return the results of a call, and the gradients of a sum that weighs their elements differently."""
    cells = [t.requires_grad_() if slopes and t.dtype.is_floating else t for t in tensors]
    following = iter(cells)
    args = _filled(sample.args, lambda x: next(following) if isinstance(x, Fill) else x)
    kwargs = {k: dtype if v is ... else v for k, v in sample.kwargs.items()}
    out = op(*args, **kwargs)
    outs = list(out) if op.results else [out]
    numbers = [x.detach() for x in outs]
    recorded = [x for x in outs if x.requires_grad]
    if recorded:
        total = 0.0
        for x in recorded:
            real = x.real if x.dtype.is_complex else x
            weights = tb.arange(max(math.prod(x.shape), 1), device=x.device, dtype=real.dtype) * 0.1 + 0.3
            total = total + (real * weights[: math.prod(x.shape)].reshape(x.shape)).sum()
        grads = tb.grad(total, [c for c in cells if c.requires_grad], allow_unused=True)
        numbers += [g for g in grads if g is not None]
    return numbers


def _choices(arrays: list[Any], mesh: tuple[int, ...]) -> list[tuple[Any, ...]]:
    """Return placements for each operand along each dimension of a mesh, of which some are left out."""
    each = []
    # Of what is multiplied by infinity, terms that are 0 give NaN: a sum of terms is not the whole there.
    finite = all(np.isfinite(a).all() for a in arrays if a.dtype.kind in "fc")
    for array in arrays:
        one: list[Any] = [dist.Replicate(), *map(dist.Shard, range(array.ndim))]
        if finite and array.dtype.kind in "fci":
            one.append(dist.Partial())
        each.append([*itertools.product(one, repeat=len(mesh))])
        if len(mesh) == 2:
            each[-1][1:1] = [(dist.StridedShard(axis), dist.Shard(axis)) for axis in range(array.ndim)]
    every = [*itertools.islice(itertools.product(*each), 4096)]
    return every[:: -(-len(every) // MAX_CASES)]


def _size(arrays: list[Any]) -> float:
    """Return the largest finite magnitude of any element, one at least."""
    magnitudes = [np.abs(x[np.isfinite(x)]).astype("f8") for x in arrays if x.dtype.kind in "fciu"]
    return max((float(x.max(initial=1.0)) for x in magnitudes), default=1.0)


def _check(op: Op[...], mesh: tuple[int, ...]) -> None:
    calls = [(sample, dtype, _arrays(sample, dtype)) for sample, dtype in _calls(op)]

    def expect(sample: Sample, dtype: Any, arrays: list[Any]) -> tuple[bool, list[Any]]:
        tensors = [tb.asarray(a, device="cpu") for a in arrays]
        slopes = sample.smooth and op.smooth and (op.vjp is not None or op.decompose is not None)
        try:
            return slopes, _run(op, sample, dtype, tensors, slopes)
        except tb.errors.AutogradError:
            return False, _run(op, sample, dtype, [tb.asarray(a, device="cpu") for a in arrays], False)

    expected = [expect(*call) for call in calls]

    def rank() -> list[str]:
        on = dist.init_device_mesh("cpu", mesh)
        wrong = []
        for (sample, dtype, arrays), (slopes, numbers) in zip(calls, expected, strict=True):
            for places in _choices(arrays, mesh):
                where = f"{op.name} {sample.args} {dict(sample.kwargs)} {places}"
                tensors = []
                for array, place in zip(arrays, places, strict=True):
                    whole = dist.distribute_tensor(tb.asarray(array, device="cpu"), on)
                    tensors.append(whole.redistribute(place).detach())
                try:
                    results = _run(op, sample, dtype, tensors, slopes)
                    results = [r.full_tensor().numpy() for r in results]
                except Exception as error:  # all ranks raise the same: told of, with the placements
                    wrong.append(f"{where}: {type(error).__name__}: {error}")
                    continue
                size = _size([*arrays, *(x.numpy() for x in numbers)])
                for k, (result, number) in enumerate(zip(results, numbers, strict=True)):
                    known = number.numpy()
                    try:
                        assert_alike(result, known, ROUNDINGS, size=size)
                    except AssertionError as error:
                        wrong.append(f"{where}: result {k} is {result.tolist()}: {error}")
        return wrong

    wrong = dist.run_ranks(rank, math.prod(mesh), timeout=60)[0]
    assert not wrong, f"{len(wrong)} calls:\n" + "\n".join(wrong[:10])


NOT_HERE = {
    "full": "has no operands; on a mesh its result is whole on each rank",
    "iota": "has no operands; on a mesh its result is whole on each rank",
    "transfer": "brings tensors to other devices, and no op of a mesh has two",
}


def test_no_op_is_left_out() -> None:
    left = {op.name for op in table if table.owner(op.name) == "tensorbus"}
    left -= {op.name for op in OPS if any(True for _ in _calls(op))}
    assert left == {*NOT_HERE}
    without_rule = [op.name for op in OPS if op.shard is None and op.decompose is None]
    assert not without_rule, "these run on the whole of their operands"


@pytest.mark.parametrize("op", [op for op in OPS if op.name in FAST], ids=lambda op: op.name)
def test_an_op_on_two_ranks(op: Op[...]) -> None:
    _check(op, MESHES["two"])


@pytest.mark.full
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_on_every_mesh(op: Op[...], mesh: str) -> None:
    _check(op, MESHES[mesh])
