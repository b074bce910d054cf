"""Errors for arguments that an op's signature does not take; methods that are created at first use."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.ops.definition import table

X = tb.asarray([[1.0, 2.0, 3.0]], device="cpu")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: tb.softmax(X, dims=1, axis=1),
            "softmax() got both 'axis' and 'dims', which name one argument",
        ),
        (
            lambda: tb.softmax(X, 1, dim=1),
            "softmax() got multiple values for argument 'axis'. It is called as",
        ),
        (lambda: tb.softmax(X, out=1), "softmax(x, /, axis=-1, dtype=None)"),
        (lambda: tb.sum(X, 0, True, 1), "sum() takes from 1 to 3 positional arguments but 4 were given"),
        (lambda: tb.concat(), "concat() missing 1 required positional argument: 'xs'"),
        (lambda: tb.where(X), "It is called as where(condition, x, y, /)"),
        (lambda: tb.where(X > 1), "PyTorch's where of 1 operand is here tensorbus.nonzero(condition)."),
        (
            lambda: X.squeeze(out=0),
            "got an unexpected keyword argument 'out'. It is called as squeeze(x, /, axis=None).",
        ),
        (lambda: tb.std(X, out=0), "It is called as std(x, /, axis=None, correction=0.0, keepdims=False)."),
        (lambda: tb.stack([X], out=0), "It is called as stack(xs, /, axis=0)."),
        (lambda: tb.triu(X, n=1), "It is called as triu(x, /, k=0)."),
        (lambda: tb.zeros(), "It is called as zeros(shape, *more, dtype=None,"),
        (lambda: tb.full(size=(2,), fill_value=1), "It is called as full(shape, fill_value, *, dtype=None,"),
        (lambda: tb.load("file", mmap=True), "It is called as load(path, device=None, *,"),
        (lambda: tb.compile(len, disable=True), "It is called as compile(fn=None, *, fullgraph=False,"),
        (lambda: tb.fft.fft(X, out=1), "fft(x, /, n=None, axis=-1, norm='backward')."),
        (
            lambda: tb.fft.rfftfreq(8, 0.1, 2),
            "It is called as rfftfreq(n, /, d=1.0, *, dtype=None, device=None).",
        ),
        (lambda: tb.explain("sum", X, out=1), "sum() got an unexpected keyword argument 'out'"),
    ],
)
def test_it_names_the_op_and_how_it_is_called(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        call()


def test_what_takes_no_keywords_is_named_with_the_one_that_it_got() -> None:
    for name in (op.name for op in table if op.family == "elementwise" and hasattr(tb, op.name)):
        more = [X] * (len(table[name].operands) - 1)
        for call in filter(callable, (partial(getattr(tb, name), X), getattr(X, name, None))):
            with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'wrong'"):
                call(*more, wrong=1)
    with pytest.raises(TypeError, match=r"^exp_\(\) got .* 'wrong'. It is called as exp_\(x, /\)\."):
        X.exp_(wrong=1)
    with pytest.raises(tb.AxisError, match=r"^size: axis 5 is none of a tensor of 2 axes"):
        X.size(5)


def test_a_tensor_is_no_axis() -> None:
    x = tb.ones((2, 5, 3))  # of a shape for which no other test has asked about axis 1, which True equals
    for axis in (X, "rows", True):
        with pytest.raises(tb.ShapeError, match=r"max: .*axis.* an integer"):
            tb.max(x, axis)


@pytest.mark.parametrize("name", ["cat", "concat", "stack", "vstack", "hstack", "dstack", "column_stack"])
def test_tensors_that_come_in_a_list_are_not_arguments_of_their_own(name: str) -> None:
    function, own = getattr(tb, name), "concat" if name == "cat" else name
    for others in ([X], [X, X]):
        with pytest.raises(TypeError, match=rf"^{own}: it takes its tensors in one list, {own}\(\[x, y\]\)"):
            function(X, *others)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tb.stack([X, 3]), "stack: needs tensors, got int."),
        (lambda: tb.vstack([X, [3.0]]), "vstack: needs tensors, got list."),
        (lambda: tb.einsum("i,i->", X[0], 2.0), "einsum: needs tensors, got float."),
        (lambda: tb.cov([1.0, 2.0]), "cov: needs tensors, got list."),
        (lambda: tb.roll([1, 2], 1), "roll: needs tensors, got list."),
        (lambda: tb.fft.fft([1.0]), "fft: needs tensors, got list."),
        (lambda: tb.nn.Linear(2, 3)([1.0, 2.0]), "linear: needs tensors, got list."),
    ],
)
def test_functions_of_several_ops_need_tensors_too(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(tb.errors.DtypeError, match=re.escape(f"{words} Make one with tensorbus.asarray(x).")):
        call()


def test_einsum_takes_its_operands_in_a_list() -> None:
    assert tb.einsum("ij,ij->i", [X, X]).tolist() == [14.0]


def test_errors_of_what_a_caller_hands_over_stay_as_they_are() -> None:
    def of_the_callers(x: tb.Tensor, y: tb.Tensor) -> tb.Tensor:
        raise ValueError("matmul: of the caller's own")

    with pytest.raises(ValueError, match=r"^matmul: of the caller's own$"):
        tb.nn.functional.triplet_margin_with_distance_loss(X, X, X, distance_function=of_the_callers)


def test_the_order_of_another_library_is_told() -> None:
    with pytest.raises(tb.ShapeError, match=r"the shape comes first, normal\(\(3,\), 0.0, 1.0\)"):
        tb.normal(0.0, 1.0, (3,))


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
    report = tb.explain(step, X)
    assert {d.device.type for d in report.decisions} <= {"cpu"}
    assert "graph" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (
            lambda: tb.matmul(tb.ones((2, 3, 4)), tb.ones((5, 4, 3))),
            tb.ShapeError,
            "matmul: operands of shapes (2, 3, 4), (5, 4, 3)",
        ),
        (
            lambda: tb.broadcast_to(X, (4, 4)),
            tb.ShapeError,
            "broadcast_to: shape (1, 3) does not broadcast to (4, 4)",
        ),
        (
            lambda: tb.broadcast_to(X, (3,)),
            tb.ShapeError,
            "broadcast_to: shape (1, 3) does not broadcast to (3,)",
        ),
        (lambda: tb.from_dlpack(3), tb.ArgumentError, "from_dlpack: an array with __dlpack__"),
        (lambda: pow(X, 2, 3), TypeError, "Tensor.__pow__() takes 2 positional arguments but 3"),
        (lambda: tb.save({}, ""), tb.StateError, "names no file"),
        (lambda: tb.manual_seed("a"), tb.ArgumentError, "manual_seed: a whole number is needed, got 'a'"),
        (lambda: tb.diff(X, 1.5), tb.ArgumentError, "diff: n must be >= 0, a whole number, got 1.5"),
        (
            lambda: tb.kernel({"cpu:0": ""}, name="k", tensors={"x": tb.float32}, out=lambda x: x),
            tb.ArgumentError,
            "kernel 'k': source is for 'cpu:0', which names no device type",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_the_function(
    call: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        call()


def test_differences_are_counted_by_position_too() -> None:
    x = tb.asarray([1, 4, 9, 16])
    assert tb.diff(x, 2).tolist() == x.diff(n=2).tolist() == [2, 2]


OTHER_KEYWORDS = {"axis": "dim", "dim": "axis", "keepdims": "keepdim", "keepdim": "keepdims"}


def test_every_function_takes_the_second_names_of_its_keywords() -> None:
    refused = []
    for home in (tb, tb.linalg, tb.fft, tb.special, tb.nn.functional):
        for name in (n for n in dir(home) if not n.startswith("_") and n != "normalize_axis"):
            function = getattr(home, name)
            if not callable(function) or isinstance(function, type):
                continue
            parameters = signature(function).parameters
            for own, other in OTHER_KEYWORDS.items():
                if own in parameters and other not in parameters:
                    with pytest.raises(TypeError) as raised:  # it misses its operands, or takes them from 0
                        function(**{other: 0})
                    if f"unexpected keyword argument '{other}'" in str(raised.value):
                        refused.append(f"{name}({other})")
    assert not refused


@pytest.mark.parametrize("call", [lambda x: x**-1, lambda x: tb.power(x, -2), lambda x: x.pow_(-1)])
def test_whole_numbers_have_no_negative_power(call: Callable[[Any], Any]) -> None:
    x = tb.asarray([1, 2, 3], device="cpu")
    for run in (call, tb.compile(call)):
        with pytest.raises(tb.ArgumentError, match=r"int64 to the power -\d is no int64"):
            run(x)
    assert (x**-1.0).tolist() == (x.to("float32") ** -1).tolist()
