"""A compiled function keeps no reference to its arguments after the call."""

import gc
import weakref
from typing import Any

import pytest
import tensorbus as tb

weight = tb.ones(3).requires_grad_()
CALLS: dict[str, tuple[Any, bool | None]] = {
    "a program": (lambda x: x * 2, None),
    "open lengths": (lambda x: x * x.shape[0], True),
    "differentiated outside": (lambda x: (x * weight).sum(), None),
    "differentiated outside, of open lengths": (lambda x: (x * weight[:1]).sum(), True),
    "with a break": (lambda x: x * x.sum().item(), None),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_are_freed(name: str) -> None:
    function, dynamic = CALLS[name]
    compiled = tb.compile(function, dynamic=dynamic)
    x = tb.ones(3)
    held = weakref.ref(x)
    for _ in range(3):
        y = compiled(x)
        if y.requires_grad:
            y.backward()
    del x, y
    gc.collect()
    assert held() is None
