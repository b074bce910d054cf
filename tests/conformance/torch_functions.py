"""Expressions that mean the same here and in PyTorch 2.13, which has computed their values and gradients.

``python tests/conformance/torch_functions.py`` writes ``torch_functions.json`` where torch is installed. The
gradient is that of the sum of the real part of the first inexact result times ``cos(0), cos(1)`` and so on,
in C order.
"""

from __future__ import annotations

import json
import pathlib
import zlib
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
PATH: Final = pathlib.Path(__file__).with_name("torch_functions.json")
SHAPES: Final[dict[str, tuple[int, ...]]] = {
    "x": (3, 4), "y": (3, 4), "row": (4,), "col": (3, 1), "cube": (2, 3, 4), "other": (2, 4, 2), "sq": (3, 3),
    "line": (7,), "s": (), "none": (0, 4), "flat": (6,), "tall": (4, 2), "stack": (2, 3, 3),
}  # fmt: skip
"""Float32 tensors, by name; ``z...`` are complex, ``i...`` small integers, ``b...`` bools of these shapes."""
VALUES: Final[dict[str, Any]] = {
    "nans": np.float32([[1, np.nan, 3, 2], [np.nan] * 4, [0.5, -1, np.nan, 4]]),
    "ends": np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0]),
    "ties": np.float32([2, 2, 1, 3, 1, np.nan]),
    "at": np.int64([2, 0]), "at2": np.int64([[0, 1, 2, 0], [2, 0, 0, 1]]), "one": np.int64(1),
    "runs": np.int64([1, 1, 2, 2, 3, 1, 1, 2]), "rows": np.int64([[2, 1], [1, 9], [2, 1], [2, 0]]),
    "u8": np.uint8([[200, 3], [7, 255]]), "i32": np.int32([5, -7, 3, -2]), "i32b": np.int32([2, 2, -2, -2]),
}  # fmt: skip

EXPRESSIONS: Final = """
select_scatter(x, row, 0, 1)
select_scatter(x, row[:3], 1, -2)
select_scatter(x, row, dim=0, index=-1)
slice_scatter(x, y[:, 1:3], 1, 1, 3)
slice_scatter(x, y[1:], dim=0, start=1)
slice_scatter(x, y[:, ::2], 1, 0, 9, 2)
slice_scatter(x, y[:0], 0, 2, 1)
diagonal_scatter(x, row[:3])
diagonal_scatter(cube, y[:2].T[:2, :2], -1, 1, 2)
select(cube, 1, -1)
narrow(x, 1, 1, 2)
narrow(x, dim=0, start=-2, length=1)
diag_embed(x)
diag_embed(x, offset=-1, dim1=0, dim2=2)
diag_embed(cube, 1, 3, 1)
diagflat(tall, 1)
fmax(nans, x)
fmin(x, nans)
fmax(ties, ties.flip(0))
fmin(s, x)
fmax(i32, i32b)
fmin(bx, by)
maximum(bx, by)
minimum(bx, by)
float_power(i32, 2)
float_power(2, i32)
float_power(x, i32)
nansum(nans)
nansum(nans, dim=1)
nansum(nans, 0, keepdim=True)
nansum(i32)
nanmean(nans)
nanmean(nans[::2], dim=1)
nanmean(nans, (0, 1), keepdim=True)
nanmean(none, dim=0)
nanquantile(nans, 0.3)
nanquantile(nans, 0.3, dim=1)
nanquantile(nans, tensor([0.1, 0.7]), dim=0, keepdim=True)
nanquantile(nans, 0.4, dim=1, interpolation="nearest")
aminmax(x)
aminmax(x, dim=1)
aminmax(x, dim=0, keepdim=True)
aminmax(bx, dim=0)
std(x, 1, unbiased=False)
x.var(unbiased=True)
var_mean(cube, (0, 2), unbiased=False)
std_mean(x)
std_mean(x, dim=1, correction=0)
var_mean(x, dim=(0, 1), keepdim=True)
var_mean(cube, 2)
index_fill(x, 0, at, 5.0)
index_fill(x, 1, at, s)
index_fill(ix, dim=1, index=at, value=7)
masked_scatter(x, bx, cube)
masked_scatter(x, brow, y)
masked_scatter(ix, bx, icube)
trapezoid(x)
trapezoid(x, dx=0.5, dim=0)
trapezoid(x, row)
trapezoid(x, y, dim=0)
trapezoid(i32)
cumulative_trapezoid(i32, dx=0.5)
trapezoid(none, dim=1)
trapezoid(none.T)
cumulative_trapezoid(x)
cumulative_trapezoid(x, col[:, 0], dim=0)
tensor_split(line, 3)
tensor_split(cube, 3, dim=2)
tensor_split(line, (1, 1, 9))
tensor_split(x, (-1, 2), dim=1)
tensor_split(none, 2)
block_diag(x, row, s)
block_diag(ix, ix[0])
block_diag()
hsplit(x, 2)
hsplit(line, (2, 5))
vsplit(x, 3)
dsplit(cube, (1, 3))
cube.hsplit(3)
cartesian_prod(row, line[:2])
cartesian_prod(row)
combinations(row)
combinations(row, 3)
combinations(row, 2, True)
combinations(at, 2, with_replacement=True)
combinations(row, 9)
cdist(x, y)
cdist(x, y, 1.0)
cdist(cube, x, 3.0)
cdist(x, x)
cdist(x, y, inf)
cdist(x, none)
dist(x, y)
dist(x, row, 3)
dist(x, x)
dist(x, y, inf)
logdet(stack @ stack.mT + 2 * eye(3))
logdet(-eye(3))
addmm(x, sq, y, beta=2, alpha=0.5)
addmm(row, x.T, y, beta=0)
addmv(row, tall, line[:2], alpha=3)
addbmm(tall[:3], cube, other)
baddbmm(line[:2], cube, other, beta=-1)
addr(x, col[:, 0], row)
addmm(ix, isq, ix, alpha=2)
addmv(line[:3], x, row, beta=0)
addr(sq, col[:, 0], line[:3], beta=0, alpha=2)
addr(bsq, bsq[0], bsq[1])
addr(bsq, bsq[0], bsq[1], beta=0, alpha=2)
addr(bsq, bsq[1], bsq[2], beta=3, alpha=0)
argwhere(bx)
argwhere(ix)
argwhere(s)
tril_indices(3, 4)
tril_indices(3, 4, -1)
tril_indices(3, 2, 5)
triu_indices(4, 3, 1)
triu_indices(3, 3, -9)
triu_indices(0, 3)
renorm(x, 2, 0, 1.5)
renorm(cube, 1, 1, 0.5)
vander(row.detach())
vander(row.detach(), 3, increasing=True)
vander(i32)
vander(row, 0)
inner(x, y)
inner(cube, row)
inner(x, s)
inner(none, none)
inner(zx, zrow)
diagflat(s)
unique(runs)
unique(rows, dim=0)
unique(rows, dim=1, return_inverse=True, return_counts=True)
unique(runs, return_inverse=True)
unique(bx)
unique_consecutive(runs)
unique_consecutive(runs, return_inverse=True, return_counts=True)
unique_consecutive(rows, dim=0, return_counts=True)
unique_consecutive(none, dim=0)
fft.fft(x, 6, 0)
fft.fftn(cube, s=(3, 2))
fft.fft2(cube, dim=0)
fft.rfft2(cube, dim=(0, 1), norm=None)
fft.irfftn(zcube, (5,), -1, "ortho")
fft.fftshift(x, 1)
roll(x, 1, 0)
roll(x, shifts=(1, 2), dims=(0, 1))
topk(x, 2, 1, False)
argsort(x, 1, True)
diff(x, 1, 0, None, y)
diff(x, 0, 1, y)
softmax(x, 1, dtype=float64)
log_softmax(i32, dim=0, dtype=float32)
round(x, decimals=1)
round(x * 100, decimals=-1)
searchsorted(tensor([-1.0, 0.5]), x, right=True)
bucketize(x, tensor([-1.0, 0.5]), out_int32=True, right=True)
cdist(x, y, 2.0, "donot_use_mm_for_euclid_dist")
logspace(0, 1, 4, 2.0)
linspace(start=0, end=1, steps=5)
arange(start=1, end=7, step=2)
masked_fill(row, bx, 2.0)
masked_scatter(row, bx, y)
repeat_interleave(x, repeats=2, dim=1)
repeat_interleave(row, tensor([1, 0, 2, 1]), output_size=4)
linalg.diagonal(cube, offset=1, dim1=0, dim2=2)
linalg.matrix_norm(cube, "fro", (0, 1), True)
linalg.matrix_norm(cube, 1, (2, 0))
linalg.vector_norm(x, 3, 1, True)
linalg.norm(x, 2, 1, dtype=float64)
linalg.pinv(sq + sq.T, hermitian=True)
linalg.pinv(stack, atol=0.4)
linalg.matrix_rank(sq, hermitian=True)
linalg.lstsq(tall, x.T[:, :2], driver="gels").solution
linalg.lu(sq, pivot=True)
special.multigammaln(x + 4, 3)
nn.functional.pad(cube, (-4, 5), "replicate")
nn.functional.pad(cube, (-1, 2, 2, -1), "replicate")
nn.functional.avg_pool1d(cube, (2,), (), (1,))
nn.functional.avg_pool2d(cube, 2, divisor_override=-2)
nn.functional.multilabel_margin_loss(s, tensor(0))
nn.functional.feature_alpha_dropout(row, 0.5, False)
linalg.matrix_rank(sq)
linalg.matrix_rank(stack, atol=1.2)
linalg.matrix_rank(stack, rtol=0.4)
linalg.matrix_rank(stack, atol=0.1, rtol=0.9)
linalg.eigvalsh(sq, UPLO="U")
linalg.eigvalsh(zsq, "U")
linalg.eigvalsh(zsq)
linalg.eigh(sq, UPLO="U").eigenvalues
argsort(s, dim=-1)
cumsum(s, 0)
cumprod(s, -1)
cummax(s, 0)
logcumsumexp(s, 0)
gather(s, 0, one * 0)
gather(s, 0, at * 0)
gather(row, 0, one)
index_select(s, 0, one * 0)
s.scatter(0, one * 0, s * 2)
s.scatter(dim=0, index=at[1:], src=row[:1])
row.detach().scatter(0, at, line[:2].detach(), reduce="add")
row.detach().scatter(0, at, 3.0, reduce="multiply")
s.scatter_add(0, one * 0, s * 2)
s.scatter_reduce(0, one * 0, s * 2, "prod")
s.index_fill(0, at[:1] * 0, 2.0)
s.index_add(0, one * 0, s * 2)
s.index_copy(0, at[1:], row[:1])
sum(s, 0)
sum(s, -1, keepdim=True)
mean(s, dim=0)
mean(ix, dtype=float64)
mean(x, 1, dtype=float64)
col.tile(2, 3)
row.tile((2,))
any(s, 0)
argmax(s, 0)
std(s, 0, correction=0)
logsumexp(s, 0)
softmax(s, 0)
topk(s, 1, 0)
kthvalue(s, 1, -1)
quantile(s, 0.5, 0)
flip(s, (0,))
cube.flip(0, -1)
s.squeeze(0)
count_nonzero(s, 0)
linalg.vector_norm(s, dim=0)
nansum(s, 0)
aminmax(s, dim=0)
linspace(0, 2 + 4j, 5)
linspace(1j, -1, 3, dtype=complex64)
linspace(1, 2, 1, dtype=complex128)
logical_and(ix, iy)
logical_or(x, nans)
logical_xor(ix, bx)
logical_not(ends)
nn.functional.conv1d(zcube, zsq.reshape(1, 3, 3), padding=1)
nn.functional.conv1d(zcube, zcube * 0.5, zrow[:2], stride=2)
nn.functional.conv1d(icube, isq.reshape(1, 3, 3), irow[:1], padding=1)
nn.functional.conv_transpose1d(zcube, zother[:1].reshape(1, 2, 4).mT[:, :3].transpose(0, 1), stride=2)
nn.functional.conv_transpose1d(icube, icube.transpose(0, 1)[:, :1])
nn.functional.avg_pool2d(icube, 2)
nn.functional.avg_pool2d(icube, 2, padding=1, count_include_pad=False)
nn.functional.max_pool2d(icube, 2)
sigmoid(zx * 3)
rsqrt(zx)
exp2(zx)
sinc(zx)
sinc(zx * 0)
logsumexp(zx, 1)
logsumexp(zcube * 50, (0, 2), keepdim=True)
nn.functional.rms_norm(zx, (4,), zrow, 0.1)
max(bx)
amin(bx, 1)
clamp(bx, by)
cummax(bx, 1)
cummin(bx, 0)
bx.scatter(0, at2, by, reduce="multiply")
bx.scatter(1, at2[:, :3], True, reduce="add")
zeros(3, dtype=bool).scatter_reduce(0, at, brow[:2], "amax")
ones(3, dtype=bool).scatter_reduce(0, at, brow[:2], "amin")
ones(3, dtype=bool).scatter_reduce(0, at, brow[2:], "prod", include_self=False)
nn.functional.gaussian_nll_loss(cube, cube * 0.5, col.exp().expand(2, 3, 1))
nn.functional.gaussian_nll_loss(cube, cube * 0.5, row[None, None].exp().expand(2, 1, 4))
nn.functional.gaussian_nll_loss(x, y, col[:, 0].exp())
linalg.matrix_power(sq, 0)
linalg.matrix_power(stack, 0)
bincount(runs, weights=runs)
bincount(runs, weights=runs * 0.5)
cov(x)
cov(row)
cov(x[:1])
cov(zx)
cov(x, correction=0, fweights=at2[0])
cov(x, aweights=row.detach().abs())
cov(x, fweights=at2[0], aweights=row.detach().abs())
corrcoef(x)
corrcoef(x[:1])
""".strip().splitlines()  # fmt: skip


def array(name: str) -> Array:
    """Return what a name in an expression stands for."""
    if name in VALUES:
        return np.asarray(VALUES[name])
    kind = "f" if name in SHAPES else name[0]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    shape = SHAPES[name if name in SHAPES else name[1:]]
    if kind == "i":
        return np.asarray(rng.integers(-4, 5, shape))
    if kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    parts = rng.uniform(-2, 2, (2, *shape)).astype(np.float32)
    return np.asarray(parts[0] + 1j * parts[1] if kind == "z" else parts[0])


def names(expression: str) -> list[str]:
    """Return the names of arrays in an expression, in order."""
    code = compile(expression, "expression", "eval")
    known = {*SHAPES, *VALUES, *(f"{kind}{name}" for kind in "zib" for name in SHAPES)}
    return [name for name in code.co_names if name in known]


def evaluate(library: Any, expression: str, arrays: dict[str, Any]) -> list[Any]:
    """Return the results of an expression as a flat list."""
    scope = _Scope(library, arrays)
    out = eval(expression, {}, scope)
    return list(out) if isinstance(out, (tuple, list)) else [out]


class _Scope(dict[str, Any]):
    """The arrays by name, and the library's functions."""

    def __init__(self, library: Any, arrays: dict[str, Any]) -> None:
        super().__init__(arrays)
        self.library = library

    def __missing__(self, name: str) -> Any:
        return getattr(self.library, name)


def _stored(x: Any) -> dict[str, Any]:
    actual = x.detach().resolve_conj().numpy()
    flat = actual.reshape(-1)
    pairs = flat.view(flat.real.dtype).tolist() if flat.dtype.kind == "c" else flat.tolist()
    values = [v if isinstance(v, (int, bool)) else float(f"{v:.7g}") for v in pairs]
    return {"dtype": actual.dtype.name, "shape": list(actual.shape), "values": values}


def _computed(expression: str) -> dict[str, Any]:
    import torch

    named = {name: torch.tensor(array(name)) for name in names(expression)}
    leaves = {k: t.requires_grad_() for k, t in named.items() if t.dtype.is_floating_point or t.is_complex()}
    results = evaluate(torch, expression, named)
    answers: dict[str, Any] = {"results": [_stored(r) for r in results]}
    first = next((r for r in results if r.requires_grad), None)
    if first is not None and first.numel():
        real = torch.view_as_real(first)[..., 0] if first.is_complex() else first
        weights = torch.cos(torch.arange(real.numel(), dtype=real.dtype)).reshape(real.shape)
        (real * weights).sum().backward()
        answers["grads"] = {k: _stored(t.grad) for k, t in leaves.items() if t.grad is not None}
    return answers


if __name__ == "__main__":
    rows = (f"{json.dumps(e)}:{json.dumps(_computed(e), separators=(',', ':'))}" for e in EXPRESSIONS)
    PATH.write_text("{" + ",\n".join(rows) + "}\n")
