"""Random words in one expression: what a generator of code makes of them where the language has Philox."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.executors.legalize import is_generated, prepared
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.program.lower import lower
from tensorbus.ops.definition import Spec
from tensorbus_cuda import device as cuda
from tensorbus_cuda.dialect import dialect

from error_bounds import assert_alike

DIALECT = dialect(132)


def _dropped(shape: tuple[int, ...]) -> Graph:
    x, state = Node(op="input", spec=Spec(shape, dt.float32)), Node(op="input", spec=Spec((2,), dt.uint64))
    bits = Node(op="random_bits", inputs=(state,), attrs={"shape": shape}, spec=Spec(shape, dt.uint32))
    drawn = Node(op="cast", inputs=(bits,), attrs={"dtype": dt.float32}, spec=Spec(shape, dt.float32))
    out = Node(op="multiply", inputs=(x, drawn), spec=Spec(shape, dt.float32))
    return Graph(inputs=(x, state), outputs=(out,))


@pytest.mark.parametrize("shape", [(64, 64), (8, 4, 2, 64), (4096,)])
def test_words_are_drawn_where_they_are_used(shape: tuple[int, ...]) -> None:
    graph = prepared(_dropped(shape), lambda op: is_generated(op, DIALECT), DIALECT.types)
    program = lower(graph, [packed(k, x.spec.shape) for k, x in enumerate(graph.inputs)], DIALECT.target)
    (kernel,) = program.kernels()
    text = render(kernel, DIALECT)
    assert text.count("tb_philox(") == 2  # the function, and a call
    assert len(program.steps) == 1
    assert "for (long long i1" not in text  # all axes are walked as one
    assert ">> 2" in text
    assert "& 3" in text


def test_a_language_without_the_expression_decomposes_them() -> None:
    plain = replace(DIALECT, expressions={k: v for k, v in DIALECT.expressions.items() if k != "philox"})
    assert is_generated("random_bits", DIALECT)
    assert not is_generated("random_bits", plain)
    graph = prepared(_dropped((8, 8)), lambda op: is_generated(op, plain), plain.types)
    assert "random_bits" not in {node.op for node in graph}


def _programs() -> list[Any]:
    relu = tb.nn.functional.relu

    def trained(x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        out = tb.nn.functional.dropout(tb.exp(leaf), 0.3) * leaf
        (grad,) = tb.grad(out.sum(), [leaf])
        return out.detach(), grad

    return [
        lambda x: tb.nn.functional.dropout(x, 0.3),
        lambda x: tb.normal(x.shape, device=x.device) * relu(x),
        lambda x: (tb.nn.functional.dropout(x, 0.5), tb.rand(3, device=x.device)),
        lambda x: tb.sum(tb.nn.functional.dropout(x, 0.3), axis=-1),
        lambda x: tb.flip(tb.nn.functional.dropout(x, 0.3), axis=0),
        lambda x: tb.concat([tb.uniform(x.shape, device=x.device), x], axis=0),
        trained,
    ]


@pytest.mark.cuda
@pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}")
@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("shape", [(64, 65), (3, 5, 2), (2,), (1, 4, 4, 2)])
def test_the_card_draws_what_processors_draw(number: int, shape: tuple[int, ...]) -> None:
    actual = []
    for device in ("cpu", "cuda"):
        x = tb.reshape(tb.arange(1.0, 1.0 + tb.ones(shape).size, device=device), shape) / 100
        run = tb.compile(_programs()[number])
        for _ in range(2):
            tb.manual_seed(11)
            out = run(x)
            actual.append([y.numpy() for y in (out if isinstance(out, tuple) else (out,))])
    for others in actual[1:]:
        for mine, theirs in zip(actual[0], others, strict=True):
            assert_alike(mine, theirs, 65 + 8)  # sums of a row, and what makes normal numbers of words
