"""What a call says that an op's signature does not take; methods that are made when they are first used."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

X = tb.asarray([[1.0, 2.0, 3.0]], device="cpu")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tb.softmax(X, dim=1), "softmax() got an unexpected keyword argument 'dim'. It is called as"),
        (lambda: tb.softmax(X, dim=1), "softmax(x, /, axis=-1)"),
        (lambda: tb.sum(X, 0, True, 1), "sum() takes from 1 to 3 positional arguments but 4 were given"),
        (lambda: tb.concat(), "concat() missing 1 required positional argument: 'xs'"),
        (lambda: tb.where(X), "It is called as where(condition, x, y, /)"),
        (lambda: tb.explain("sum", X, dim=1), "sum() got an unexpected keyword argument 'dim'"),
    ],
)
def test_it_names_the_op_and_how_it_is_called(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        call()


def test_an_operand_that_is_no_tensor_is_still_told_apart() -> None:
    with pytest.raises(tb.DtypeError, match="needs tensors, got list"):
        tb.softmax([1.0])


@pytest.mark.parametrize(
    "name", ["softmax", "log_softmax", "logsumexp", "lgamma", "digamma", "erfc", "erfinv", "logit", "sinc"]
)
def test_methods_are_the_functions(name: str) -> None:
    x = X / 4
    np.testing.assert_array_equal(getattr(x, name)().numpy(), getattr(tb, name)(x).numpy())


def test_what_is_written_into_a_graph_is_no_decision(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tb.compile(lambda x: tb.tanh(x) * 1.5)
    found = tb.explain(step, X)
    assert {d.device.type for d in found.decisions} <= {"cpu"}
    assert "graph" not in capfd.readouterr().out
