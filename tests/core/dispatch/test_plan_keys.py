"""Plans are kept by what calls were made with; values that say themselves what they are equal to are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import Tensor


class Equal(int):
    """A number that is equal to all others."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return hash(1)


class Raising(int):
    """A number whose comparison fails."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    def __hash__(self) -> int:
        return hash(1)


class Index:
    """What stands for a number where one is needed, and is equal to all."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(1)


CALLS: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "axis": lambda x, n: tb.sum(x, axis=n),
    "axes": lambda x, n: tb.sum(x, axis=(n,)),
    "positional": lambda x, n: tb.flip(x, n),
    "shape": lambda x, n: tb.reshape(x, (n, 3 - int(n), -1)),
    "several tensors": lambda x, n: tb.concat([x, x], axis=n),
    "item": lambda x, n: x[n],
    "method": lambda x, n: x.roll(n, 1),
    "creation": lambda x, n: tb.full((n, 2), 3.0, device="refdev"),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", [Equal, Raising, Index])
@pytest.mark.parametrize("name", CALLS)
def test_calls_with_numbers_that_are_equal_to_others(
    name: str, kind: Callable[[int], Any], compiled: bool
) -> None:

    def outcome(n: Any) -> Any:
        x = tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="refdev")
        call = CALLS[name]
        run = tb.compile(lambda x: call(x, n)) if compiled else call
        try:
            return run(x).tolist() if compiled else run(x, n).tolist()
        except (tb.TensorbusError, TypeError) as error:
            return type(error)

    tb.dispatch.plan.invalidate()
    other = 2 if name == "shape" else 0
    outcome(kind(other))
    got = outcome(1)
    tb.dispatch.plan.invalidate()
    assert got == outcome(1)
    assert got != outcome(other)
