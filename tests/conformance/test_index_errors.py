"""Errors name the index that the user gave, eager and compiled, on every device."""

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn


def assigned(x, i):
    result = x * 1
    result[i] = 0.0
    return result


READS = {
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x[:, i],
    "x[i, i]": lambda x, i: x[i, i],
    "take": lambda x, i: tb.take(x, i, axis=0),
    "take_along_axis": lambda x, i: tb.take_along_axis(x, tb.reshape(i, (-1, 1)), axis=0),
    "index_add": lambda x, i: tb.index_add(x, 0, i, x[:2]),
    "within a chain": lambda x, i: tb.exp(x * 2)[i] + 1,
    "assigned": assigned,
    "embedding": lambda x, i: nn.functional.embedding(i, x),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("wrong", [-7, -1000, 5, 900])
@pytest.mark.parametrize("name", READS)
def test_the_index_is_named_as_it_was_given(name, wrong, compiled, device) -> None:
    fn = tb.compile(READS[name]) if compiled else READS[name]
    x = tb.ones((5, 5), device=device)
    fn(x, tb.asarray([0, 4], device=device)).tolist()
    with pytest.raises(tb.IndexingError, match=rf"index {wrong} is out of range for "):
        fn(x, tb.asarray([0, wrong], device=device)).tolist()


@pytest.mark.parametrize("wrong", [-1, -7, 9])
def test_a_row_that_is_not_in_a_table_is_named_in_a_training_step(wrong, device) -> None:
    table = nn.Embedding(5, 3, device=device)
    optimizer = tb.optim.SGD(table.parameters(), lr=0.1)
    schedule = tb.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    @tb.compile
    def step(rows):
        optimizer.zero_grad()
        loss = tb.square(table(rows)).sum()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    step(tb.asarray([0, 4], device=device)).item()
    step(tb.asarray([1, 2], device=device)).item()
    with pytest.raises(tb.IndexingError, match=rf"index {wrong} is out of range for "):
        step(tb.asarray([0, wrong], device=device)).item()


LOSSES = {
    "cross_entropy": lambda x, i: nn.functional.cross_entropy(x, i, ignore_index=-9),
    "cross_entropy, smooth": lambda x, i: nn.functional.cross_entropy(x, i, label_smoothing=0.1),
    "nll_loss": lambda x, i: nn.functional.nll_loss(nn.functional.log_softmax(x, -1), i),
    "scatter_along_axis": lambda x, i: tb.scatter_along_axis(
        x, i.reshape((2, 1)), x[:2, :1], axis=0, mode="add"
    ),
}
SPLIT = READS | LOSSES
FAST = ("embedding", "cross_entropy", "assigned")


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.full) for name in SPLIT]
)
def test_ranks_that_have_parts_refuse_what_one_rank_refuses(name, axis, device) -> None:
    """The row that an index names may lie on another rank; one that lies on none is an error."""
    x = tb.reshape(tb.arange(25, dtype=tb.float32, device=device), (5, 5))
    x = x[:2] if "loss" in name or "entropy" in name else x

    def call(x, i):
        with dist.implicit_replication():
            out = SPLIT[name](x, i)
        return (out.full_tensor() if isinstance(out, dist.DTensor) else out).reshape((-1,)).tolist()

    def outcome(run):
        try:
            return run()
        except tb.IndexingError as error:
            return str(error).split(" is out of range")[0].split(": ")[-1]

    for wrong in (4, 3, -1, -5, -7, -1000, 5, 6, 900):
        i = tb.asarray([0, wrong], device=device)

        def rank(i=i):
            mesh = dist.init_device_mesh(None, (3,))
            return call(dist.distribute_tensor(x, mesh, [dist.Shard(axis)]), i)

        expected = outcome(lambda i=i: call(x, i))
        got = outcome(lambda: dist.run_ranks(rank, 3)[0])
        assert got == (expected if isinstance(expected, str) else pytest.approx(expected)), wrong
