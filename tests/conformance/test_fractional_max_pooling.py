"""Fractional max pooling against loops in Python, eager and compiled, on every device."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn

CASES = [
    (2, (6, 7), (2, 3), (3, 4)), (2, (5, 5), (1, 2), (5, 1)), (2, (9, 8), (3, 3), (4, 2)),
    (3, (5, 6, 7), (2, 1, 3), (3, 4, 2)), (3, (4, 4, 4), (2, 2, 2), (1, 2, 3)),
]  # fmt: skip
POOL = {2: nn.functional.fractional_max_pool2d, 3: nn.functional.fractional_max_pool3d}


def starts(sample: np.float32, length: int, count: int, size: int) -> list[int]:
    results = []
    if count > 1:
        step = np.float32(length - size) / np.float32(count - 1)
        results = [
            int((np.float32(i) + sample) * step) - int(sample * step) for i in range(count - 1)
        ]  # fmt: skip
    return [*results, length - size]


def expected(x, samples, size, wanted):
    """Return the maxima and their flat places; of a plane's two samples the first is the width's."""
    rank = len(size)
    order = (1, 0) if rank == 2 else (0, 1, 2)
    out = np.empty((*x.shape[:2], *wanted), x.dtype)
    at = np.empty(out.shape, np.int64)
    for lead in np.ndindex(*x.shape[:2]):
        space = x.shape[2:]
        first = [
            starts(samples[lead][order[k]], space[k], wanted[k], size[k]) for k in range(rank)
        ]  # fmt: skip
        for place in np.ndindex(*wanted):
            window = [range(first[k][place[k]], first[k][place[k]] + size[k]) for k in range(rank)]
            best = max(product(*window), key=lambda p: x[lead][p])
            out[(*lead, *place)] = x[lead][best]
            at[(*lead, *place)] = np.ravel_multi_index(best, space)
    return out, at


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_maxima_places_and_gradients(case, compiled, device) -> None:
    rank, space, size, wanted = case
    rng = np.random.default_rng(3)
    x = rng.permutation(np.arange(6 * np.prod(space))).reshape(2, 3, *space).astype(np.float32)
    samples = rng.random((2, 3, rank)).astype(np.float32)
    weight = rng.integers(1, 9, (2, 3, *wanted)).astype(np.float32)

    def pool(x, samples):
        return POOL[rank](x, size, wanted, return_indices=True, _random_samples=samples)

    actual = tb.asarray(x, device=device).requires_grad_()
    run = tb.compile(pool) if compiled else pool
    out, at = run(actual, tb.asarray(samples, device=device))
    values, places = expected(x, samples, size, wanted)
    assert np.array_equal(out.detach().numpy(), values)
    assert np.array_equal(at.numpy(), places)
    (out * tb.asarray(weight, device=device)).sum().backward()
    gradient = np.zeros((6, np.prod(space)), np.float32)
    for row, (where, g) in enumerate(zip(places.reshape(6, -1), weight.reshape(6, -1), strict=True)):
        np.add.at(gradient[row], where, g)
    assert np.array_equal(actual.grad.numpy(), gradient.reshape(x.shape))


def test_windows_are_drawn_anew_and_stay_inside(device) -> None:
    layer = nn.FractionalMaxPool2d(2, output_ratio=(0.7, 0.4)).to(device)
    x = tb.reshape(tb.arange(90.0, device=device), (1, 9, 10))
    tb.manual_seed(2)
    seen = [layer(x).tolist() for _ in range(6)]
    assert layer(x).shape == (1, 6, 4)
    assert len({repr(s) for s in seen}) > 1
    tb.manual_seed(2)
    assert [layer(x).tolist() for _ in range(6)] == seen
    compiled = tb.compile(layer)
    tb.manual_seed(2)
    assert [compiled(x).tolist() for _ in range(6)] == seen


def test_samples_of_a_layer_keep_the_windows(device) -> None:
    samples = tb.full((1, 2, 3), 0.3, device=device)
    layer = nn.FractionalMaxPool3d((2, 1, 2), (3, 2, 3), return_indices=True, _random_samples=samples)
    layer.to(device)
    x = tb.reshape(tb.arange(240.0, device=device), (2, 5, 4, 6))
    first, second = layer(x), layer(x)
    assert first[0].shape == (2, 3, 2, 3)
    assert [t.tolist() for t in first] == [t.tolist() for t in second]


def test_nan_is_the_largest(device) -> None:
    x = tb.asarray([[[1.0, float("nan")], [3.0, 4.0]]], device=device)
    out, at = nn.functional.fractional_max_pool2d(x, 2, 1, return_indices=True)
    assert np.isnan(out.numpy()).all()
    assert at.item() == 1


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({}, tb.ArgumentError, "either output_size or output_ratio"),
        ({"output_size": 2, "output_ratio": 0.5}, tb.ArgumentError, "either output_size or output_ratio"),
        ({"output_ratio": 1.5}, tb.ArgumentError, "between 0 and 1"),
        ({"output_ratio": (0.5, 0.5, 0.5)}, tb.ArgumentError, "2 of them"),
        ({"output_size": (1, 2, 3)}, tb.ShapeError, "2 of them"),
    ],
)
def test_settings_that_do_not_fit(settings, error, text) -> None:
    with pytest.raises(error, match=text):
        nn.FractionalMaxPool2d(2, **settings)


def test_inputs_that_do_not_fit(device) -> None:
    pool = nn.functional.fractional_max_pool2d
    with pytest.raises(tb.ShapeError, match="do not fit"):
        pool(tb.ones((1, 4, 4), device=device), 3, 3)
    with pytest.raises(tb.ShapeError, match="3 or 4 dimensions"):
        pool(tb.ones((4, 4), device=device), 2, 2)
    with pytest.raises(tb.ShapeError, match=r"\(1, 1, 2\)"):
        pool(tb.ones((1, 4, 4), device=device), 2, 2, _random_samples=tb.zeros((1, 2), device=device))
