"""One stream for one seed on every device, and it is the published one."""

from __future__ import annotations

import threading
from math import pi
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_conformance.references.movement import philox

from agreement import check
from installed import dtypes as dtypes_of
from samples import Array

KNOWN = [
    (0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((1 << 64) - 1, (1 << 128) - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (0x299F31D0A4093822, 0x0370734413198A2E85A308D3243F6A88, "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
"""Key, counter and words of philox4x32-10 among the known answers of Random123 1.14."""


def words(seed: int, count: int, first: int = 0) -> Array:
    every = [w for block in range(-(-count // 4)) for w in philox(seed, first + block)]
    return np.array(every[:count], np.uint32)


def unit(bits: Array) -> Array:
    return (bits >> 8).astype(np.float32) * np.float32(2.0**-24)


def fresh(seed: int = 7) -> tb.Generator:
    return tb.Generator(seed)


@pytest.mark.parametrize(("key", "counter", "expected"), KNOWN)
def test_the_reference_gives_the_known_answers(key: int, counter: int, expected: str) -> None:
    assert [f"{w:08x}" for w in philox(key, counter)] == expected.split()


def test_bits_give_the_known_answer(device: str) -> None:
    state = tb.asarray([0, 0], dtype="uint64", device=device)
    assert [f"{w:08x}" for w in tb.random_bits(state, (4,)).tolist()] == KNOWN[0][2].split()


@pytest.mark.parametrize("seed", [0, 1, (1 << 32) + 5, (1 << 64) - 1])
@pytest.mark.parametrize("first", [0, (1 << 32) - 1, (1 << 64) - 2])
@pytest.mark.parametrize("shape", [(2, 3), (5, 31)])
def test_bits_at_the_edges_of_key_and_counter(
    device: str, seed: int, first: int, shape: tuple[int, ...]
) -> None:
    state = tb.asarray([seed, first], dtype="uint64", device=device)
    actual = tb.random_bits(state, shape).numpy()
    assert actual.dtype == np.uint32
    blocks = [words(seed, 4, (first + k) % (1 << 64)) for k in range(-(-actual.size // 4))]
    assert np.array_equal(actual.reshape(-1), np.concatenate(blocks)[: actual.size])


def test_uniform_is_exact(device: str) -> None:
    actual = tb.uniform((1000,), device=device, generator=fresh()).numpy()
    assert np.array_equal(actual, unit(words(7, 1000)))
    assert actual.min() >= 0.0
    assert actual.max() < 1.0


def test_bernoulli_is_exact(device: str) -> None:
    for p in (0.0, 0.3, 1.0):
        actual = tb.bernoulli(p, (500,), device=device, generator=fresh()).numpy()
        assert np.array_equal(actual, unit(words(7, 500)) < p)


def test_randint_is_exact(device: str) -> None:
    for low, high, dtype in ((0, 10, "int64"), (-5, 6, "int32"), (0, 1 << 32, "int64"), (250, 256, "uint8")):
        actual = tb.randint(low, high, (300,), dtype=dtype, device=device, generator=fresh()).numpy()
        expected = [low + (int(w) * (high - low) >> 32) for w in words(7, 300)]
        assert actual.tolist() == expected


def test_randint_of_a_wide_range_is_exact(device: str) -> None:
    ranges = ((0, 1 << 40, "int64"), (-(1 << 63), 0, "int64"), (-7, 1 << 33, "int64"), (9, 1 << 63, "uint64"))
    for low, high, dtype in ranges:
        actual = tb.randint(low, high, (300,), dtype=dtype, device=device, generator=fresh()).numpy()
        drawn = [int(w) for w in words(7, 600)]
        expected = [
            low + (((a << 32) + b) * (high - low) >> 64)
            for a, b in zip(drawn[:300], drawn[300:], strict=True)
        ]
        assert actual.tolist() == expected


def test_normal_is_within_4_ulp(device: str) -> None:
    actual = tb.normal((2000,), device=device, generator=fresh()).numpy()
    pairs = unit(words(7, 4000)).reshape(2, 2000)
    angle = (np.float32(2 * pi) * pairs[1]).astype(np.float64)
    radius = np.sqrt(-2 * np.log((np.float32(1) - pairs[0]).astype(np.float64)))
    check(actual, radius * np.cos(angle), 4, radius)


def test_moments(device: str) -> None:
    size = 100_000
    normal, uniform = (f((size,), device=device, generator=fresh(3)) for f in (tb.normal, tb.uniform))
    assert abs(normal.mean().item()) < 0.02
    assert abs(normal.std().item() - 1) < 0.02
    assert abs(uniform.mean().item() - 0.5) < 0.005
    assert abs(uniform.var().item() - 1 / 12) < 0.002
    x = normal.numpy().astype(np.float64)
    assert abs(np.mean(x**3)) < 0.05
    assert abs(np.mean(x**4) - 3) < 0.15
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.02


def test_ranges_and_dtypes(device: str) -> None:
    actual = tb.uniform((1000,), -3.0, 5.0, device=device, generator=fresh()).numpy()
    assert -3.0 <= actual.min() < -2.8
    assert 4.8 < actual.max() <= 5.0
    for name in ("float16", "bfloat16", "float64"):
        if getattr(tb, name) in dtypes_of(device):
            assert tb.normal((3,), dtype=name, device=device).dtype is getattr(tb, name)
            drawn = tb.uniform((5000,), dtype=name, device=device).numpy().astype(np.float64)
            assert 0 <= drawn.min() < 0.01
            assert 0.9 < drawn.max() < 1
    assert tb.uniform((0, 2), device=device).shape == (0, 2)
    assert tb.normal((), device=device).shape == ()


def test_the_stream_goes_on_and_back(device: str) -> None:
    generator = fresh()
    first = tb.uniform((6,), device=device, generator=generator).tolist()
    state = generator.get_state()
    second = tb.uniform((3,), device=device, generator=generator).tolist()
    assert state == (7, 2)
    assert second == unit(words(7, 3, first=2)).tolist() != first[:3]
    generator.set_state(state)
    assert tb.uniform((3,), device=device, generator=generator).tolist() == second
    assert tb.uniform((6,), device=device, generator=generator.manual_seed(7)).tolist() == first


def test_the_default_stream(device: str) -> None:
    tb.manual_seed(11)
    first = tb.rand(2, 3, device=device).tolist()
    tb.uniform((9,), device=device, generator=fresh())
    second = tb.rand(2, 3, device=device).tolist()
    tb.manual_seed(11)
    assert [tb.rand(2, 3, device=device).tolist() for _ in range(2)] == [first, second]


def test_threads_draw_apart(device: str) -> None:
    generator, actual = fresh(), []
    threads = [
        threading.Thread(
            target=lambda: actual.append(tb.uniform((8,), device=device, generator=generator).tolist())
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = unit(words(7, 64)).tolist()
    assert sorted(v for drawn in actual for v in drawn) == sorted(expected)


HALF: Any = 1.5
BAD: dict[str, tuple[Any, type[Exception]]] = {
    "a negative length": (lambda d: tb.uniform((-1,), device=d), tb.ShapeError),
    "no length": (lambda d: tb.uniform((HALF,), device=d), tb.ShapeError),
    "an integer dtype": (lambda d: tb.normal((2,), dtype="int32", device=d), tb.DtypeError),
    "an empty range": (lambda d: tb.randint(3, 3, (2,), device=d), tb.ShapeError),
    "too wide a range": (lambda d: tb.randint(-2, 1 << 63, (2,), device=d), tb.ShapeError),
    "a range that the dtype lacks": (
        lambda d: tb.randint(0, 300, (2,), dtype="uint8", device=d),
        tb.DtypeError,
    ),
    "a bool dtype": (lambda d: tb.randint(0, 3, (2,), dtype="bool", device=d), tb.DtypeError),
    "no probability": (lambda d: tb.bernoulli(1.5, (2,), device=d), tb.ShapeError),
    "a probability of NaN": (lambda d: tb.bernoulli(float("nan"), (2,), device=d), tb.ShapeError),
    "a state of floats": (lambda d: tb.random_bits(tb.zeros((2,), device=d), (2,)), tb.ShapeError),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(device: str, name: str) -> None:
    call, error = BAD[name]
    tb.manual_seed(5)
    before = tb.random.default_generator.get_state()
    with pytest.raises(error):
        call(device)
    assert tb.random.default_generator.get_state() == before
