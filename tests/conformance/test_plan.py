"""``tensorbus plan`` prints what ranks that communicate take: memory, and every collective."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn, optim
from tensorbus.cli import plan, plan_models
from tensorbus.cli.app import app
from tensorbus.func import Mode
from tensorbus.kernels.meta_memory import count_memory
from typer.testing import CliRunner

SIZES = {"layers": 2, "width": 24, "heads": 4, "kv_heads": 4, "vocabulary": 37, "sequence": 10}
MESHES = ["dp=3", "tp=4", "ddp=2", "dp=2,tp=2", "ddp=2,dp=2"]


def build(name: str) -> Any:
    return plan_models.build(name, 2, False, SIZES)


def step(name: str, mesh: dict[str, int]) -> tuple[tuple[int, int, int], Counter[Any]]:
    """Train a step on ranks that communicate, with elements; return bytes, and the second step's calls."""
    grid = dist.init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh))
    model, arguments = build(name)
    model = plan._divided(model, grid, dist.MixedPrecisionPolicy())
    optimizer = optim.AdamW(model.parameters())
    plan._step(model, arguments, optimizer, "tp" in mesh)
    before = dist.records()
    with dist.loss_parallel():
        model(*arguments).backward()
    parameters = [*{id(p): p for p in model.parameters()}.values()]
    gradients = [p.grad for p in parameters]
    optimizer.step()
    states = [x for p in parameters for x in optimizer.state[p].values() if isinstance(x, tb.Tensor)]
    sizes = [sum(parts(x) for x in xs) for xs in (parameters, gradients, states)]
    calls: Counter[Any] = Counter()
    groups = {group.label: name for group, name in zip(grid.groups, mesh, strict=True)}
    for record in dist.records()[len(before) :]:
        key = groups[record.group], record.operation
        calls[*key, "calls"] += 1
        calls[*key, "bytes"] += sum(map(math.prod, record.shapes)) * tb.dtypes.dtype(record.dtype).itemsize
    return (sizes[0], sizes[1], sizes[2]), calls


def parts(x: Any) -> int:
    return (x.to_local() if isinstance(x, dist.DTensor) else x).nbytes


@pytest.mark.parametrize("text", MESHES)
@pytest.mark.parametrize("name", ["gpt2", "llama-8b"])
def test_bytes_and_calls_are_those_of_ranks_that_communicate(name: str, text: str) -> None:
    mesh = plan.mesh_of(text)
    size = math.prod(mesh.values())
    with tb.device("cpu"):
        expected = dist.run_ranks(step, size, name, mesh, timeout=120)
    for rank in (0, size - 1):
        result = plan.plan(lambda: build(name), mesh, rank=rank)
        memory, calls = result.memory, Counter[Any]()
        for row in result.traffic:
            calls[row.dimension, row.operation, "calls"] = row.calls
            calls[row.dimension, row.operation, "bytes"] = row.bytes
        assert ((memory.parameters, memory.gradients, memory.optimizer), calls) == expected[rank]
        assert memory.activations > 0
        assert memory.peak > memory.parameters + memory.optimizer + memory.activations


def test_checkpointed_blocks_keep_their_inputs() -> None:
    plain, checkpointed = [
        [
            plan.plan(partial(plan_models.build, "llama-8b", 2, again, SIZES | {"layers": n}), {"dp": 2})
            for n in (2, 5)
        ]
        for again in (False, True)
    ]
    inputs = 2 * SIZES["sequence"] * SIZES["width"] * 4
    grown = [more.memory.activations - few.memory.activations for few, more in (plain, checkpointed)]
    assert grown[1] == 3 * inputs < grown[0]
    assert checkpointed[1].traffic == plain[1].traffic


def test_a_step_runs_no_more_ops_on_more_ranks() -> None:
    """Parts are joined and divided by runs of ranks that have as much, whose number ranks do not change."""

    def ops(ranks: int) -> Counter[str]:
        with Count() as count:
            plan.plan(lambda: build("gpt2"), {"dp": ranks})
        return count.ops

    few, many = ops(7), ops(1000)
    assert few["concat"] > 0
    assert sum(many.values()) < 1.5 * sum(few.values())


class Count(Mode):
    """Counts ops."""

    def __init__(self) -> None:
        self.ops: Counter[str] = Counter()

    def apply(self, op: Any, operands: Any, attrs: Any) -> Any:
        self.ops[op.name] += 1
        return NotImplemented


def test_storage_is_counted_once_and_until_nobody_sees_it() -> None:
    with count_memory() as memory:
        x = tb.ones((2, 3), device="meta")
        views = [x[1:], x.T, x.reshape(-1), tb.broadcast_to(x, (5, 2, 3))]
        assert memory.allocated == 24
        copy = x.T.reshape(-1)
        del x
        assert memory.allocated == 48
        views.clear()
        assert memory.allocated == 24
        memory.reset_peak()
        (copy + 1).sum()
        assert memory.peak == 24 + 24 + 4
        with pytest.raises(tb.TensorbusError, match="counted already"), count_memory():
            pass


def test_the_command_prints_tables_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_model.py").write_text(
        "import tensorbus as tb\n"
        "from tensorbus import nn\n"
        "def net():\n    return nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 4)), (tb.ones((2, 6)),)\n"
        "def wrong():\n    return 3\n"
        "def broken():\n    raise ValueError('no such size')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_model", raising=False)
    answer = CliRunner().invoke(app, ["plan", "--model", "own_model:net", "--mesh", "dp=4", "--json"])
    assert answer.exit_code == 0, answer.output
    result = json.loads(answer.stdout)
    assert result["elements"] == 6 * 4 + 4 + 4 * 4 + 4
    assert result["memory"]["parameters"] == (6 + 1 + 4 + 1) * 4
    answer = CliRunner().invoke(app, ["plan", "--model", "own_model:net", "--mesh", "dp=4"])
    assert "rank 0 of 4 (dp=4)" in answer.stdout
    assert "reduce_scatter" in answer.stdout
    answer = CliRunner().invoke(app, ["plan", "--model", "own_model:wrong", "--mesh", "dp=4"])
    assert (answer.exit_code, "must return a module and a tuple" in answer.output) == (2, True)
    assert "own_model.py" not in answer.output
    answer = CliRunner().invoke(app, ["plan", "--model", "own_model:broken", "--mesh", "dp=4"])
    assert (answer.exit_code, "no such size (ValueError in broken" in answer.output) == (2, True)
    assert "own_model.py:8)" in answer.output


WRONG = {
    "--mesh": ("pp=2", "each dimension once"), "--mesh ": ("tp=5", "tp=5 must divide the 12 heads"),
    "--model": ("gpt7", "Did you mean 'gpt2'?"),
    "--optimizer": ("lion", "adamw, sgd, momentum"), "--rank": ("4", "0 to 3"), "--heads": ("5", "divisible"),
    "--compute-dtype": ("float7", "float7"),
}  # fmt: skip


@pytest.mark.parametrize("option", WRONG)
def test_wrong_options_are_named(option: str) -> None:
    value, text = WRONG[option]
    options = {"--mesh": "dp=4", "--model": "gpt2", option.strip(): value}
    answer = CliRunner().invoke(app, ["plan", *[word for pair in options.items() for word in pair]])
    assert answer.exit_code == 2
    assert text in " ".join(answer.output.split())


def calls_of(result: plan.TrainingPlan) -> dict[tuple[str, str], int]:
    """Return the number of calls along each dimension of a mesh."""
    return {(row.dimension, row.operation): row.calls for row in result.traffic}


@pytest.mark.parametrize("mesh", [{"dp": 1}, {"dp": 4, "tp": 2}])
def test_gpt2_has_the_parameters_of_gpt2(mesh: dict[str, int]) -> None:
    """As Radford et al. count them (2019): 124 M, since the last layer reads the tokens' table."""
    model = partial(plan_models.build, "gpt2", 1, False, {"sequence": 1024})
    assert plan.plan(model, mesh).elements == 124_439_808


@pytest.mark.parametrize("name", ["gpt2", "llama-8b"])
def test_a_pair_of_split_layers_takes_one_collective_forward_and_one_backward(name: str) -> None:
    reduced = []
    for layers in (2, 5):
        model = partial(plan_models.build, name, 2, False, SIZES | {"layers": layers})
        reduced.append(calls_of(plan.plan(model, {"tp": 4}))["tp", "all_reduce"])
    assert reduced[1] - reduced[0] == 3 * 4  # attention and the feed-forward layers, two each


@pytest.mark.full
def test_the_plan_of_a_large_model_is_what_one_calculates_by_hand() -> None:
    """A Llama of 70 billion parameters on 64 times 8 ranks: rows are divided by 64, layers split by 8."""
    width, rows = 8192, 128256 // 8
    attention = 1024 // 64 * width + 2 * (128 // 64) * width + width // 64 * 1024
    feeds = 2 * (3584 // 64) * width + width // 64 * 3584
    norm = width // 64
    rest = norm + 2 * math.ceil(rows / 64) * width
    elements = 80 * (attention + feeds + 2 * norm) + rest
    model = partial(plan_models.build, "llama-70b", 1, True, {})
    result = plan.plan(model, {"dp": 64, "tp": 8}, compute_dtype=tb.bfloat16)
    assert result.elements == 80 * 8 * 64 * (attention + feeds) + (161 + 2 * 128256) * width
    memory = result.memory
    assert (memory.parameters, memory.gradients) == (4 * elements, 4 * elements)
    assert 8 * elements <= memory.optimizer <= 8 * elements + 8 * 1024  # and the number of steps of each
    calls = calls_of(result)
    assert calls["dp", "all_gather"] == 2 * 80 + 1  # each block forward and backward; the rest stays whole
    assert calls["dp", "reduce_scatter"] == 81
    # Blocks take two forward, again where they run again, and backward; embedding and head one each.
    assert calls["tp", "all_reduce"] == 80 * 6 + 2
    rows_of = {(row.dimension, row.operation): row for row in result.traffic}
    gathered, reduced = rows_of["dp", "all_gather"], rows_of["tp", "all_reduce"]
    assert gathered.bytes == 2 * (2 * elements - rest)  # bfloat16, blocks twice
    assert gathered.sent == 63 * gathered.bytes
    assert reduced.bytes == 482 * 8192 * width * 2
    assert reduced.sent == reduced.bytes * 2 * 7 // 8


def _wide() -> tuple[nn.Module, tuple[tb.Tensor]]:
    return nn.Sequential(nn.Linear(64, 96, bias=False), nn.Linear(96, 64)), (tb.ones((2, 64)),)


@pytest.mark.parametrize("ranks", [7, 64, 96, 100, 1_000_000])
def test_a_plan_of_any_number_of_ranks(ranks: int) -> None:
    """Parts are those of chunk: what a rank has, and sends, on more ranks than there are rows too."""
    result = plan.plan(_wide, {"dp": ranks}, optimizer="sgd")
    rows = [-(-n // ranks) for n in (96, 64, 64)]  # of the first rank, which has the largest parts
    mine = rows[0] * 64 + rows[1] * 96 + rows[2]
    assert result.memory.parameters == result.memory.gradients == 4 * mine
    whole = 96 * 64 * 2 + 64
    filled = mine * ranks if mine * ranks <= 1.25 * whole else whole
    gather, reduce = result.traffic
    assert (gather.operation, gather.calls, gather.bytes) == ("all_gather", 1, 4 * mine)
    assert gather.sent == (ranks - 1) * gather.bytes
    assert (reduce.operation, reduce.calls, reduce.bytes) == ("reduce_scatter", 1, 4 * filled)
    assert reduce.sent == 4 * (filled - mine)
