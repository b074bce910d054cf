"""Views show what their base becomes, and the other way round; everything else is a copy.

NumPy's views are the reference: on every device, eager and compiled, with gradients and under ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.autograd.views import chain_of, view_of
from tensorbus.backend_api import SupportsLending
from tensorbus.nn import functional as F  # noqa: N812 - what everybody calls it
from tensorbus.plugins import backend

CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "an element": lambda x: x.__setitem__((0, 1), 9.0),
    "a slice": lambda x: x.__setitem__((slice(None), slice(None, None, 2)), 9.0),
    "everything": lambda x: x.__setitem__(..., 9.0),
    "by a mask": lambda x: x.__setitem__(x > 2, 9.0),
    "by an index": lambda x: x.__setitem__(([0, 1], [1, 0]), 9.0),
    "add": lambda x: x.__iadd__(1.0),
    "subtract": lambda x: x.__isub__(x),
    "multiply": lambda x: x.__imul__(2.0),
    "divide": lambda x: x.__itruediv__(2.0),
    "floor": lambda x: x.__ifloordiv__(2.0),
    "remainder": lambda x: x.__imod__(2.0),
    "power": lambda x: x.__ipow__(2.0),
    "matmul": lambda x: x.__imatmul__(tb.ones((3, 3), device=x.device)),
    "copy_": lambda x: x.copy_(tb.ones(3)), "fill_": lambda x: x.fill_(9.0), "zero_": lambda x: x.zero_(),
    "add_": lambda x: x.add_(x, alpha=2), "sub_": lambda x: x.sub_(1.0), "mul_": lambda x: x.mul_(x),
    "div_": lambda x: x.div_(2.0), "pow_": lambda x: x.pow_(2), "lerp_": lambda x: x.lerp_(x * 3, 0.5),
    "clamp_": lambda x: x.clamp_(2.0, 3.0), "clip_": lambda x: x.clip_(min=2.0),
    "addcmul_": lambda x: x.addcmul_(x, x), "addcdiv_": lambda x: x.addcdiv_(x, x),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, 0.0), "normal_": lambda x: x.normal_(5.0),
    "uniform_": lambda x: x.uniform_(7.0, 8.0),
}  # fmt: skip
Take = Callable[[Any], Any]
VIEWS: dict[str, tuple[Take, Take]] = {
    "row": (lambda x: x[1], lambda a: a[1]),
    "box": (lambda x: x[:, 1:], lambda a: a[:, 1:]),
    "steps": (lambda x: x[::-1, ::2], lambda a: a[::-1, ::2]),
    "everything": (lambda x: x[...], lambda a: a[...]),
    "new axis": (lambda x: x[:, None, 1], lambda a: a[:, None, 1]),
    "element": (lambda x: x[0, 2], lambda a: a[0, 2:3].reshape(())),
    "nothing": (lambda x: x[:0], lambda a: a[:0]),
    "reshape": (lambda x: x.reshape(3, 2), lambda a: a.reshape(3, 2)),
    "same shape": (lambda x: x.reshape(2, 3), lambda a: a.reshape(2, 3)),
    "flat": (lambda x: x.view(-1), lambda a: a.reshape(-1)),
    "flatten": (lambda x: x.flatten(), lambda a: a.reshape(-1)),
    "transpose": (lambda x: x.T, lambda a: a.T),
    "matrix transpose": (lambda x: x.mT, lambda a: a.T),
    "permute": (lambda x: tb.permute_dims(x, (1, 0)), lambda a: a.T),
    "same order": (lambda x: tb.permute_dims(x, (0, 1)), lambda a: a[...]),
    "swapaxes": (lambda x: x.swapaxes(0, 1), lambda a: a.T),
    "moveaxis": (lambda x: tb.moveaxis(x, 0, -1), lambda a: a.T),
    "expand_dims": (lambda x: tb.expand_dims(x, (0, -1)), lambda a: a[None, ..., None]),
    "squeeze": (lambda x: x[:1].squeeze(), lambda a: a[0]),
    "squeeze nothing": (lambda x: tb.squeeze(x, ()), lambda a: a[...]),
    "diagonal": (lambda x: x.diagonal(), lambda a: a.reshape(-1)[::4]),
    "upper diagonal": (lambda x: x.T.diagonal(-1), lambda a: a.reshape(-1)[1::4]),
    "diag": (lambda x: tb.diag(x, 1), lambda a: a.reshape(-1)[1::4]),
    "split": (lambda x: x.split(2, 1)[1], lambda a: a[:, 2:]),
    "chunk": (lambda x: x.chunk(2)[1], lambda a: a[1:]),
    "unstack": (lambda x: tb.unstack(x, axis=1)[2], lambda a: a[:, 2]),
    "iterate": (lambda x: [*x][1], lambda a: a[1]),
    "detach": (lambda x: x.detach(), lambda a: a[...]),
    "column of the transpose": (lambda x: x.T[1:, 0], lambda a: a.T[1:, 0]),
    "box of a box": (lambda x: x[:, ::-1][1:, :2], lambda a: a[:, ::-1][1:, :2]),
    "rows, flat": (lambda x: x[1:].reshape(-1), lambda a: a[1:].reshape(-1)),
}  # fmt: skip
"""Each view, and the same of NumPy."""
COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": Tensor.clone, "positive": lambda x: +x, "asarray": lambda x: tb.asarray(x, copy=True),
    "resized to its size": lambda x: F.interpolate(x[None, None], size=(2, 3), mode="bilinear")[0, 0],
    "pooled to its size": lambda x: F.adaptive_avg_pool1d(x[None], 3)[0],
    "flip": lambda x: tb.flip(x, axis=1),
    "no difference": lambda x: tb.diff(x, n=0),
    "cast": lambda x: tb.cast(x, x.dtype), "clip": lambda x: tb.clip(x), "conj": lambda x: tb.conj(x),
    "real of a real": lambda x: tb.real(x), "imag of a real": lambda x: tb.imag(x),
    "flip nothing": lambda x: tb.flip(x, axis=()), "sum of nothing": lambda x: x.sum(axis=()),
    "pad nothing": lambda x: tb.ops.movement.movement.pad(x, (0, 0), (0, 0)),
    "concat one": lambda x: tb.concat([x]), "stack": lambda x: tb.stack([x]),
    "round trip": lambda x: tb.asarray(x.numpy(), device=x.device),
    "not in order": lambda x: x.T.reshape(-1), "columns, flat": lambda x: x[:, 1:].flatten(),
    "asked for": lambda x: tb.reshape(x, (3, 2), copy=True),
    "rows by a list": lambda x: x[[1, 0]], "by a mask": lambda x: x[x > 0],
    "tile once": lambda x: tb.tile(x, (1, 1)), "repeat once": lambda x: tb.repeat(x, 1, axis=0),
    "rolled by nothing": lambda x: tb.roll(x, 0, axis=0), "turned by nothing": lambda x: tb.rot90(x, 0),
    "turned": lambda x: tb.rot90(x, 1), "turned back": lambda x: tb.rot90(x, 3),
    "tril": lambda x: tb.tril(x), "take": lambda x: tb.take(x, tb.asarray([0, 1], device=x.device), axis=0),
}  # fmt: skip


def numbers() -> Any:
    return np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)


def start(device: str) -> Tensor:
    return tb.asarray(numbers(), device=device)


def _agree(pairs: list[tuple[Tensor, Any]]) -> None:
    for x, a in pairs:
        np.testing.assert_array_equal(x.detach().numpy(), a)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_and_its_base_are_one(device: str, name: str) -> None:
    take, of_numpy = VIEWS[name]
    for deep in (lambda x: x, lambda x: x[...], lambda x: x[None][0]):
        x, a = start(device), numbers()
        v, w = deep(take(x)), of_numpy(a)
        v.fill_(9)
        w.fill(9)
        _agree([(v, w), (x, a)])
        x += 1
        a += 1
        _agree([(v, w), (x, a)])
        v[...] = v * 2
        w[...] = w * 2
        x[0, 1:] = -1
        a[0, 1:] = -1
        other, twin = take(x), of_numpy(a)
        v *= 3
        w *= 3
        _agree([(v, w), (x, a), (other, twin)])
        del x
        other += 1
        twin += 1
        _agree([(v, w), (other, twin)])


@pytest.mark.parametrize("name", VIEWS)
def test_gradients(device: str, name: str) -> None:
    take, of_numpy = VIEWS[name]
    shown, weights = np.zeros((2, 3), np.float32), numbers()
    of_numpy(shown).fill(1)
    for history in (True, False):
        leaf = start(device).requires_grad_()
        x = leaf * 1
        with tb.set_grad_enabled(history):
            v = take(x)
            v *= 3
        (x * tb.asarray(weights, device=device)).sum().backward()
        assert leaf.grad is not None
        cut = not history or name == "detach"
        _agree([(leaf.grad, weights * (1 if cut else np.where(shown, 3, 1)))])
        _agree([(x, numbers() * np.where(shown, 3, 1))])
    with pytest.raises(tb.AutogradError, match="a leaf that requires a gradient"):
        take(leaf).requires_grad_().mul_(2)
    with tb.no_grad():
        take(leaf).mul_(2)
    assert leaf.is_leaf
    assert leaf.requires_grad
    _agree([(leaf, numbers() * np.where(shown, 2, 1))])
    plain, factor = start(device), tb.asarray(2.0, device=device).requires_grad_()
    take(plain).mul_(factor)
    plain.sum().backward() if plain.requires_grad else None
    operand = 0.0 if factor.grad is None else factor.grad.item()
    assert operand == (0.0 if name == "detach" else (shown * numbers()).sum())


@pytest.mark.parametrize("name", VIEWS)
def test_compiled_and_mapped(device: str, name: str) -> None:
    take = VIEWS[name][0]

    def change(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        v = take(x)
        v += 1
        x[0] *= 2
        w = take(x)
        w.mul_(3)
        other -= 1
        return v * 1, take(x)

    def own(x: Tensor) -> Tensor:
        x = x * 1
        v = take(x)
        v += x.sum()
        x *= 2
        return x + v.sum()

    compiled = tb.compile(change)
    for kind in ("apart", "view", "apart", "base"):
        results = []
        for run in (change, compiled):
            x = start(device)
            args = {"apart": (x, start(device)), "view": (x, take(x)), "base": (take(x).reshape(-1), x)}[kind]
            if kind == "base" and args[0].ndim != 2:
                args = (x, x)
            retained, shown = x[1], run(*args)
            shown[1].zero_()
            results.append([t.tolist() for t in (x, *args, retained, *shown)])
        assert results[0] == results[1], kind
    rows = tb.stack([start(device), start(device) + 5])
    wanted = [own(row).tolist() for row in rows]
    assert tb.vmap(own)(rows).tolist() == wanted
    assert tb.compile(tb.vmap(own))(rows).tolist() == wanted


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_reaches_views_and_no_copy(device: str, change: str) -> None:
    x = start(device)
    copies = {name: derive(x) for name, derive in COPIES.items()}
    before = {name: np.array(t.numpy()) for name, t in copies.items()}
    shown = {name: (take(x), of_numpy) for name, (take, of_numpy) in VIEWS.items()}
    CHANGES[change](x)
    after = np.array(x.numpy())
    assert not np.array_equal(after, numbers())
    for name, (t, of_numpy) in shown.items():
        assert np.array_equal(t.numpy(), of_numpy(after)), name
    for name, t in copies.items():
        assert np.array_equal(t.numpy(), before[name]), name


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_view(device: str, change: str) -> None:
    if change == "matmul":
        return
    y, expected = start(device), tb.concat([start(device), start(device)], axis=0)
    CHANGES[change](y)
    x = tb.concat([start(device), start(device)], axis=0)
    CHANGES[change](x[2:])
    if "orm" not in change:
        expected[2:] = y
        assert np.array_equal(x.numpy(), expected.numpy())
    assert np.array_equal(x[:2].numpy(), numbers())
    assert not np.array_equal(x[2:].numpy(), numbers())


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_does_not_reach_back(device: str, name: str) -> None:
    """Neither does it where the memory was lent, so that changes are written into it."""
    lends = isinstance(backend(device).runtime, SupportsLending)
    for lend in (Tensor.tolist, np.asarray)[: 1 + lends]:
        x = start(device)
        lent = lend(x)
        y = COPIES[name](x)
        assert y is not x
        shown = y.tolist()
        x += 50.0
        lent[0] = lent[1]
        x[...] = start(device)
        assert y.tolist() == shown
        y[...] = 9.0
        y += 1.0
        assert x.tolist() == start(device).tolist()


def test_what_shows_an_element_twice_is_not_written_to(device: str) -> None:
    x = start(device)
    windows = tb.ops.movement.windows.windows
    for v in (
        tb.broadcast_to(x, (2, 2, 3)), x.unfold(1, 2, 1), tb.broadcast_to(x[:, :1], (2, 3)),
        tb.broadcast_to(x, (2, 2, 3))[0], windows(x, (1, 3), (1, 3), (1, 1)),
    ):  # fmt: skip
        before = x.tolist()
        with pytest.raises(ValueError, match="cannot be changed in place"):
            v += 1
        with pytest.raises(ValueError, match="cannot be changed in place"):
            v[0] = 1
        assert x.tolist() == before
        x += 1
        assert v.numpy().min() == x.numpy().min() == 2
        x -= 1


def test_parts_of_complex_numbers(device: str) -> None:
    if not tb.ones(1, device=device, dtype=tb.complex64).dtype.is_complex:
        return
    a = np.array([1 + 2j, 3 - 1j], np.complex64)

    def change(x: Tensor) -> Tensor:
        real, imag, both = x.real, x.imag[:1], tb.view_as_real(x)
        real *= 2
        imag += 5
        both[1, 1] = 7
        x[0] += 1
        again = tb.view_as_complex(both)
        again[1] = 0
        return tb.stack([real, x.imag, both[:, 0], both[:, 1]])

    for run in (change, tb.compile(change)):
        x = tb.asarray(a, device=device)
        assert run(x).tolist() == [[3, 0], [7, 0], [3, 0], [7, 0]]
        assert x.tolist() == [3 + 7j, 0]
    leaf = tb.asarray(a, device=device).requires_grad_()
    x = leaf * 1
    real = x.real
    real *= 3
    x.real.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [3, 3]


def test_a_reshape_of_parts_is_a_view(device: str) -> None:
    z, pairs = tb.zeros((2, 3), dtype="complex64", device=device), tb.zeros((3, 2), device=device)
    z.real.reshape((-1,))[4] = 1
    z.imag.reshape((3, 2))[0, 1] = 2
    tb.view_as_real(z).reshape((-1,))[0] = 3
    assert z.tolist() == [[3, 2j, 0], [0, 1, 0]]
    tb.view_as_complex(pairs).reshape((3, 1))[1] = 4 + 5j
    tb.view_as_complex(pairs).imag.reshape((-1,))[2] = 6
    assert pairs.tolist() == [[0, 0], [4, 5], [0, 6]]


def test_parts_of_complex_numbers_that_are_gone_show_one_another(device: str) -> None:
    x = tb.asarray([1 + 2j, 3 + 4j], dtype="complex64", device=device)
    real, imag, both = x.real, x.imag, tb.view_as_real(x)
    del x
    real.fill_(-4)
    assert both.tolist() == [[-4, 2], [-4, 4]]
    both.mul_(2)
    assert (real.tolist(), imag.tolist()) == ([-8, -8], [4, 8])


def test_views_whose_base_is_gone_show_one_another(device: str) -> None:
    x = tb.arange(6, device=device)
    a, b, c = x[:4], x[3:], x.reshape(2, 3).T
    del x
    a += 10
    assert (a.tolist(), b.tolist(), c.tolist()) == (
        [10, 11, 12, 13],
        [13, 4, 5],
        [[10, 13], [11, 4], [12, 5]],
    )
    b[0] = 0
    assert (a.tolist(), c[0].tolist()) == ([10, 11, 12, 0], [10, 0])


def test_what_takes_no_writes_shows_others_of_a_base_that_is_gone(device: str) -> None:
    """Of elements that show several times, in a broadcast tensor or in windows, one is all that there is."""
    x = tb.asarray([1, 2, 3, 4, 5], device=device)
    wide, row = tb.broadcast_to(x, (2, 5)), x[1:3]
    none, windows = tb.broadcast_to(x[:1], (0,)), x.unfold(0, 3, 2)
    del x
    row += 10
    assert wide.tolist() == [[1, 12, 13, 4, 5]] * 2
    assert (windows.tolist(), none.shape) == ([[1, 12, 13], [13, 4, 5]], (0,))
    y = tb.asarray(7, device=device)
    twice, line = tb.moveaxis(tb.broadcast_to(y, (2,)), 0, 0), y[None]
    del y
    line[0] = 3
    assert (twice.tolist(), line.tolist()) == ([3, 3], [3])


def test_equal_views_whose_base_is_gone_lend_what_they_show(device: str) -> None:
    for take in (
        lambda x: (x.T, x.detach()),
        lambda x: (x.detach(), x[...]),
        lambda x: (x.reshape(3, 2), x.T),
    ):
        views = take(start(device))
        result = np.array(views[0].numpy())
        if isinstance(backend(device).runtime, SupportsLending):
            np.asarray(views[0])[...] = result = result + 1
        views[1].mul_(2)
        _agree([(views[0], 2 * result)])


def test_rows_in_a_loop(device: str) -> None:
    x, a = tb.zeros((9, 2), device=device), np.zeros((9, 2), np.float32)
    for k, (r, s) in enumerate(zip(x, a, strict=True)):
        r += k
        s += k
        x[8] += 1
        a[8] += 1
    flat = x.view(-1)
    for k in range(5):
        flat[k] = 100
    a.reshape(-1)[:5] = 100
    _agree([(x, a), (flat, a.reshape(-1))])


def test_rows_are_views_of_the_tensor_itself(device: str) -> None:
    """Not of halves of halves of it, of which each would be planned, and walked through, by itself."""
    x = tb.zeros((9, 2), device=device)
    for rows in ([*x], tb.unstack(x), x.split(1)):
        assert max(len([*chain_of(view_of(row))]) for row in rows) <= 2


def test_a_compiled_function_writes_to_memory_that_is_lent(device: str) -> None:
    """From its first call on, through the tensor and through views; one that fails leaves it as it was."""
    if not isinstance(backend(device).runtime, SupportsLending):
        with pytest.raises(TypeError, match="is no host array"):
            np.asarray(tb.zeros(3, device=device), copy=False)
        return

    def change(x: Tensor, row: Tensor, index: Tensor) -> Tensor:
        x += 1
        before = +x
        row.mul_(2)
        x[index] = 9
        return before

    compiled = tb.compile(change)
    x = tb.zeros((3, 2), device=device)
    row, array = x[0], np.asarray(x)
    late = x.T
    for number in range(3):
        before = compiled(x, row, tb.asarray([2], device=device))
        first = [1.0, 3.0, 7.0][number]
        wanted = [[2 * first] * 2, [number + 1.0] * 2, [9.0] * 2]
        assert before.tolist() == [[first] * 2, [number + 1.0] * 2, [[1.0, 10.0, 10.0][number]] * 2]
        assert (x.tolist(), array.tolist(), late.T.tolist(), row.tolist()) == (wanted,) * 3 + (wanted[0],)
        assert np.shares_memory(array, np.asarray(x))
    array[0] = 5
    assert (row.tolist(), late.tolist()[0][0]) == ([5.0, 5.0], 5.0)

    def read_between(x: Tensor) -> Tensor:
        x += 1
        total = float(x.numpy().sum())
        x *= 2
        return x + total

    compiled, y = tb.compile(read_between), tb.zeros(2, device=device)
    lent_array = np.asarray(y)
    for wanted_number in (2.0, 6.0, 14.0):
        assert compiled(y).tolist() == [2 * wanted_number] * 2
        assert lent_array.tolist() == y.tolist() == [wanted_number] * 2
    with pytest.raises(tb.IndexingError):
        tb.compile(change)(x, row, tb.asarray([8], device=device))
    assert x.tolist() == array.tolist() == np.asarray(x).tolist()


def test_parameters(device: str) -> None:
    table, cell = tb.nn.Embedding(4, 2, device=device), tb.nn.LSTM(2, 3, device=device)
    row, whole = table.weight[1], table.weight.detach()
    with tb.no_grad():
        table.weight[0].zero_()
        cell.bias_hh_l0[3:6].fill_(1.0)
    assert table.weight[0].tolist() == whole[0].tolist() == [0.0, 0.0]
    assert cell.bias_hh_l0.detach()[3:6].tolist() == [1.0] * 3
    optimizer = tb.optim.SGD(table.parameters(), lr=1.0)
    for step in (lambda: None, tb.compile(lambda: None)):
        table.weight.sum().backward()
        optimizer.step()
        step()
        assert row.tolist() == whole[1].tolist() == table.weight[1].tolist()


def test_threads_keep_each_others_parts(device: str) -> None:
    x = tb.zeros((4, 5), device=device)
    rows = [*x]

    def count(k: int) -> None:
        for _ in range(20):
            rows[k] += 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert x.tolist() == [[20.0] * 5] * 4


def test_another_name_is_the_same_cell(device: str) -> None:
    x = start(device)
    y = x
    y += 1.0
    y[0, 0] = 0.0
    assert x is y
    assert x.tolist() == [[0.0, 3.0, 4.0], [5.0, 6.0, 7.0]]


def test_a_value_stored_is_not_the_cell(device: str) -> None:
    x, v = start(device), tb.asarray([7.0, 8.0, 9.0], device=device)
    x[0] = v
    v += 1
    x[1] = x[0]
    x[0] = 0.0
    assert x.tolist() == [[0.0, 0.0, 0.0], [7.0, 8.0, 9.0]]


def test_overlapping_parts_of_oneself(device: str) -> None:
    x = tb.arange(6, device=device)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    x[::-1] = x
    assert x.tolist() == [4, 3, 2, 1, 0, 0]


def test_compiled_views_of_a_tensor_that_is_not_returned_show_one_another(device: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y[0], y.T, y[1:].reshape(-1)

    compiled = tb.compile(function)
    for k in range(3):
        row, turned, rest = compiled(tb.asarray([[1.0 + k, 2.0], [3.0, 4.0]], device=device))
        row.fill_(9)
        assert turned.tolist() == [[9.0, 6.0], [9.0, 8.0]]
        turned[1] += 1
        assert (row.tolist(), rest.tolist()) == ([9.0, 10.0], [6.0, 9.0])
    assert compiled.replays, compiled.reasons
