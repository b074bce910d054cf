"""``vmap`` over functions that use host data, random numbers, and tensors from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor

ROWS = [[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]]


def assigning(key: Any, value: Any) -> Callable[[Tensor], Tensor]:
    def change(x: Tensor) -> Tensor:
        x = x * 1
        x[x > 0 if key == "mask" else key] = value
        return x

    return change


HOST: dict[str, tuple[Callable[[Tensor], Tensor], Any]] = {
    "a list as index": (lambda x: x[[0, 2]], [[1, 3], [4, -6]]),
    "a number assigned": (assigning(0, 0.0), [[0, -2, 3], [0, 5, -6]]),
    "by a mask": (assigning("mask", 0.0), [[0, -2, 0], [0, 0, -6]]),
    "at places": (assigning([0, 2], 0.0), [[0, -2, 0], [0, 5, 0]]),
    "a list assigned": (assigning(slice(2), [7, 8]), [[7, 8, 3], [7, 8, -6]]),
    "asarray": (lambda x: x + tb.asarray([1, 2, 3], device=x.device), [[2, 0, 6], [5, 7, -3]]),
    "an array": (lambda x: x + tb.asarray(np.ones(3, "f4"), device=x.device), [[2, -1, 4], [5, 6, -5]]),
    "a tensor moved": (
        lambda x: x + tb.ones(3, device=tb.device("cpu")).to(x.device),
        [[2, -1, 4], [5, 6, -5]],
    ),
    "to where it is": (lambda x: x.to(x.device), ROWS),
    "a NumPy scalar": (lambda x: x + np.float32(1), [[2, -1, 4], [5, 6, -5]]),
}


@pytest.mark.parametrize("name", HOST)
@pytest.mark.parametrize("compiled", [False, True])
def test_data_of_the_host(device: str, name: str, compiled: bool) -> None:
    function, wanted = HOST[name]
    mapped = tb.vmap(function)
    run = tb.compile(mapped) if compiled else mapped
    for _ in range(2):
        assert run(tb.asarray(ROWS, device=device)).tolist() == wanted


def test_levels_of_mapping(device: str) -> None:
    x = tb.ones((2, 2, 2), device=device)
    double = tb.vmap(tb.vmap(lambda z: z * tb.asarray([1, 2], device=z.device)))
    assert double(x).tolist() == [[[1.0, 2.0]] * 2] * 2
    assert tb.vmap(lambda z: z.to(device) * 2)(x).tolist() == (x * 2).tolist()


def test_chance_is_the_same_for_all_examples(device: str) -> None:
    x = tb.ones((3, 8), device=device)
    for draw in (
        tb.nn.Dropout(0.5),
        lambda z: z + tb.randn_like(z),
        lambda z: z[tb.randperm(8, device=z.device)],
    ):
        rows = tb.vmap(draw, randomness="same")(x).tolist()
        assert rows[0] == rows[1] == rows[2]
    chance = tb.asarray([[0.0, 1.0], [1.0, 0.0]], device=device)
    assert tb.vmap(tb.bernoulli, randomness="same")(chance).tolist() == [[False, True], [True, False]]


def test_chance_within_compiled_functions(device: str) -> None:
    x, drop = tb.ones((2, 16), device=device), tb.vmap(tb.nn.Dropout(0.5), randomness="same")
    results = []
    for run in (drop, tb.compile(drop)):
        tb.manual_seed(3)
        results.append([run(x).tolist() for _ in range(4)])
    assert results[0] == results[1]
    assert results[0][0] != results[0][1]


@pytest.mark.parametrize("compiled", [False, True])
def test_jacobians(device: str, compiled: bool) -> None:
    x = tb.asarray([1.0, 2.0], device=device).requires_grad_()
    y = x * x * x[0]
    rows = tb.vmap(lambda v: tb.grad(y, x, v, retain_graph=True)[0])
    run = tb.compile(rows) if compiled else rows
    assert run(tb.eye(2, device=device)).tolist() == [[3.0, 0.0], [4.0, 4.0]]
    with pytest.raises(tb.AutogradError, match=r"backward: inside of vmap .* use tensorbus\.grad"):
        tb.vmap(lambda v: y.backward(v, retain_graph=True))(tb.eye(2, device=device))
    assert x.grad is None


def test_tensors_from_outside_have_room_for_one_value(device: str) -> None:
    total = tb.zeros(3, device=device)

    def put(x: Tensor) -> Tensor:
        total[0] = x[0]
        return x

    with pytest.raises(tb.DeviceError, match="vmap: a value for each example"):
        tb.vmap(put)(tb.asarray(ROWS, device=device))
    assert total.tolist() == [0.0] * 3


def test_places_inside_are_gone_outside(device: str) -> None:
    seen = []
    tb.vmap(lambda x: seen.append(x.device) or x)(tb.asarray(ROWS, device=device))
    with pytest.raises(tb.DeviceError, match=r"vmap:0 is where tensors lie inside of vmap"):
        tb.asarray([1.0], device=seen[0])
