"""PyTorch's own samples of its operators, run through tensorbus: ``python tests/ecosystem/opinfo.py``.

A wheel of PyTorch brings, for each operator, the calls that its own tests make (``torch.testing._internal``).
Each is made in PyTorch and here, in float32 on cpu; values, dtypes and gradients are compared. What stands
here maps names and forms of arguments: where a function lies, and which functions here stand for one that
returns two things there. Of `RANDOM` operators, shapes and dtypes are compared. Any other difference is a
failure; operators that have no counterpart are listed at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorbus as tb
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "suite"))

from error_bounds import assert_within, gamma

TERMS, STEEP = 1600, 10
F = tb.nn.functional
ONE = tb.ones((1, 1))


def _sort(x: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> tuple[Any, Any]:
    options = {"axis": dim, "descending": descending, "stable": stable}
    return tb.sort(x, **options), tb.argsort(x, **options)


def _extreme(name: str) -> Callable[..., Any]:
    """Return ``max`` or ``min`` in its three forms: of all, along an axis with indices, of two tensors."""
    values, two = getattr(tb, name), {"max": tb.maximum, "min": tb.minimum}[name]

    def call(x: Any, *args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], tb.Tensor):
            return two(x, *args)
        if not args and not options:
            return values(x)
        return getattr(tb, f"{name}_with_indices")(x, *args, **options)

    return call


def _median(name: str) -> Callable[..., Any]:
    """Return ``median`` of PyTorch: the lower one of two in the middle, with its index along an axis."""

    def call(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        y, axis = (x.reshape(-1), 0) if dim is None else (x, dim)
        count = y.shape[axis] if y.ndim else 1
        result = tb.kthvalue(y, (count + 1) // 2, axis=axis, keepdims=keepdim)
        return result[0] if dim is None else result

    return call


def _spread(name: str) -> Callable[..., Any]:
    """Return ``std`` or ``var``, which divide by n - 1 in PyTorch."""

    def call(x: Any, *args: Any, unbiased: bool | None = None, correction: Any = 1, **options: Any) -> Any:
        args = tuple(args)
        if args and isinstance(args[0], bool):
            unbiased, args = args[0], args[1:]
        if len(args) > 1:
            unbiased, args = args[1], args[:1]
        correction = correction if unbiased is None else int(unbiased)
        return getattr(tb, name)(x, *args, correction=1 if correction is None else correction, **options)

    return call


def _nanmedian(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the lower one of two in the middle of what is no NaN, with its index along an axis."""
    options = {"axis": dim, "keepdims": keepdim, "interpolation": "lower"}
    values = tb.nanquantile(x, 0.5, **options)
    if dim is None:
        return values
    retained = values if keepdim or not x.ndim else tb.expand_dims(values, axis=dim)
    same = (x == retained) | (tb.isnan(x) & tb.isnan(retained))
    return values, tb.argmax(same.to(tb.int8), axis=dim, keepdims=keepdim) if x.ndim else tb.asarray(0)


def _swaps(permutation: Any, count: int) -> Any:
    """Return LAPACK's pivots, rows that were exchanged one after another, of an order of rows."""
    order = np.asarray(permutation)
    pivots = np.empty((*order.shape[:-1], count), np.int32)
    for place in np.ndindex(order.shape[:-1]):
        rows = list(range(order.shape[-1]))
        for i in range(count):
            j = rows.index(order[place][i])
            rows[i], rows[j] = rows[j], rows[i]
            pivots[place][i] = j + 1
    return tb.asarray(pivots)


def _order_of_rows(pivots: Any) -> Any:
    """Return the order of rows that LAPACK's pivots lead to."""
    swaps = np.asarray(pivots)
    order = np.empty(swaps.shape, np.int64)
    for place in np.ndindex(swaps.shape[:-1]):
        rows = list(range(swaps.shape[-1]))
        for i, j in enumerate(swaps[place]):
            rows[i], rows[j - 1] = rows[j - 1], rows[i]
        order[place] = rows
    return tb.asarray(order)


def _lu_factor(x: Any, **options: Any) -> tuple[Any, Any]:
    packed, permutation = tb.linalg.lu_factor(x, **options)
    return packed, _swaps(permutation, min(x.shape[-2:]))


def _lstsq(a: Any, b: Any, *, driver: str = "gelsy", **options: Any) -> tuple[Any, ...]:
    """Return ``lstsq``, without what PyTorch's driver does not compute."""
    solution, residuals, rank, values = tb.linalg.lstsq(a, b, driver=driver, **options)
    none = residuals.reshape(-1)[:0]
    rows, columns = a.shape[-2:]
    whole = rows > columns and driver != "gelsy" and bool((rank == columns).all())
    return (
        solution,
        residuals if whole else none,
        tb.empty((0,), dtype="int64") if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else none,
    )


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _normal(mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Any:
    if size is None:
        shapes = [x.shape for x in (mean, std) if isinstance(x, tb.Tensor)]
        size = tb.broadcast_shapes(*shapes)
    return tb.normal(size, mean, std, **options)


VARIANTS: dict[tuple[str, str], Callable[..., Any]] = {
    ("linalg.lstsq", "grad_oriented"): lambda *args, **options: _lstsq(*args, **options)[:2],
    ("linalg.pinv", "singular"): lambda a, b: tb.linalg.pinv(a @ b.mT),
    ("normal", "in_place"): lambda x, *args, **options: x.clone().normal_(*args, **options),
    ("normal", ""): _normal,
    ("normal", "number_mean"): _normal,
}
"""Variants of operators that are other functions than the operator."""

CALLS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, alpha=1: x + y if alpha == 1 else x + alpha * y,
    "sub": lambda x, y, alpha=1: x - y if alpha == 1 else x - alpha * y,
    "rsub": lambda x, y, alpha=1: y - x if alpha == 1 else y - alpha * x,
    "nanmedian": _nanmedian,
    "linalg.lu_factor": _lu_factor,
    "linalg.lu_solve": lambda packed, pivots, b, **options: tb.linalg.lu_solve(
        packed, _order_of_rows(pivots), b, **options
    ),
    "lu_solve": lambda b, packed, pivots: tb.linalg.lu_solve(packed, _order_of_rows(pivots), b),
    "linalg.lstsq": _lstsq,
    "cross": lambda x, y, dim=None: tb.linalg.cross(x, y, axis=x.shape.index(3) if dim is None else dim),
    "cholesky_solve": tb.linalg.cholesky_solve,
    "matrix_exp": tb.linalg.matrix_exp,
    "qr": lambda x, some=True: tb.linalg.qr(x, mode="reduced" if some else "complete"),
    "i0": tb.special.i0,
    "igamma": tb.special.gammainc,
    "igammac": tb.special.gammaincc,
    "slice": _slice,
    "sort": _sort,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "median": _median("median"),
    "std": _spread("std"),
    "var": _spread("var"),
    "std_mean": _spread("std_mean"),
    "var_mean": _spread("var_mean"),
    "nonzero": lambda x, as_tuple=False: tb.nonzero(x) if as_tuple else tb.argwhere(x),
    "equal": lambda x, y: (
        bool(tb.array_equal(x, y))
        if hasattr(tb, "array_equal")
        else x.shape == y.shape and bool((x == y).all())
    ),
    "allclose": lambda *args, **options: bool(tb.allclose(*args, **options)),
    "repeat": tb.tile,
    "bernoulli": lambda x, p=None, **options: tb.bernoulli(x if p is None else p, x.shape).to(x.dtype),
    "where": lambda x, condition, other: tb.where(condition, x, other),
    "einsum": lambda operands, equation: tb.einsum(equation, *operands),
    "meshgrid": lambda *x, indexing="ij": tb.meshgrid(
        *(x[0] if isinstance(x[0], (list, tuple)) else x), indexing=indexing
    ),
    "nn.functional.embedding": lambda weight, index, **options: F.embedding(index, weight, **options),
    "nn.functional.embedding_bag": lambda weight, index, **options: F.embedding_bag(index, weight, **options),
    "take": lambda x, index: tb.take(x.reshape(-1), index.reshape(-1)).reshape(index.shape),
    "polygamma": lambda x, n: tb.special.polygamma(n, x),
    "special.polygamma": lambda x, n: tb.special.polygamma(n, x),
    "mvlgamma": lambda x, p: tb.special.multigammaln(x, p),
    "atleast_1d": lambda x, *rest: [tb.atleast_1d(one) for one in (x if isinstance(x, list) else (x, *rest))],
    "atleast_2d": lambda x, *rest: [tb.atleast_2d(one) for one in (x if isinstance(x, list) else (x, *rest))],
    "atleast_3d": lambda x, *rest: [tb.atleast_3d(one) for one in (x if isinstance(x, list) else (x, *rest))],
    "broadcast_shapes": lambda *shapes: tb.broadcast_shapes(
        *((s,) if isinstance(s, int) else s for s in shapes)
    ),
    "to": lambda x, *args, **options: x.to(*(a for a in args if isinstance(a, (str, tb.DType)))),
}
"""Operators whose arguments or results have another form here; ``docs/pytorch.md`` says which."""

METHODS = frozenset({"exponential", "uniform", "cauchy", "log_normal", "geometric", "zero_", "fill"})
"""Operators whose samples are calls of an in-place method."""

RANDOM = frozenset(
    {
        "bernoulli", "cauchy", "empty", "empty_like", "exponential", "geometric", "log_normal", "multinomial",
        "new_empty", "normal", "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform",
        "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
        "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
        "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "nn.functional.rrelu",
        "nn.functional.multi_head_attention_forward",
    }
)  # fmt: skip
"""Operators that draw numbers, or leave them undefined."""


class AbsentError(Exception):
    """tensorbus has no function of this name."""


def function(name: str, variant: str = "") -> Callable[..., Any]:
    """Return what stands here for ``torch``'s operator ``name``, or a variant of its tests."""
    if (name, variant) in VARIANTS:
        return VARIANTS[name, variant]
    if name in CALLS:
        return CALLS[name]
    if name in METHODS:
        method = name if name.endswith("_") else f"{name}_"
        if not hasattr(tb.Tensor, method):
            raise AbsentError(name)
        return lambda x, *args, **options: getattr(x.clone(), method)(*args, **options)
    place: Any = tb
    try:
        for part in name.split("."):
            place = getattr(place, part)
        if callable(place):
            return place
        raise AttributeError(name)  # a dtype: the method casts to it
    except AttributeError:
        if not hasattr(ONE, name):
            raise AbsentError(name) from None
    return lambda x, *args, **options: (
        getattr(x, name)(*args, **options) if callable(getattr(ONE, name)) else getattr(x, name)
    )


class Arguments:
    """Arguments of PyTorch as arguments of tensorbus; remembers which tensors take gradients."""

    DTYPES = {
        getattr(torch, name): getattr(tb, name)
        for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
        "complex64 complex128".split()
    }
    IGNORED = (torch.layout, torch.memory_format)
    """Kinds of arguments that say how memory is laid out: there is one way here."""

    def __init__(self) -> None:
        self.leaves: list[tuple[Any, Any]] = []

    def __call__(self, value: Any) -> Any:
        """Return ``value`` with each tensor, dtype and device in it as tensorbus has it."""
        if isinstance(value, torch.Tensor):
            x = tb.asarray(numbers(value), copy=True)
            if value.requires_grad:
                x.requires_grad_()
                self.leaves.append((value, x))
            return x
        if isinstance(value, torch.dtype):
            return self.DTYPES[value]
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, torch.nn.PairwiseDistance):
            return tb.nn.PairwiseDistance(value.norm, value.eps, value.keepdim)
        if type(value).__name__ == "LinearCrossEntropyOptions":
            return tb.nn.LinearCrossEntropyOptions(value.batch_chunk_size, value.chunking_method)
        if isinstance(value, dict):
            return {name: self(one) for name, one in value.items() if not isinstance(one, self.IGNORED)}
        if isinstance(value, (tuple, list)):
            return (list if isinstance(value, list) else tuple)(self(one) for one in value)
        return value


def numbers(value: Any) -> np.ndarray[Any, Any]:
    """Return a tensor of either library, or a number, as an array."""
    if isinstance(value, torch.Tensor):
        wide = value.float() if value.dtype is torch.bfloat16 else value
        return wide.detach().resolve_conj().resolve_neg().numpy(force=True)
    if isinstance(value, tb.Tensor):
        return np.asarray((value.float() if value.dtype is tb.bfloat16 else value).detach())
    return np.asarray(value)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the tensors and numbers of a result, in order."""
    if isinstance(tree, (tuple, list)):
        for one in tree:
            yield from leaves(one)
    elif tree is not None:
        yield tree


def compare(theirs: Any, ours: Any, what: str, values: bool = True) -> None:
    """Raise if two results differ in number, shape, kind of dtype or, with ``values``, in value.

    Sums of up to ``TERMS`` terms in another order differ relative to the largest number of a result, and a
    number itself by ``STEEP`` times as much where a function is steep.
    """
    left, right = list(leaves(theirs)), list(leaves(ours))
    assert len(left) == len(right), f"{what}: {len(right)} results, PyTorch has {len(left)}"
    for a, b in zip(map(numbers, left), map(numbers, right), strict=True):
        assert a.shape == b.shape, f"{what}: shape {b.shape}, PyTorch has {a.shape}"
        assert a.dtype.kind == b.dtype.kind, f"{what}: dtype {b.dtype}, PyTorch has {a.dtype}"
        if values:
            scale = np.abs(a[np.isfinite(a)]).max(initial=1.0) if a.dtype.kind in "fc" else 1.0
            bound = gamma(TERMS, "float32")
            assert_within(b, a, bound * (float(scale) + STEEP * np.abs(a)), what)


def cotangent(result: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return random numbers of the shape and dtype of ``result``, the same at each call."""
    draw = np.random.default_rng(0).standard_normal
    imaginary = 1j * draw(result.shape) if np.iscomplexobj(result) else 0
    return np.asarray(draw(result.shape) + imaginary, result.dtype)


def trial(op: Any, sample: Any) -> None:
    """Make one call in both libraries; raise what is wrong here."""
    here = Arguments()
    args, options = here((sample.input, *sample.args)), here(sample.kwargs)
    random = op.name in RANDOM or options.get("dropout_p", 0) > 0
    last = sample.output_process_fn_grad or (lambda result: result)
    theirs = last(op(sample.input, *sample.args, **sample.kwargs))
    ours = last(function(op.name, op.variant_test_name)(*args, **options))
    compare(theirs, ours, "values", values=not random)
    pairs = [
        (a, b)
        for a, b in zip(leaves(theirs), leaves(ours), strict=True)
        if isinstance(a, torch.Tensor) and a.requires_grad
    ]
    if random or not pairs or not here.leaves:
        return
    seeds = [cotangent(numbers(a)) for a, _ in pairs]
    wanted = torch.autograd.grad(
        [a for a, _ in pairs],
        [x for x, _ in here.leaves],
        [torch.from_numpy(seed.copy()) for seed in seeds],
        allow_unused=True,
    )
    actual = tb.grad(
        [b for _, b in pairs],
        [x for _, x in here.leaves],
        [tb.asarray(seed) for seed in seeds],
        allow_unused=True,
    )
    for i, (a, b) in enumerate(zip(wanted, actual, strict=True)):
        if a is not None or b is not None:
            compare(
                np.zeros_like(numbers(b)) if a is None else a,
                np.zeros_like(numbers(a)) if b is None else b,
                f"gradient {i}",
            )


def run(names: list[str], most: int) -> tuple[Counter[str], dict[str, list[str]], list[str]]:
    """Return how many samples passed and failed, failures by operator, and what is absent."""
    from torch.testing._internal.common_methods_invocations import op_db

    counts: Counter[str] = Counter()
    failures: dict[str, list[str]] = {}
    absent: set[str] = set()
    ops = [
        op for op in op_db if torch.float32 in op.supported_dtypes("cpu") and (not names or op.name in names)
    ]
    for op in track(ops, "operators", console=Console(stderr=True), transient=True):
        try:
            function(op.name, op.variant_test_name)
        except AbsentError:
            absent.add(op.name)
            continue
        samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
        for sample in samples[:: max(1, len(samples) // most)]:
            try:
                trial(op, sample)
                counts["passed"] += 1
            except Exception as error:
                counts["failed"] += 1
                text = f"{sample.summary()} -> {type(error).__name__}: {error}"
                failures.setdefault(op.formatted_name, []).append(" ".join(text.split()))
    return counts, failures, sorted(absent)


def main() -> int:
    """Run the samples of the operators that are named, or of all; show what failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ops", nargs="*", help="names of operators, as PyTorch's op_db has them; none: all")
    parser.add_argument("--most", type=int, default=1 << 30, help="samples of an operator, evenly taken; all")
    parser.add_argument("--output", type=Path, help="where everything is kept, as JSON")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    counts, failures, absent = run(options.ops, options.most)
    table = Table("failed", "operator", "the first")
    for name, texts in sorted(failures.items(), key=lambda item: -len(item[1])):
        table.add_row(str(len(texts)), name, texts[0][:400])
    console = Console()
    if failures:
        console.print(table)
    share = counts["passed"] / max(counts.total(), 1)
    console.print(f"{counts['passed']} of {counts.total()} samples agree: {share:.1%}", highlight=False)
    console.print(f"{len(absent)} operators are not here: {', '.join(absent)}", highlight=False)
    if options.output:
        data = {
            "passed": counts["passed"],
            "failed": counts["failed"],
            "failures": failures,
            "absent": absent,
        }
        options.output.write_text(json.dumps(data, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
