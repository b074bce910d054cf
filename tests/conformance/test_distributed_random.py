"""Random numbers of distributed tensors are those of one device, whatever the placements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.ops.creation.random import bits_of_part, random_bits
from tensorbus.ops.sharding_rules import ShardPart

SHAPE = (5, 3, 7)
"""Lengths that two and four ranks divide unevenly, and rows that begin inside of a block of four words."""
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "alpha_dropout": lambda x: tb.nn.functional.alpha_dropout(x, 0.4, True),
    "bernoulli": lambda x: tb.bernoulli(x * 0 + 0.5),
    "dropout": lambda x: tb.nn.functional.dropout(x, 0.4),
    "dropout of channels": lambda x: tb.nn.functional.dropout1d(x, 0.4),
    "dropout of examples": lambda x: tb.vmap(
        lambda row: tb.nn.functional.dropout(row, 0.4), randomness="different"
    )(x),
    "gamma": lambda x: tb.distributions.gamma(x.shape, 0.7, device=x.device) + x,
    "gumbel_softmax": lambda x: tb.nn.functional.gumbel_softmax(x, hard=True),
    "multinomial": lambda x: tb.multinomial(tb.abs(x[..., 0]) + 0.1, 2),
    "normal_": lambda x: (x * 1).normal_(),
    "on the device": lambda x: x + tb.rand(x.shape, device=x.device),
    "permutation": lambda x: tb.permutation(x),
    "poisson": lambda x: tb.poisson(tb.abs(x)),
    "rand_like": tb.rand_like,
    "randint_like": lambda x: tb.randint_like(x, -3, 1 << 40, dtype="int64"),
    "randn_like": tb.randn_like,
    "rrelu": lambda x: tb.nn.functional.rrelu(x, training=True),
    "twice": lambda x: tb.randn_like(x) + tb.rand_like(x),
    "uniform_": lambda x: (x * 1).uniform_(),
}
COMPILED = ("bernoulli", "dropout", "rand_like")
"""Functions whose bits do not depend on how a program rounds."""
FAST = ("dropout", "dropout of examples", "permutation", "randn_like", "twice")


def _numbers(function: Callable[[Any], Any], x: Any) -> Any:
    tb.manual_seed(3)
    return [function(x) for _ in range(2)]


@pytest.mark.parametrize(
    ("mesh_shape", "where", "names"),
    [
        ((2,), "cpu", FAST),
        pytest.param((2,), "cpu", tuple(FUNCTIONS), marks=pytest.mark.full),
        pytest.param((2, 2), "cpu", tuple(FUNCTIONS), marks=pytest.mark.full),
        pytest.param((2,), "refdev", tuple(FUNCTIONS), marks=pytest.mark.full),
    ],
    ids=["some", "two", "square", "refdev"],
)
def test_random_functions_give_the_same_numbers_for_any_placements(
    mesh_shape: tuple[int, ...], where: str, names: tuple[str, ...]
) -> None:
    whole = tb.arange(math.prod(SHAPE), dtype="float32", device=where).reshape(SHAPE) / 10
    eager = {name: FUNCTIONS[name] for name in names}
    compiled = {f"{name}, compiled": FUNCTIONS[name] for name in COMPILED if names is not FAST}
    expected = {name: _numbers(f, whole) for name, f in {**eager, **compiled}.items()}
    placements: list[Any] = [dist.Replicate(), dist.Partial(), *map(dist.Shard, range(len(SHAPE)))]

    def rank() -> list[str]:
        mesh = dist.init_device_mesh(where, mesh_shape)
        wrong = []
        strided = [(dist.StridedShard(0), dist.Shard(0))] if len(mesh_shape) > 1 else []
        for places in (*itertools.product(placements, repeat=len(mesh_shape)), *strided):
            x = dist.distribute_tensor(whole, mesh).redistribute(places)
            functions = eager | {n: tb.compile(f, fullgraph=True) for n, f in compiled.items()}
            for name, function in functions.items():
                results = [y.full_tensor() for y in _numbers(function, x)]
                if [y.tolist() for y in results] != [y.tolist() for y in expected[name]]:
                    wrong.append(f"{name} of {[*places]}")
        return wrong

    assert dist.run_ranks(rank, math.prod(mesh_shape)) == [[]] * math.prod(mesh_shape)


def test_new_random_tensors_lie_as_asked() -> None:
    expected = [tb.rand(5, 3, generator=tb.Generator(1)), tb.randn((5, 3), generator=tb.Generator(1))]

    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        places = [dist.Shard(1)]
        results = [
            dist.rand(5, 3, device_mesh=mesh, placements=places, generator=tb.Generator(1)),
            dist.randn(
                (5, 3), device_mesh=mesh, placements=places, generator=tb.Generator(1), requires_grad=True
            ),
        ]
        with pytest.raises(tb.ArgumentError, match="Partial"):
            dist.rand(3, device_mesh=mesh, placements=[dist.Partial()])
        return [
            (x.placements, x.to_local().shape[1], x.full_tensor().tolist(), x.requires_grad) for x in results
        ]

    for k, results in enumerate(dist.run_ranks(rank, 2)):
        wanted = [
            ((dist.Shard(1),), 2 - k, x.tolist(), flag)
            for x, flag in zip(expected, (False, True), strict=True)
        ]
        assert results == wanted


@pytest.mark.parametrize("whole", [(7,), (5, 3), (4, 8), (3, 5, 2), (2, 3, 4, 2), (6, 1, 5)], ids=str)
def test_a_part_of_random_bits_is_what_lies_there(whole: tuple[int, ...]) -> None:
    state = tb.asarray([7, (1 << 32) - 3], dtype="uint64")  # whose counter goes over 32 bits
    everything = random_bits(state, whole).numpy()
    limits = [[(0, n), (n // 2, n), (0, -(-n // 2)), (n, n)] for n in whole]
    for box in itertools.product(*limits):
        part = ShardPart(tuple(b - a for a, b in box), tuple(a for a, _ in box), whole)
        expected = everything[tuple(slice(a, b) for a, b in box)]
        assert bits_of_part(state, part).numpy().tolist() == expected.tolist(), box


def test_ranks_draw_from_streams_of_their_own() -> None:
    tb.manual_seed(9)

    def rank() -> list[float]:
        first = tb.rand(2).tolist()
        if dist.get_rank():
            tb.manual_seed(dist.get_rank())
        return [*first, *tb.rand(2).tolist()]

    results = dist.run_ranks(rank, 3)
    begun = [*tb.rand(2).tolist(), *tb.rand(2).tolist()]
    assert results[0] == begun
    seeded = [tb.rand(2, generator=tb.Generator(k)).tolist() for k in (1, 2)]
    assert results[1:] == [begun[:2] + numbers for numbers in seeded]
