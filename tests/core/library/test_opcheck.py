"""``opcheck``: each way in which an op may say what is not so."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from tensorbus import Tensor, library


def undeclared(x: Tensor) -> Tensor:
    x += 1
    return x * 2


def memory(x: Tensor) -> Tensor:
    array = x._value
    array[0] = 7.0
    return x * 2


def view(x: Tensor) -> Tensor:
    return x[:]


def plain(x: Tensor) -> Tensor:
    return x * 2


def twofold(x: Tensor) -> tuple[Tensor, Tensor]:
    result = x * 2
    return result, result


def overlapping(x: Tensor) -> list[Tensor]:
    result = x * 2
    return [result[1:], result[:2]]


def cube(x: Tensor) -> Tensor:
    return x * x * x


def frozen(ctx: Any, g: Tensor) -> Tensor:
    """Return the gradient of ``cube`` as a number that does not depend on its argument."""
    return g * 3 * ctx.saved_tensors[0].detach() ** 2


def save_x(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


STATE = {"turn": 0}


def unsteady(x: Tensor) -> Tensor:
    STATE["turn"] += 1
    return x * STATE["turn"]


@pytest.mark.parametrize(
    ("function", "rules", "message"),
    [
        (undeclared, {}, "schema: the kernel mutates x, which mutates_args does not name"),
        (memory, {}, "schema: the kernel writes into the memory of x"),
        (view, {}, "schema: result 0 is x or a view of it"),
        (twofold, {}, "schema: result 1 is result 0 or shares its memory"),
        (overlapping, {"register_fake": lambda x: [x[1:], x[:2]]}, "schema: result 1 is result 0 or shares"),
        (plain, {"register_fake": lambda x: (x.shape, tb.int32)}, "fake: .*int32"),
        (plain, {"register_fake": lambda x: (x.shape[1:], x.dtype)}, "fake: .*rule says float64"),
        (plain, {"register_fake": lambda x: ((2, 3), x.dtype)}, "fake: .*twice as long"),
        (plain, {"register_fake": lambda x: tb.empty(x.shape, device="meta")}, "the fake says meta"),
        (plain, {"register_autograd": lambda ctx, g: g * 3}, "gradients: "),
        (cube, {"register_autograd": frozen}, "gradients: differentiated twice, .* where differ"),
        (plain, {"register_jvp": lambda ctx, t: t * 3}, "gradients: the forward derivative of result 0"),
        (plain, {"register_vmap": lambda info, dims, x: (x * 3, 0)}, "batching: result 0 of vmap over x"),
        (unsteady, {"register_fake": lambda x: x}, "compile: result 0 of the second call|compile: result 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(function: Any, rules: dict[str, Any], message: str) -> None:
    op = library.custom_op("t::checked", function)
    for method, rule in rules.items():
        getattr(op, method)(rule, **({"setup_context": save_x} if rule is frozen else {}))
    x = tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=tb.float64, device="cpu")
    with pytest.raises(library.OpCheckError, match=message):
        library.opcheck(op, (x,))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            lambda x: (x * 1, x * 2),
            r"the function returned \(Tensor, Tensor\), where the annotation says one",
        ),
        (lambda x: 3, "the function returned int, where the annotation says one tensor"),
    ],
)
def test_results_that_are_not_those_annotated(result: Any, message: str) -> None:
    def plain(x: Tensor) -> Tensor:
        returned: Tensor = result(x)
        return returned

    with pytest.raises(tb.ArgumentError, match=message):
        library.custom_op("t::checked", plain)(tb.ones(2))


def test_what_cannot_be_tested_is_told_with_the_reason() -> None:
    op = library.custom_op("t::checked", plain)
    assert library.opcheck("t::checked", (tb.ones(2),))["gradients"] == "skipped: no derivative is registered"
    op.register_autograd(lambda ctx, g: g * 2)
    assert "no argument is floating" in library.opcheck(op, (tb.arange(2),))["gradients"]
    op.register_fake(lambda x: x)
    with pytest.raises(tb.ArgumentError, match=r"missing a required argument: 'x'.*t::checked\(x: Tensor\)"):
        library.opcheck(op, ())
    with pytest.raises(tb.ArgumentError, match="a custom op is needed"):
        library.opcheck(tb.add, (1,))


def test_what_a_kernel_refuses_is_told() -> None:
    @library.custom_op("t::three")
    def three(x: tb.Tensor) -> tb.Tensor:
        if x.shape != (3,):
            raise ValueError(f"three elements, not {x.shape}")
        return x * 2

    message = library.opcheck(three, (tb.ones(3),))["fake"]
    assert message == (
        "passed; not tested with axis 0 of all arguments twice as long, which the kernel refuses:"
        " ValueError: three elements, not (6,)"
    )
