"""What PyTorch 2.13 computes by each name for which core has a hint, and by each row of ``docs/pytorch.md``.

``python tests/core/torch_hints.py`` writes ``torch_hints.json`` where torch is installed: the results of the
left-hand sides below. ``test_torch_hints.py`` runs the hints, and the right-hand sides, against it.
A side is an expression, or statements that end in names: the results are their values. Both see the names of
``SCOPE``, and ``lib``, which is ``torch`` or ``tensorbus``.
"""

from __future__ import annotations

import ast
import json
import pathlib
from typing import Any, Final

import numpy as np

PATH: Final = pathlib.Path(__file__).with_name("torch_hints.json")
_DRAW: Final = np.random.default_rng(0)


def _drawn(*shape: int) -> np.ndarray[Any, Any]:
    return _DRAW.uniform(0.2, 1.8, shape).astype(np.float32)


SCOPE: Final[dict[str, Any]] = {
    "x": _drawn(3, 4), "y": _drawn(3, 4), "a": _drawn(3, 3) + 2 * np.eye(3, dtype=np.float32),
    "b": _drawn(3, 2), "weight": _drawn(4), "bias": _drawn(4), "running_mean": _drawn(4),
    "running_var": _drawn(4), "table": _drawn(5, 2), "indices": np.int64([[4, 0], [1, 1]]),
    "labels": np.float32([[0, 1, 1, 0]] * 3), "signs": np.float32([1, -1, 1]), "cube": _drawn(2, 4, 6),
    "batch": _drawn(2, 4, 5), "images": _drawn(1, 4, 4, 4), "volumes": _drawn(1, 1, 4, 4, 4),
    "square": _drawn(3, 3), "low": 2, "high": 9, "one": np.float32([3.0]), "where": np.array([[True, False]]),
    "data": [[1, 0], [2, 3]], "bins": 5, "start": 1.0, "end": 2.3, "step": 0.3, "p": 3, "n": 2, "axis": 1,
    "i": 0, "j": 1, "shape": (2, 3), "rate": 2.0, "mean": 1.0, "std": 0.5, "concentration": 2.0,
    "pred": True, "operands": (2.0,), "value": 4.0, "half": 0.5,
}  # fmt: skip
"""What hints and rows speak of: arrays are tensors of either library."""

RANDOM: Final = frozenset(
    "bernoulli_ exponential_ random_ Bernoulli Beta Exponential Gamma Normal Poisson Uniform".split()
)
"""Names that draw: shapes are compared, and dtypes but for those that a row of the document tells."""

HINTS: Final[dict[str, str | tuple[str, str]]] = {
    "BoolTensor": "lib.BoolTensor(data)",
    "ByteTensor": "lib.ByteTensor(data)",
    "DoubleTensor": "lib.DoubleTensor(data)",
    "FloatTensor": "lib.FloatTensor(data)",
    "HalfTensor": "lib.HalfTensor(data)",
    "IntTensor": "lib.IntTensor(data)",
    "LongTensor": "lib.LongTensor(data)",
    "batch_norm": "lib.batch_norm(x, weight, bias, running_mean, running_var, False, 0.1, 1e-5, False)",
    "cross": ("x, y = x[:, :3], x[:, 1:]; x, y", "lib.cross(x, y)"),
    "eig": ("x = a; x", "lib.linalg.eig(x).eigenvalues.abs().sum()"),
    "embedding": ("weight = table; weight", "lib.embedding(weight, indices)"),
    "embedding_bag": ("weight = table; weight", "lib.nn.functional.embedding_bag(indices, weight)"),
    "get_float32_matmul_precision": "lib.get_float32_matmul_precision()",
    "histc": "lib.histc(x, bins)",
    "igamma": "lib.igamma(x, y)",
    "igammac": "lib.igammac(x, y)",
    "instance_norm": (
        "x = batch; x",
        "lib.instance_norm(x, weight, bias, running_mean, running_var, True, 0.1, 1e-5, False)",
    ),
    "jit": ("fn = lambda x: x * 2 + 1; x", "fn(x)"),
    "lstsq": "lib.linalg.lstsq(a, b).solution",
    "lu": ("x = a; x", "lib.linalg.lu_factor(x).LU"),
    "lu_solve": "lib.lu_solve(b, *lib.linalg.lu_factor(a))",
    "mvlgamma": ("x = x + 4; x", "lib.mvlgamma(x, p)"),
    "norm": "lib.norm(x, p, axis)",
    "polygamma": "lib.polygamma(n, x)",
    "set_default_tensor_type": ("dtype = lib.float32; x", "lib.zeros(2)"),
    "set_float32_matmul_precision": ("name = 'highest'; x", "lib.get_float32_matmul_precision()"),
    "solve": "lib.linalg.solve(a, b)",
    "clone": "lib.clone(x)",
    "is_nonzero": ("x = one; x", "lib.is_nonzero(x)"),
    "range": "lib.range(start, end, step)",
    "rsub": "lib.rsub(x, y)",
    "svd": "u, s, v = lib.svd(x); s, (u * s) @ v.mH",
    "bernoulli_": "x.bernoulli_(p / 10)",
    "data": "x.data.mul_(2); x",
    "detach_": "x.detach_()",
    "exponential_": "x.exponential_(); x",
    "is_cpu": "x.is_cpu",
    "is_cuda": "x.is_cuda",
    "is_sparse": "x.is_sparse",
    "random_": "x.random_(low, high); x",
    "squeeze_": ("x = x[:, :1]; x", "x.squeeze_(); x"),
    "swapaxes_": "x.swapaxes_(i, j); x",
    "t_": "x.t_(); x",
    "transpose_": "x.transpose_(i, j); x",
    "unsqueeze_": "x.unsqueeze_(axis); x",
    "cholesky_solve": "lib.cholesky_solve(b, lib.linalg.cholesky(a @ a.mT))",
    "matrix_exp": "lib.matrix_exp(square)",
    "matrix_rank": "lib.linalg.matrix_rank(square)",
    "qr": "q, r = lib.qr(square); q @ r",
    "slogdet": "lib.slogdet(a).logabsdet",
    "i0": "lib.i0(x)",
    "adaptive_avg_pool1d": "lib.adaptive_avg_pool1d(cube, 3)",
    "adaptive_max_pool1d": ("x, n = cube, 3; x", "lib.adaptive_max_pool1d(x, n)"),
    "alpha_dropout": "lib.alpha_dropout(x, half, False)",
    "avg_pool1d": "lib.avg_pool1d(cube, 3, 2)",
    "bilinear": "lib.bilinear(x, y, cube[:, :, :4], None)",
    "binary_cross_entropy_with_logits": ("y = labels; y", "lib.binary_cross_entropy_with_logits(x, y)"),
    "celu": "lib.celu(-x, 2.0)",
    "channel_shuffle": "lib.channel_shuffle(images, 2)",
    "cosine_embedding_loss": ("target = signs; x", "lib.cosine_embedding_loss(x, y, target)"),
    "ctc_loss": (
        "x, targets = cube[:, :1].log_softmax(2), indices[1:, 1:] + 1; input_lengths = (2,);"
        " target_lengths = (1,); x",
        "lib.ctc_loss(x, targets, input_lengths, target_lengths)",
    ),
    "feature_alpha_dropout": "lib.feature_alpha_dropout(x, half, False)",
    "group_norm": "lib.group_norm(batch, 2, weight, bias)",
    "hardshrink": "lib.hardshrink(x, 1.0)",
    "hinge_embedding_loss": ("target = signs[:, None]; x", "lib.hinge_embedding_loss(x, target)"),
    "kl_div": ("x, target = x.log(), y; x", "lib.kl_div(x, target)"),
    "margin_ranking_loss": (
        "x, y, target = x[:, 0], y[:, 0], signs; x",
        "lib.margin_ranking_loss(x, y, target)",
    ),
    "max_pool1d": "lib.max_pool1d(cube, 3, 2)",
    "max_pool3d": "lib.max_pool3d(volumes, 2)",
    "pairwise_distance": "lib.pairwise_distance(x, y)",
    "pdist": "lib.pdist(x)",
    "pixel_shuffle": "lib.pixel_shuffle(images, 2)",
    "pixel_unshuffle": "lib.pixel_unshuffle(images, 2)",
    "poisson_nll_loss": ("target = y; x", "lib.poisson_nll_loss(x, target, True, False, 1e-8, 0)"),
    "prelu": "lib.prelu(-x, weight)",
    "rms_norm": "lib.rms_norm(x, (4,), weight)",
    "rrelu": "lib.rrelu(-x, 0.25, 0.25)",
    "selu": "lib.selu(-x)",
    "threshold": "lib.threshold(x, 1.0, 7.0)",
    "triplet_margin_loss": (
        "positive, negative = y, -x; x",
        "lib.triplet_margin_loss(x, positive, negative)",
    ),
    "Bernoulli": "lib.distributions.Bernoulli(half).sample(shape)",
    "Beta": "lib.distributions.Beta(1.0, 2.0).sample(shape)",
    "Exponential": "lib.distributions.Exponential(rate).sample(shape)",
    "Gamma": "lib.distributions.Gamma(concentration, rate).sample(shape)",
    "Normal": "lib.distributions.Normal(mean, std).sample(shape)",
    "Poisson": "lib.distributions.Poisson(x).sample()",
    "Uniform": "lib.distributions.Uniform(1.0, 2.0).sample(shape)",
}
"""What is computed by each name, in PyTorch; before it, statements that set names for both, if any."""

OURS: Final = {
    "lu": "{}.LU", "lu_solve": "LU, permutation = lib.linalg.lu_factor(a); {}", "lstsq": "{}.solution",
    "eig": "{}.eigenvalues.abs().sum()", "jit": "{}(x)", "norm": "{}", "svd": "{}; s, (u * s) @ v.mH",
    "set_default_tensor_type": "{}; lib.zeros(2)", "Poisson": "rate = x; {}",
    "set_float32_matmul_precision": "{}; lib.get_matmul_precision()", "data": "{}.mul_(2); x",
    "bernoulli_": "p = p / 10; {}", "Bernoulli": "p = half; {}", "Beta": "a, b = 1.0, 2.0; {}",
    "Uniform": "low, high = 1.0, 2.0; {}", "Gamma": "{}",
    **dict.fromkeys(("detach_", "squeeze_", "swapaxes_", "t_", "transpose_", "unsqueeze_"), "{}; x"),
}  # fmt: skip
"""How a hint is run where it is no expression of the same value: ``{}`` is the hint."""

ROWS: Final[dict[str, tuple[str, str]]] = {
    "`x.std()`, `x.var()`": ("x.std(), x.var()", "x.std(correction=1), x.var(correction=1)"),
    "`x.max(1)`, `x.min(1)`": (
        "*x.max(1), *x.min(1)",
        "*lib.max_with_indices(x, 1), *lib.min_with_indices(x, 1)",
    ),
    "`std_mean`, `var_mean`": ("*lib.std_mean(x), *lib.var_mean(x)", "*lib.std_mean(x), *lib.var_mean(x)"),
    "`x.sum()`, `x.cumsum(0)` of uint8": (
        "u = (x * 9).to(lib.uint8); u.sum(), u.cumsum(0)",
        "u = (x * 9).to(lib.uint8); u.sum().to(lib.int64), u.cumsum(0).to(lib.int64)",
    ),
    "`x.sort()`": ("x.sort()", "x.sort(), x.argsort()"),
    "`nonzero(x)`": ("lib.nonzero(x > 1)", "lib.argwhere(x > 1)"),
    "`nonzero(x, as_tuple=True)` of no axes": (
        "lib.nonzero(one[0], as_tuple=True)",
        "lib.nonzero(one[0].reshape(1))",
    ),
    "`meshgrid(x, y)`": (
        "lib.meshgrid(weight, bias, indexing='xy')",
        "lib.meshgrid(weight, bias)",
    ),
    "`bernoulli(p)`": ("lib.bernoulli(x * 0)", "lib.bernoulli(x * 0).to(x.dtype)"),
    "`x.median()`": ("x.median(), *x.median(1)", "x.reshape(-1).kthvalue(6).values, *x.kthvalue(2, 1)"),
    "`x.repeat(2)`": (
        "weight.repeat(2), weight.repeat_interleave(2)",
        "lib.tile(weight, (2,)), weight.repeat(2)",
    ),
    "`x.size`": ("x.size(0), x.size(), x.numel()", "x.size(0), x.size(), x.size"),
    "`equal(x, y)`": ("lib.equal(x, x), x == y", "bool(lib.all(lib.equal(x, x))), lib.equal(x, y)"),
    "`x.squeeze(0)`": ("x[:1].squeeze(0), x.squeeze(0)", "x[:1].squeeze(0), x"),
    "`allclose(x, y)`": ("lib.allclose(x, x)", "bool(lib.allclose(x, x))"),
    "`where(condition)`": ("lib.where(x > 1)", "lib.nonzero(x > 1)"),
    "`normal(0.0, 1.0, (3,))`": ("lib.normal(0.0, 1.0, (3,)).shape", "lib.normal((3,), 0.0, 1.0).shape"),
    "`linalg.lu_factor(x)`": (
        "lib.linalg.lu_factor(a).LU, lib.linalg.lu_solve(*lib.linalg.lu_factor(a), b)",
        "lib.linalg.lu_factor(a).LU, lib.linalg.lu_solve(*lib.linalg.lu_factor(a), b)",
    ),
    "`linalg.lstsq(a, b)`": (
        "f = lib.linalg.lstsq(x, b, driver='gelsd'); f.solution, f.rank, f.singular_values",
        "f = lib.linalg.lstsq(x, b, driver='gelsd'); f.solution, f.rank, f.singular_values",
    ),
    "`linalg.pinv(x, hermitian=True)` of what is not Hermitian": (
        "lib.linalg.pinv(a, hermitian=True)",
        "lib.linalg.pinv(a, hermitian=True)",
    ),
    "`cat((x, y))`": ("lib.cat((x, x[:0, 0]), 1)", "lib.cat((x,), 1)"),
    "`gather(x, dim, index)` of no elements": (
        "lib.gather(weight, 0, indices[:0])",
        "lib.zeros((0, 2))",
    ),
    "`tensordot`": (
        "lib.tensordot(x[:, :1], y, dims=((1,), (1,)))",
        "lib.tensordot(lib.broadcast_to(x[:, :1], x.shape), y, axes=((1,), (1,)))",
    ),
    "`batch_norm`": (
        "lib.nn.functional.batch_norm(weight[:0], weight[:0], weight[:0])",
        "weight[:0]",
    ),
    "`linalg.solve(a, b)`": (
        "lib.linalg.solve(lib.stack((a, a, a)), a)",
        "lib.linalg.solve(lib.stack((a, a, a)), a[:, :, None])[:, :, 0]",
    ),
    "gradient of `linalg.svd(full_matrices=True)`": (
        "z = b.requires_grad_(); lib.linalg.svd(z)[0].square().sum().backward(); z.grad",
        "z = b.requires_grad_(); lib.linalg.svd(z, full_matrices=False)[0].square().sum().backward(); z.grad",
    ),
    "gradient of `cholesky_solve` by the factor": (
        "z = a.tril().requires_grad_(); lib.cholesky_solve(b, z).sum().backward(); z.grad.tril()",
        "z = a.tril().requires_grad_(); lib.linalg.cholesky_solve(b, z).sum().backward(); z.grad",
    ),
    "gradient of `cov` by its weights": (
        "z = weight.double().requires_grad_(); lib.cov(x.double(), aweights=z).sum().backward();"
        " z.grad.float()",
        "z = weight.requires_grad_(); lib.cov(x, aweights=z).sum().backward(); z.grad",
    ),
    "gradient of `ctc_loss`": (
        "z = cube.requires_grad_(); lib.nn.functional.ctc_loss(z.log_softmax(2), indices[:1, 1:].repeat(4, 1)"
        " + 1, (2,) * 4, (1,) * 4).backward(); z.grad",
        "z = cube.requires_grad_(); lib.nn.functional.ctc_loss(z.log_softmax(2), lib.tile(indices[:1, 1:],"
        " (4, 1)) + 1, (2,) * 4, (1,) * 4).backward(); z.grad",
    ),
    "gradient of `max_unpool` where indices repeat": (
        "z = weight[None, None, :2].clone().requires_grad_(); lib.nn.functional.max_unpool1d(z,"
        " indices[None, 1:], 2).sum().backward(); z.grad.amax()",
        "z = weight[None, None, :2].clone().requires_grad_(); lib.nn.functional.max_unpool1d(z,"
        " indices[None, 1:], 2).sum().backward(); z.grad.sum()",
    ),
    "gradient of `logcumsumexp` in float32": (
        "z = weight.double().requires_grad_(); lib.logcumsumexp(z, 0).square().sum().backward(); "
        "z.grad.float()",
        "z = weight.requires_grad_(); lib.logcumsumexp(z, 0).square().sum().backward(); z.grad",
    ),
    "`x.T.view(6)`": ("x.T.reshape(12)", "x.T.view(12)"),
}
"""Rows of the first table of the document: the same results, in PyTorch and here."""


def evaluate(lib: Any, code: str, arrays: dict[str, Any]) -> list[Any]:
    """Run statements; return the value of the last one, an expression, as a flat list."""
    *statements, last = ast.parse(code).body
    scope = {"lib": lib, lib.__name__: lib, **arrays}
    exec(compile(ast.Module(statements, []), "statements", "exec"), scope)
    if not isinstance(last, ast.Expr):
        raise ValueError(f"no expression ends {code!r}")
    out = eval(compile(ast.Expression(last.value), "expression", "eval"), scope)
    return list(_flat(out))


def _flat(out: Any) -> Any:
    if isinstance(out, (tuple, list)):
        for part in out:
            yield from _flat(part)
    else:
        yield out


def stored(value: Any) -> dict[str, Any]:
    """Return a tensor, or a value of Python's, as what JSON holds."""
    if not hasattr(value, "detach"):
        return {"value": value}
    actual = value.detach().numpy()
    values = [v if isinstance(v, (int, bool)) else float(f"{v:.7g}") for v in actual.reshape(-1).tolist()]
    return {"dtype": actual.dtype.name, "shape": list(actual.shape), "values": values}


def main() -> None:
    """Write what PyTorch computes."""
    import torch

    results = {}
    for name, entry in {**HINTS, **{row: sides[0] for row, sides in ROWS.items()}}.items():
        arrays = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in SCOPE.items()}
        code = entry if isinstance(entry, str) else "; ".join((entry[0], entry[1]))
        results[name] = [stored(value) for value in evaluate(torch, code, arrays)]
    rows = (f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in results.items())
    PATH.write_text("{" + ",\n".join(rows) + "}\n")


if __name__ == "__main__":
    main()
