"""Random programs, their gradients and assignments, held to NumPy: eager and compiled, on every device."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import tensorbus as tb

from error_bounds import assert_within, gamma
from registry import fault

Values = tuple[Any, Any]
"""A tensor, or what stands for one in a capture, and the same in NumPy's float64."""
_ROUNDED: Final = gamma(6 * 4 * 33, "float32")
"""Six steps follow each other, of a few roundings along an axis of 33: each a contraction, or nearly."""


@cache
def devices() -> list[str]:
    """Return the device types that can be used, the slow ones less often."""
    usable = [name for name in ("cpu", "opencl", "refdev") if tb.Device(name, 0).is_available()]
    return ["cpu", "cpu", *usable]


def _shape(draw: random.Random) -> tuple[int, ...]:
    lengths = [0, 1, 1, 2, 3, 4, 7, 16, 33]
    return tuple(draw.choice(lengths) for _ in range(draw.randrange(4)))


def _array(draw: random.Random, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(draw.getrandbits(32)).uniform(-2, 2, shape).astype(np.float32)


Step = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]


def _steps(draw: random.Random, rank: int) -> list[Step]:
    """Return steps as functions of the value so far and the first operand: of tensors, and of arrays."""
    axis = draw.randrange(rank) if rank else None
    keep = draw.random() < 0.5
    number = draw.uniform(-1, 1)
    order = draw.sample(range(rank), rank)
    both: list[Step] = [
        (lambda x, _: tb.tanh(x), lambda x, _: np.tanh(x)),
        (lambda x, _: tb.sin(x), lambda x, _: np.sin(x)),
        (lambda x, _: tb.abs(x) * number, lambda x, _: np.abs(x) * number),
        (lambda x, _: 1 / (1 + x * x), lambda x, _: 1 / (1 + x * x)),
        (lambda x, _: tb.exp(-tb.abs(x)), lambda x, _: np.exp(-np.abs(x))),
        (lambda x, _: tb.permute_dims(x, tuple(order)), lambda x, _: np.transpose(x, order)),
        (lambda x, _: tb.maximum(x, number), lambda x, _: np.maximum(x, number)),
        (lambda x, _: x.reshape(-1), lambda x, _: x.reshape(-1)),
        (lambda x, _: tb.stack([x, -x], axis=-1), lambda x, _: np.stack([x, -x], axis=-1)),
        (lambda x, y: tb.mean(y) * 0.1 + x, lambda x, y: np.mean(y) * 0.1 + x),
    ]
    if axis is not None:
        both += [
            (lambda x, _: tb.flip(x, axis=axis), lambda x, _: np.flip(x, axis)),
            (lambda x, _: tb.softmax(x, axis=axis), lambda x, _: _softmax(x, axis)),
            (lambda x, _: tb.roll(x, 3, axis=axis), lambda x, _: np.roll(x, 3, axis)),
            (lambda x, _: tb.concat([x, x], axis=axis), lambda x, _: np.concatenate([x, x], axis)),
            (
                lambda x, _: tb.mean(x, axis=axis, keepdims=keep),
                lambda x, _: np.mean(x, axis=axis, keepdims=keep),
            ),
            (lambda x, _: x - x.mean(axis=axis, keepdims=True), lambda x, _: x - x.mean(axis, keepdims=True)),
        ]
    return both


def _softmax(x: Any, axis: int) -> Any:
    if not x.size:
        return x
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _program(draw: random.Random, shape: tuple[int, ...]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a program of a few steps, of tensors and of arrays."""
    chain: list[Step] = []
    probe: Any = np.zeros(shape)
    for _ in range(draw.randrange(1, 7)):
        step = draw.choice(_steps(draw, np.ndim(probe)))
        with warnings.catch_warnings():  # means of nothing
            warnings.simplefilter("ignore", RuntimeWarning)
            probe = step[1](probe, np.zeros(shape))
        if np.size(probe) > 20_000 or np.ndim(probe) > 5:
            break
        chain.append(step)

    def of_tensors(x: Any, y: Any) -> Any:
        out = x
        for step, _ in chain:
            out = step(out, y)
        return out * 1.0

    def of_arrays(x: Any, y: Any) -> Any:
        out = x
        for _, step in chain:
            out = step(out, y)
        return out * 1.0

    return of_tensors, of_arrays


def _operand(draw: random.Random, data: Any, device: str) -> Any:
    """Return a tensor of these elements: whole, or as a view of another."""
    if data.ndim and draw.random() < 0.3:
        return tb.flip(tb.asarray(np.flip(data, 0).copy(), device=device), axis=0)
    if data.ndim > 1 and draw.random() < 0.3:
        return tb.permute_dims(tb.asarray(data.T.copy(), device=device), tuple(range(data.ndim))[::-1])
    return tb.asarray(data, device=device)


def _agree(got: Any, wanted: Any, what: str) -> None:
    got = got.numpy()
    assert got.shape == np.shape(wanted), f"{what}: shape {got.shape}, not {np.shape(wanted)}"
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted))))
    assert_within(got, wanted, _ROUNDED * scale, what)


@fault("programs.values", trials=4)
def values(draw: random.Random) -> None:
    """A random program gives what NumPy gives: eager, compiled, again at other elements, and its gradient."""
    device, shape = draw.choice(devices()), _shape(draw)
    of_tensors, of_arrays = _program(draw, shape)
    compiled = tb.compile(of_tensors)
    for number in range(2):
        x, y = _array(draw, shape), _array(draw, shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            wanted = of_arrays(x.astype(np.float64), y.astype(np.float64))
        operands = _operand(draw, x, device), _operand(draw, y, device)
        for name, run in (("eager", of_tensors), ("compiled", compiled)):
            _agree(run(*operands), wanted, f"{name} call {number} of shape {shape} on {device}")
    gradients = []
    for run in (of_tensors, compiled):
        leaf = _operand(draw, x, device).detach().requires_grad_()
        out = run(leaf, operands[1])
        if out.requires_grad:
            (out * out).sum().backward()
            gradients.append(leaf.grad)
    if len(gradients) == 2:
        _agree(gradients[1], gradients[0].numpy(), f"gradient of shape {shape} on {device}")


def _key(draw: random.Random, shape: tuple[int, ...]) -> Any:
    items: list[Any] = []
    for n in shape[: draw.randrange(len(shape) + 1)]:
        low = draw.randrange(-n - 1, n + 2)
        choices: list[Any] = [slice(low, draw.randrange(-n - 1, n + 2), draw.choice([1, 2, -1, None]))]
        if n:
            choices += [draw.randrange(-n, n), slice(None)]
        items.append(draw.choice(choices))
    if draw.random() < 0.3:
        items.append(...)
    return tuple(items)


@fault("programs.assignment", trials=4)
def assignment(draw: random.Random) -> None:
    """Assignments to random keys leave what NumPy leaves: eager and compiled."""
    device, shape = draw.choice(devices()), _shape(draw)
    data = np.random.default_rng(draw.getrandbits(32)).integers(-9, 9, shape)
    todo: list[tuple[Any, int, Any]] = [
        (_key(draw, shape), draw.randrange(2), draw.randrange(-9, 9)) for _ in range(draw.randrange(1, 4))
    ]

    def change(x: Any) -> Any:
        for key, how, number in todo:
            if how == 0:
                x[key] = number
            else:
                x[key] = x[key] * 2 + number
        return x

    wanted = change(data.copy())
    for name, run in (("eager", change), ("compiled", tb.compile(change))):
        out = run(tb.asarray(data, device=device))
        what = f"{name}: {todo} of {shape} on {device}"
        np.testing.assert_array_equal(out.numpy(), wanted, err_msg=what)


@fault("programs.threads", trials=2)
def threads(draw: random.Random) -> None:
    """Threads that share compiled functions and tensors all see what one thread sees."""
    device = draw.choice(devices())
    shapes = [_shape(draw) for _ in range(3)]
    programs = [_program(draw, shape)[0] for shape in shapes]
    shared = [tb.compile(program) for program in programs]
    operands = [[tb.asarray(_array(draw, shape), device=device) for _ in range(2)] for shape in shapes]
    wanted = [run(*xs).numpy() for run, xs in zip(programs, operands, strict=True)]
    orders = [draw.choices(range(3), k=6) for _ in range(4)]
    errors: list[BaseException] = []

    def work(order: list[int]) -> None:
        try:
            for k in order:
                _agree(shared[k](*operands[k]), wanted[k], f"shape {shapes[k]} on {device} in a thread")
                _agree(programs[k](*operands[k]), wanted[k], f"shape {shapes[k]} on {device}, eager")
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(order,)) for order in orders]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
