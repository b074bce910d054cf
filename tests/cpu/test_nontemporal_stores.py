"""Large results of compiled programs go past the caches: the same elements, wherever blocks and lines end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tensorbus import plugins
from tensorbus.backend_interface.compilation import CompileRequest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.ops.definition import Spec, table
from tensorbus_cpu.native import bytecode as tape

CHOSEN: dict[str, int] = {}
"""What the lowering is told beside the graph: the test's fixture says what a large result is."""
RNG = np.random.default_rng(11)
SHAPES = ((1,), (31,), (2049,), (5000,), (7, 33), (64, 1000), (3, 16384), (2, 20000))


def input_node(k: int, *shape: int, dtype: dt.DType = dt.float32) -> Node:
    return Node(op="input", attrs={"index": k}, spec=Spec(shape, dtype))


def apply(name: str, *inputs: Node, **attrs: Any) -> Node:
    spec = table[name].specs(tuple(x.spec for x in inputs), attrs)[0]
    return Node(op=name, inputs=inputs, attrs=attrs, spec=spec)


def compiled(inputs: tuple[Node, ...], *outputs: Node, replaces: Mapping[int, int] | None = None) -> Any:
    lowering = plugins.backend("cpu").lowering()
    assert lowering is not None
    return lowering.compile(
        CompileRequest(
            graph=Graph(inputs=inputs, outputs=outputs), index=0, replaces=replaces or {}, chosen=CHOSEN
        )
    )


@pytest.fixture(params=[1, 1 << 60], ids=["past", "near"])
def past(request: Any, monkeypatch: Any, tmp_path: Any) -> bool:
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))  # where no program lies that was made otherwise
    monkeypatch.setitem(CHOSEN, "nontemporal_min_bytes", request.param)
    return bool(request.param == 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int8], ids=str)
def test_element_by_element(past: bool, shape: tuple[int, ...], dtype: dt.DType) -> None:
    x, y = input_node(0, *shape, dtype=dtype), input_node(1, *shape, dtype=dtype)
    run = compiled((x, y), apply("add", x, y), apply("multiply", x, y), apply("subtract", x, y))
    a, b = (RNG.integers(-5, 6, shape).astype(dtype.name) for _ in range(2))
    for _ in range(2):
        for got, want in zip(run([a, b]), (a + b, a * b, a - b), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", SHAPES[4:])
def test_rows(past: bool, shape: tuple[int, ...]) -> None:
    x = input_node(0, *shape)
    run = compiled((x,), apply("cumulative_sum", x, axis=1, dtype=dt.float32, include_initial=False))
    a = RNG.integers(-5, 6, shape).astype("f4")
    np.testing.assert_array_equal(run([a])[0], np.cumsum(a, 1))


def test_a_result_in_the_place_of_an_operand(past: bool) -> None:
    x, y = input_node(0, 5000), input_node(1, 5000)
    run = compiled((x, y), apply("subtract", x, y), replaces={0: 0})
    values = [RNG.normal(size=5000).astype("f4") for _ in range(2)]
    want = values[0] - values[1]
    np.testing.assert_array_equal(run(values)[0], want)


def test_a_result_that_is_read_again(past: bool) -> None:
    x = input_node(0, 64, 1000)
    twice = apply("multiply", x, x)
    total = apply("sum", twice, axis=(1,), keepdims=False)
    run = compiled((x,), twice, total)
    a = RNG.integers(-5, 6, (64, 1000)).astype("f4")
    result = run([a])
    np.testing.assert_array_equal(result[0], a * a)
    np.testing.assert_array_equal(result[1], (a * a).sum(1))


def test_steps_go_past_only_where_results_are_large(past: bool) -> None:
    x = input_node(0, 5000, dtype=dt.int32)  # of which no kernel stores whole vectors by itself
    seen: list[list[int]] = []
    whole = tape.BytecodeProgram._past

    def noted(self: Any, step: Any) -> list[int]:
        seen.append(whole(self, step))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tape.BytecodeProgram, "_past", noted)
        compiled((x,), apply("negative", x))
    assert [words[1] for words in seen] == [int(past)]
