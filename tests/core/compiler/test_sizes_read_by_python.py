"""Symbolic sizes that Python reads: as keys of sets and dicts, and in expressions that were 0."""

from __future__ import annotations

import pytest
import tensorbus as tb

FACTORS = {4: 10.0, 8: 20.0}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * 2 if x.shape[0] in {4, 8} else x,
        lambda x: x * FACTORS.get(x.shape[0], 1.0),
        lambda x: x * len({x.shape[0], 3, 5}),
        lambda x: x * len({x.shape, (3,), (5,)}),
        lambda x: x * (hash(x.shape[0]) % 7),
    ],
)
def test_a_size_is_looked_up_in_a_set_or_dict(fn) -> None:
    compiled = tb.compile(fn, dynamic=True)
    for n in (6, 7, 4, 8, 5, 3):
        assert compiled(tb.ones(n)).tolist() == fn(tb.ones(n)).tolist()


@pytest.mark.parametrize(
    "fn",
    [
        lambda n: tb.arange(n % 3),
        lambda n: tb.arange(n % 3 - 1),
        lambda n: tb.ones((n % 3, 2)).reshape(-1),
        lambda n: tb.tile(tb.ones(2), n % 3),
        lambda n: tb.ones(-(n % 3) * -2),
    ],
)
def test_a_length_that_was_0_is_multiplied(fn) -> None:
    compiled = tb.compile(lambda x: fn(x.shape[0]), dynamic=True)
    for n in (33, 34, 35, 36, 6, 7, 8):
        assert compiled(tb.ones(n)).shape == fn(n).shape


def test_ops_on_one_size_keep_it_symbolic() -> None:
    def fn(x, y):
        both = tb.concat([x * y + x, tb.stack([y, x]).sum(axis=0)])
        return both[tb.arange(x.shape[0] - 1, -1, -1)] + tb.topk(x, 2)[0].sum()

    compiled = tb.compile(fn, dynamic=True)
    for n in (6, 7, 4, 8, 5, 3):
        x = tb.arange(float(n))
        assert compiled(x, x + 1).tolist() == fn(x, x + 1).tolist()
    assert len(compiled.replays) == 1, compiled.recompiles


def assigned(x, n):
    y = x * 1.0
    y[0] = n
    return y


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: x[tb.asarray([n - 1])],
        lambda x, n: x.sum() / tb.asarray(n),
        lambda x, n: x[:2] + tb.asarray([n, 2.5]) * tb.asarray([[n], [1]]) + tb.zeros(()),
        lambda x, n: x.sum() + tb.tensor([[n, n // 2]], dtype=tb.float16),
        lambda x, n: x.sum() + x.new_tensor([n, n + 1]),
        lambda x, n: x.sum() + tb.full((2,), n),
        lambda x, n: tb.asarray((n, 3)),
        assigned,
    ],
)
@pytest.mark.parametrize("opened", ["an axis", "an integer"])
def test_a_size_becomes_an_element(fn, opened) -> None:
    """A position of a decoder, say, which is the length of a cache as well."""
    x = tb.arange(16.0)
    compiled, whole = (
        tb.compile(lambda x, n: (x[:n] * 2, fn(x, n))),
        tb.compile(lambda x: fn(x, x.shape[0]), dynamic=True),
    )
    for n in range(3, 13):
        want = fn(x, n) if opened == "an integer" else fn(x[:n], n)
        out = compiled(x, n)[1] if opened == "an integer" else whole(x[:n])
        assert (out.tolist(), out.dtype) == (want.tolist(), want.dtype)
    used = compiled if opened == "an integer" else whole
    assert len(used.replays) == 1, used.recompiles


def test_a_size_that_an_element_cannot_hold_is_an_error_each_time() -> None:
    compiled = tb.compile(lambda x: tb.asarray([x.shape[0]], dtype=tb.int8) + x.sum(), dynamic=True)
    for n in (3, 4, 5, 127):
        assert compiled(tb.ones(n)).tolist() == [2.0 * n]
    for n in (128, 300):
        with pytest.raises(tb.DtypeError, match=str(n)):
            compiled(tb.ones(n))
