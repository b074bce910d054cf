"""Parameters in the fast paths of ops: as any tensor, but for those whose values have cells of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.autograd.views import view_of
from tensorbus.eager import runner
from tensorbus.tensor.tensor import is_plain

CALLS: dict[str, Callable[[Any, Any], Tensor]] = {
    "one operand": lambda p, x: tb.exp(p),
    "two operands": lambda p, x: x * p,
    "two operands, the other way": lambda p, x: p - x,
    "a number": lambda p, x: p * 2.5,
    "a whole number": lambda p, x: p + 3,
    "a product": lambda p, x: x @ p,
    "attributes": lambda p, x: tb.sum(p, axis=0),
    "a view": lambda p, x: tb.permute_dims(p, (1, 0)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_parameter_takes_the_short_path_of_a_tensor(name: str) -> None:
    call, x = CALLS[name], tb.asarray([[1.0, 2.0], [3.0, 5.0]])
    parameter = tb.nn.Parameter(tb.asarray([[0.5, -1.0], [2.0, 0.25]]))
    bare = parameter.detach().clone().requires_grad_()
    expected = call(bare, x)
    call(parameter, x)  # plans of it are known from now on

    entered: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename == runner.__file__:
            entered.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        got = call(parameter, x)
    finally:
        sys.setprofile(None)
    assert entered == []
    assert type(got) is Tensor
    assert got.tolist() == expected.tolist()
    assert (view_of(got) is None) == (view_of(expected) is None)
    backs = [tb.grad(out.sum(), of) for out, of in ((got, parameter), (expected, bare))]
    assert [g.tolist() for (g,) in backs if g is not None] == [backs[1][0].tolist()] * 2


def test_a_change_of_a_parameter_reaches_its_views() -> None:
    parameter = tb.nn.Parameter(tb.asarray([[0.5, -1.0], [2.0, 0.25]]))
    turned = tb.permute_dims(parameter, (1, 0))
    with tb.no_grad():
        parameter += 1.0
    assert turned.tolist() == [[1.5, 3.0], [0.0, 1.25]]


def test_classes_of_a_users_own_take_the_whole_path() -> None:
    class Marked(tb.nn.Parameter):
        """A parameter that may mean something else."""

    assert is_plain(tb.nn.Parameter(tb.ones((2,))))
    assert not is_plain(Marked(tb.ones((2,))))
    assert not is_plain(2.0)
    assert type(Marked(tb.ones((2,))) * 2.0) is Tensor


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float16", "float32", "complex64", "bool"])
@pytest.mark.parametrize("number", [0, 1, 127, 128, -1, 300])
def test_whole_numbers_in_the_short_path_are_those_of_any(dtype: str, number: int) -> None:
    """What does not fit is refused at every call, and what fits gives the same at each."""
    x = tb.asarray([1, 0, 1]).to(dtype)
    low, high = {"int8": (-128, 127), "uint8": (0, 255)}.get(dtype, (-(1 << 40), 1 << 40))
    for _ in range(3):
        if low <= number <= high:
            total = x + number
            assert (
                total.tolist()
                == (tb.asarray([1, 0, 1]).to(total.dtype) + tb.full((3,), number, dtype=total.dtype)).tolist()
            )
        else:
            with pytest.raises(tb.errors.DtypeError, match="fit"):
                x + number
