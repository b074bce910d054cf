"""Repeated, transposed, split and multiplied tensors on every device, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from agreement import check, same

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7
M = X[0]
Call = Callable[[str], Any]


def t(a: Any, device: str) -> tb.Tensor:
    return tb.asarray(a, device=device)


CASES: dict[str, tuple[Call, Any]] = {
    "expand_dims twice": (lambda d: tb.expand_dims(t(M, d), (0, -1)), np.expand_dims(M, (0, -1))),
    "expand_dims of nothing": (lambda d: tb.expand_dims(t(M, d), ()), M),
    "squeeze": (lambda d: tb.squeeze(t(M[:1, None], d), (0, 1)), M[0]),
    "squeeze all": (lambda d: t(M[:, None, :, None], d).squeeze(), M),
    "squeeze to a number": (lambda d: tb.squeeze(t(M[:1, :1], d)), M[0, 0]),
    "moveaxis of two": (lambda d: tb.moveaxis(t(X, d), (0, 2), (-1, 0)), np.moveaxis(X, (0, 2), (-1, 0))),
    "permute_dims from behind": (lambda d: tb.permute_dims(t(X, d), (-1, 0, -2)), np.transpose(X, (2, 0, 1))),
    "reshape without a copy": (lambda d: tb.reshape(t(X, d), (4, -1), copy=False), X.reshape(4, 6)),
    "repeat": (lambda d: tb.repeat(t(X, d), 2), np.repeat(X, 2)),
    "repeat along an axis": (lambda d: tb.repeat(t(X, d), 3, axis=-1), np.repeat(X, 3, -1)),
    "repeat by a tensor": (
        lambda d: tb.repeat(t(X, d), t(np.array([2, 0, 1]), d), axis=1), np.repeat(X, [2, 0, 1], 1),
    ),
    "repeat by a list": (lambda d: tb.repeat(t(M, d), [0, 0, 5], axis=0), np.repeat(M, [0, 0, 5], 0)),
    "repeat by one": (lambda d: tb.repeat(t(M, d), t(np.array([2]), d)), np.repeat(M, 2)),
    "repeat nothing": (lambda d: tb.repeat(t(M[:0], d), t(np.zeros(0, int), d), axis=0), M[:0]),
    "repeat_interleave": (lambda d: tb.repeat_interleave(t(M, d), 2, 1), np.repeat(M, 2, 1)),
    "roll": (lambda d: tb.roll(t(X, d), -5), np.roll(X, -5)),
    "roll two axes": (lambda d: tb.roll(t(X, d), (1, 6), axis=(2, 0)), np.roll(X, (1, 6), (2, 0))),
    "roll by one": (lambda d: tb.roll(t(X, d), 2, axis=(1, 2)), np.roll(X, 2, (1, 2))),
    "roll nothing": (lambda d: tb.roll(t(X[:0], d), 1, axis=0), X[:0]),
    **{
        f"rot90 {k}": (lambda d, k=k: tb.rot90(t(X, d), k, (1, 2)), np.rot90(X, k, (1, 2)))
        for k in range(-2, 6)
    },
    "tile": (lambda d: tb.tile(t(M, d), (2, 1, 3)), np.tile(M, (2, 1, 3))),
    "tile few": (lambda d: tb.tile(t(X, d), (2,)), np.tile(X, (2,))),
    "tile none": (lambda d: tb.tile(t(M, d), (0, 1)), np.tile(M, (0, 1))),
    "unstack": (lambda d: tb.unstack(t(X, d), axis=1)[2], X[:, 2]),
    "split": (lambda d: tb.split(t(X, d), 3, axis=2)[1], X[:, :, 3:]),
    "split of lengths": (lambda d: tb.split(t(X, d), (1, 0, 2), axis=1)[2], X[:, 1:]),
    "chunk": (lambda d: tb.chunk(t(X, d), 3, axis=-1)[1], X[..., 2:]),
    "swapaxes": (lambda d: tb.swapaxes(t(X, d), 0, -1), np.swapaxes(X, 0, -1)),
    "unfold": (
        lambda d: tb.unfold(t(X, d), 1, 2, 1), np.lib.stride_tricks.sliding_window_view(X, 2, axis=1),
    ),
    "diagonal": (lambda d: tb.diagonal(t(X, d), 1, 0, 2), np.diagonal(X, 1, 0, 2)),
    "diagonal below": (lambda d: tb.diagonal(t(X, d), -1, -2, -1), np.diagonal(X, -1, 1, 2)),
    "diagonal beyond": (lambda d: tb.diagonal(t(M, d), 9), np.diagonal(M, 9)),
    "diagonal beyond what is counted": (lambda d: tb.diagonal(t(M, d), -(10**30)), np.diagonal(M, 9)),
    "diagonal of nothing": (lambda d: tb.diagonal(t(M[:0], d)), np.diagonal(M[:0])),
    "trace": (lambda d: tb.trace(t(M, d), -1), np.array(np.trace(M, -1))),
    "diag of a line": (lambda d: tb.diag(t(M[0], d), -2), np.diag(M[0], -2)),
    "diag of a matrix": (lambda d: tb.diag(t(M, d), 2), np.diag(M, 2)),
    "diag_embed": (
        lambda d: tb.diag_embed(t(M[:2, :2] > -7, d)),
        np.stack([np.diag(r) for r in M[:2, :2] > -7]),
    ),
    "outer": (lambda d: tb.outer(t(M[0], d), t(M[:, 1], d)), np.outer(M[0], M[:, 1])),
    "kron": (lambda d: tb.kron(t(X, d), t(M, d)), np.kron(X, M)),
    "cov": (lambda d: tb.cov(t(X[1] ** 2, d)), np.cov(X[1] ** 2)),
    "cov of a line": (lambda d: tb.cov(t(M[0], d), correction=0), np.cov(M[0], ddof=0)),
    "corrcoef": (lambda d: tb.corrcoef(t(X[1] * [1, 2, -1, 3], d)), np.corrcoef(X[1] * [1, 2, -1, 3])),
    **{
        f"{name} of {ranks}": (
            lambda d, name=name, xs=xs: getattr(tb, name)([t(x, d) for x in xs]), getattr(np, name)(xs),
        )
        for name in ("vstack", "hstack", "dstack", "column_stack")
        for ranks, xs in {
            "numbers": (M[0, 0], M[0, 1]), "a line": (M[0],), "lines": (M[0], M[1], M[0]),
            "matrices": (M, M + 1), "three axes": (X, X * 2), "rows of one tensor": X,
        }.items()
    },
    **{
        f"{name} of {x.shape}": (lambda d, name=name, x=x: getattr(tb, name)(t(x, d)), getattr(np, name)(x))
        for name in ("atleast_1d", "atleast_2d", "atleast_3d")
        for x in (M[0, 0], M[0], M, X)
    },
    "vstack of a line and a matrix": (lambda d: tb.vstack((t(M[0], d), t(M, d))), np.vstack((M[0], M))),
    "column_stack of both": (
        lambda d: tb.column_stack((t(M[:, 0], d), t(M, d))), np.column_stack((M[:, 0], M)),
    ),
    "hstack of two dtypes": (lambda d: tb.hstack((t([1, 2], d), t(M[0], d))), np.hstack(([1, 2], M[0]))),
    "stack": (lambda d: tb.stack([t(M, d), t(M, d)], axis=-2), np.stack([M, M], -2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(device: str, name: str) -> None:
    call, expected = CASES[name]
    actual = call(device)
    assert str(actual.device) == f"{device}:0"
    check(actual.numpy(), np.asarray(expected, np.float64 if expected.dtype.kind == "f" else None), 16)


def test_parts_are_all_there(device: str) -> None:
    x = t(X, device)
    for parts in (tb.unstack(x, axis=-1), tb.split(x, 1, 2), tb.chunk(x, 4, 2)):
        assert isinstance(parts, tuple)
        joined = tb.concat([p.reshape(2, 3, 1) for p in parts], axis=2)
        assert same(joined.numpy(), X)
    assert [len(p) for p in tb.split(tb.arange(0, device=device), 2)] == [0]
    assert len(tb.chunk(tb.arange(5, device=device), 4)) == 3


EQUATIONS: dict[str, tuple[tuple[int, ...], ...]] = {
    "ij,jk->ik": ((2, 3), (3, 4)), "ij,jk": ((2, 3), (3, 4)), "bij,bjk->bik": ((2, 3, 1), (2, 1, 4)),
    "ba": ((2, 3),), "ij->": ((2, 3),), "ii": ((3, 3),), "ii->i": ((3, 3),), "iij->ji": ((2, 2, 3),),
    "...ii->...i": ((2, 3, 3),), "i,j->ji": ((2,), (3,)), "i,i": ((4,), (4,)),
    "...ij,...jk": ((5, 1, 2, 3), (4, 3, 2)),
    "a...,b...->ab...": ((2, 4), (3, 4)), "ij,jk,kl->il": ((2, 3), (3, 4), (4, 2)),
    "ij,ik,il->jkl": ((2, 3), (2, 4), (2, 2)), "ijk,jil->kl": ((2, 3, 4), (3, 2, 2)),
    "ij,ij->ij": ((2, 3), (2, 3)), "ij,kj->ik": ((2, 1), (4, 3)), ",ij->ij": ((), (2, 3)),
    "...,...": ((2, 3), (3,)), "iji,j->i": ((2, 3, 2), (3,)), "ab , bc -> c a": ((2, 3), (3, 4)),
    "ij,jk->ki": ((0, 3), (3, 2)), "ij,jk->i": ((2, 0), (0, 2)),
    "abc,cd,def->abef": ((2, 2, 3), (3, 2), (2, 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_einsum(device: str, equation: str, dtype: str) -> None:
    draw = np.random.default_rng(len(equation))
    arrays = [draw.integers(-4, 5, shape).astype(dtype) for shape in EQUATIONS[equation]]
    expected = np.einsum(equation, *arrays)
    actual = tb.einsum(equation, *(t(a, device) for a in arrays))
    assert actual.dtype.name == dtype
    assert actual.shape == np.shape(expected)
    assert np.array_equal(actual.numpy(), expected)


BAD: dict[str, tuple[Call, type[Exception], str]] = {
    "a new axis too far": (lambda d: tb.expand_dims(t(M, d), 3), tb.AxisError, "axis 3 is out of range"),
    "a new axis twice": (lambda d: tb.expand_dims(t(M, d), (0, -4)), tb.ShapeError, "names an axis twice"),
    "an axis that is long": (lambda d: tb.squeeze(t(M, d), 0), tb.ShapeError, "does not have length 1"),
    "axes that do not pair up": (
        lambda d: tb.moveaxis(t(X, d), (0, 1), 2), tb.ShapeError, "must pair up",
    ),
    "an axis moved twice": (lambda d: tb.moveaxis(t(X, d), (0, 0), (1, 2)), tb.ShapeError, "named once"),
    "an axis of no number": (lambda d: t(M, d).squeeze("rows"), tb.ShapeError, "an axis is an integer"),
    "a column of nothing": (lambda d: tb.column_stack([]), tb.ShapeError, "column_stack: needs at least one"),
    "rows of other lengths": (
        lambda d: tb.vstack((t(M, d), t(M.T, d))), tb.ShapeError, "must agree except along axis 0",
    ),
    "a stack of nothing": (lambda d: tb.stack([]), tb.ShapeError, "at least one tensor"),
    "repeat below zero": (lambda d: tb.repeat(t(M, d), -1), tb.ArgumentError, "must be >= 0"),
    "repeat by a tensor below zero": (
        lambda d: tb.repeat(t(M, d), t(np.array([1, -1, 0]), d), axis=0), tb.ArgumentError, "must be >= 0",
    ),
    "repeat by too few": (
        lambda d: tb.repeat(t(M, d), t(np.array([1, 2]), d), axis=0), tb.ShapeError, "one for each of 3",
    ),
    "repeat by floats": (
        lambda d: tb.repeat(t(M, d), t(M[:, 0], d), axis=0), tb.DtypeError, "must be integers",
    ),
    "shifts without axes": (
        lambda d: tb.roll(t(M, d), (1, 2), axis=0), tb.ShapeError, r"2 shift\(s\) were given for 1 axes",
    ),
    "one axis for a turn": (lambda d: tb.rot90(t(M, d), 1, (0, -2)), tb.ShapeError, "must differ"),
    "tiles below zero": (lambda d: tb.tile(t(M, d), (-1,)), tb.ArgumentError, "must be >= 0"),
    "parts of nothing": (lambda d: tb.split(t(M, d), 0), tb.ArgumentError, "at least 1"),
    "parts that do not add up": (lambda d: tb.split(t(M, d), (1, 1)), tb.ArgumentError, "must add up to 3"),
    "no parts": (lambda d: tb.chunk(t(M, d), 0), tb.ArgumentError, "chunk: from 1 to [0-9]* parts"),
    "a window too large": (lambda d: tb.unfold(t(M, d), 0, 4, 1), tb.ShapeError, "larger than shape"),
    "a diagonal of one axis": (lambda d: tb.diagonal(t(M, d), 0, 1, -1), tb.ShapeError, "must differ"),
    "a diagonal of a line": (lambda d: tb.diagonal(t(M[0], d)), tb.AxisError, "axis 1 is out of range"),
    "diag of three": (lambda d: tb.diag(t(X, d)), tb.ShapeError, "1 or 2 dimensions"),
    "outer of matrices": (lambda d: tb.outer(t(M, d), t(M, d)), tb.ShapeError, "need 1 dimension"),
    "einsum of too few": (lambda d: tb.einsum("ij,jk", t(M, d)), tb.ArgumentError, "names 2 operand"),
    "einsum of a sign": (lambda d: tb.einsum("i+j", t(M, d)), tb.ArgumentError, "letters and one"),
    "einsum of too many axes": (lambda d: tb.einsum("ijk", t(M, d)), tb.ShapeError, "does not fit"),
    "einsum of another rank": (lambda d: tb.einsum("i", t(M, d)), tb.ShapeError, "does not fit"),
    "einsum to an unknown axis": (lambda d: tb.einsum("ij->ik", t(M, d)), tb.ArgumentError, "each axis once"),
    "einsum to an axis twice": (lambda d: tb.einsum("ij->ii", t(M, d)), tb.ArgumentError, "each axis once"),
    "einsum of two lengths": (
        lambda d: tb.einsum("ij,ij", t(M, d), t(M.T, d)), tb.ShapeError, "the lengths 3 and 4",
    ),
    "einsum of no square": (lambda d: tb.einsum("ii", t(M, d)), tb.ShapeError, "lengths 3 and 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(device: str, name: str) -> None:
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call(device)
