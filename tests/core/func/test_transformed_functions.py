"""``autograd.Function`` and custom ops inside of transforms, against the same written in tensor functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.autograd import Function
from tensorbus.func import grad, jacfwd, jacrev, jvp, vmap

from error_bounds import assert_alike

RANDOM = np.random.default_rng(5)
X, Y, ROWS = (tb.asarray(RANDOM.normal(size=s), device="cpu") for s in ((4,), (4,), (3, 4)))
ROUNDINGS = 32  # sums of twelve elements, and the ops around them
Pair = Callable[[Tensor, Tensor], Tensor]


class Plain(Function):
    """Two results, one of which is saved."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Any:
        return x * y, tb.exp(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Any:
        x, y, e = ctx.saved_tensors
        return g * y + h * e, g * x


class WithJvp(Plain):
    @staticmethod
    def jvp(ctx: Any, a: Tensor, b: Tensor) -> Any:
        x, y, e = ctx.saved_tensors
        return a * y + x * b, a * e


class WithRule(Plain):
    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, y: Tensor) -> Any:
        assert info.batch_size in (3, 4)
        x, y = (z if dim == 0 else z[None] for z, dim in zip((x, y), in_dims, strict=True))
        return WithRule.apply(x, y), 0


class OneContext(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Any:
        e = tb.exp(x)
        ctx.save_for_backward(x, y, e)
        return x * y, e

    backward = Plain.backward


@pytest.fixture(scope="module")
def op() -> Iterator[Any]:
    @tb.library.custom_op("transformed::pair")
    def pair(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, tb.exp(x)

    pair.register_autograd(Plain.backward, setup_context=Plain.setup_context)

    @pair.register_vmap
    def rule(info: Any, dims: Any, x: Tensor, y: Tensor) -> Any:
        return pair(
            *[
                z if d == 0 else z[None] * tb.ones((info.batch_size, 1))
                for z, d in zip((x, y), dims, strict=True)
            ]
        ), 0

    yield pair
    tb.library.unregister("transformed::pair")


def reference(x: Tensor, y: Tensor) -> Tensor:
    return x * y * tb.exp(x).sum()


def total(f: Pair) -> Pair:
    return lambda a, b: f(a, b).sum()


TRANSFORMS: dict[str, Callable[[Pair], Any]] = {
    "reverse": lambda f: jacrev(f, (0, 1))(X, Y),
    "forward": lambda f: jacfwd(f, (0, 1))(X, Y),
    "reverse twice": lambda f: jacrev(jacrev(f))(X, Y),
    "forward over reverse": lambda f: jacfwd(jacrev(f))(X, Y),
    "reverse over forward": lambda f: jacrev(jacfwd(f))(X, Y),
    "forward twice": lambda f: jacfwd(jacfwd(f))(X, Y),
    "vmap": lambda f: vmap(f, (0, None))(ROWS, Y),
    "gradient of vmap, shared": lambda f: grad(lambda y: vmap(f, (0, None))(ROWS, y).sum())(Y),
    "gradient of vmap": lambda f: grad(lambda r: vmap(f, (0, None))(r, Y).sum())(ROWS),
    "vmap of gradient": lambda f: vmap(grad(total(f), (0, 1)), (0, None))(ROWS, Y),
    "gradient of vmap of gradient": lambda f: grad(lambda y: vmap(grad(total(f)), (0, None))(ROWS, y).sum())(
        Y
    ),
    "jvp of vmap": lambda f: jvp(lambda y: vmap(f, (0, None))(ROWS, y), (Y,), (X,))[1],
    "vmap of jvp": lambda f: vmap(lambda r: jvp(f, (r, Y), (Y, r))[1])(ROWS),
    "jvp of vmap of gradient": lambda f: jvp(lambda y: vmap(grad(total(f)), (0, None))(ROWS, y), (Y,), (X,))[
        1
    ],
    "compiled": lambda f: tb.compile(vmap(grad(total(f)), (0, None)))(ROWS, Y),
}


def flat(tree: Any) -> list[Tensor]:
    return [x for part in tree for x in flat(part)] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize("kind", ["Plain", "WithJvp", "WithRule", "OneContext", "op", "op with jvp"])
def test_transforms(kind: str, op: Any) -> None:
    if kind == "op with jvp":
        op.register_jvp(WithJvp.jvp)
    run = op if kind.startswith("op") else globals()[kind].apply

    def function(x: Tensor, y: Tensor) -> Tensor:
        first, second = run(x, y)
        return first * second.sum()

    for name, transform in TRANSFORMS.items():
        for got, wanted in zip(flat(transform(function)), flat(transform(reference)), strict=True):
            assert_alike(got, wanted, ROUNDINGS, message=name)


class Hidden(Function):
    """What is saved is neither an argument nor a result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        e = tb.exp(x)
        ctx.save_for_backward(e)
        return e * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * 2 * ctx.saved_tensors[0]


def test_what_transforms_refuse() -> None:
    assert_alike(jvp(Hidden.apply, (X,), (Y,))[1], 2 * tb.exp(X) * Y, ROUNDINGS)
    with pytest.raises(tb.AutogradError, match="Hidden: forward saved what is neither an argument"):
        jacfwd(grad(lambda x: Hidden.apply(x).sum()))(X)
    both = type("Both", (WithRule,), {"generate_vmap_rule": True})
    with pytest.raises(tb.AutogradError, match="Both: it has a vmap, and generate_vmap_rule"):
        vmap(both.apply)(ROWS, ROWS)
    wrong = type("Wrong", (Plain,), {"vmap": staticmethod(lambda info, dims, x, y: x)})
    with pytest.raises(tb.ArgumentError, match=r"Wrong.vmap returns \(output, out_dims\), got Tensor"):
        vmap(wrong.apply)(ROWS, ROWS)
    fewer = type("Fewer", (Plain,), {"jvp": staticmethod(lambda ctx, a, b: a)})
    with pytest.raises(tb.AutogradError, match=r"Fewer.jvp returned 1 tangent\(s\); one for each of the 2"):
        jvp(fewer.apply, (X, Y), (X, Y))


def test_ops_without_a_derivative() -> None:
    @tb.library.custom_op("transformed::opaque")
    def opaque(x: Tensor) -> Tensor:
        return x * 2

    with pytest.raises(tb.AutogradError, match="transformed::opaque: this op has no derivative"):
        jvp(opaque, (X,), (Y,))
    with pytest.warns(tb.func.LoopWarning, match="transformed::opaque has no batching rule"):
        vmap(opaque)(ROWS)
    vmap(opaque)(ROWS)
    with pytest.raises(tb.ArgumentError, match="register_jvp takes a function, got 3"):
        opaque.register_jvp(3)
    opaque.register_jvp(lambda ctx, t: t * 2)
    assert jvp(opaque, (X,), (Y,))[1].tolist() == (Y * 2).tolist()
    tb.library.unregister("transformed::opaque")
