"""Modes: the order in which they nest, what they see, and that nothing of them runs where there is none."""

from __future__ import annotations

import asyncio
import dis
import math
import threading

import pytest
import tensorbus as tb
from tensorbus.backend_interface.graph import Graph
from tensorbus.decompose.tracer import OPS, PRIMS, GraphTracer
from tensorbus.dispatch import modes
from tensorbus.dtypes.definition import FLOATING
from tensorbus.func import Mode
from tensorbus.ops.definition import Op, Spec, table
from tensorbus.tracing.active_modes import active_modes, mode_stack

from error_bounds import assert_alike


class Log(Mode):
    """Notes the ops that it sees, with the shapes of their tensors, under a name."""

    def __init__(self, name: str, log: list) -> None:
        self.name, self.log = name, log

    def apply(self, op, operands, attrs):
        self.log.append((self.name, op.name, *[getattr(x, "shape", x) for x in operands]))
        return NotImplemented


class Swap(Mode):
    """Runs subtraction in the place of addition."""

    def apply(self, op, operands, attrs):
        return operands[0] - operands[1] if op.name == "add" else NotImplemented


class Double(Mode):
    """Adds to each sum what was added once more, by the modes below."""

    def apply(self, op, operands, attrs):
        if op.name != "add":
            return NotImplemented
        return self.below(op, (self.below(op, operands, attrs), operands[1]), attrs)


class Halved(Mode):
    """Gives exp half of its operand."""

    def rewrite(self, op, operands, attrs):
        return [operands[0] * 0.5] if op.name == "exp" else operands


@pytest.fixture(autouse=True)
def no_mode_is_left():
    yield
    assert not active_modes
    assert mode_stack.get() == ()


def test_the_innermost_mode_is_asked_first() -> None:
    log: list = []
    x = tb.ones((2,))
    with Log("outer", log), Log("inner", log):
        x + x
    assert log == [("inner", "add", (2,), (2,)), ("outer", "add", (2,), (2,))]


def test_a_mode_is_off_the_stack_while_it_runs_an_op() -> None:
    log: list = []
    x = tb.asarray([3.0])
    with Log("outer", log), Swap(), Log("inner", log):
        assert (x + 1.0).tolist() == [2.0]
    assert log == [("inner", "add", (1,), 1.0), ("outer", "subtract", (1,), 1.0)]
    with Double(), Swap():
        assert (x + 1.0).tolist() == [2.0]
    with Swap(), Double():
        assert (x + 1.0).tolist() == [1.0]
    assert (x + 1.0).tolist() == [4.0]


def test_operands_are_rewritten_before_any_mode_runs_the_op() -> None:
    log: list = []
    x = tb.asarray([2.0], dtype="float64")
    with Halved(), Log("log", log):
        assert_alike(tb.exp(x).tolist(), [math.e], 2, "float64")
    assert [name for _, name, *_ in log] == ["multiply", "exp"]
    with tb.autocast(), Log("log", log := []):
        a = tb.ones((2, 2))
        assert (a @ a).dtype is tb.bfloat16
    assert [name for _, name, *_ in log] == ["full", "cast", "cast", "matmul"]


def test_ops_of_several_results_go_through_modes() -> None:
    class Negated(Mode):
        def apply(self, op, operands, attrs):
            return [-x for x in self.below(op, operands, attrs)] if op.results else NotImplemented

    op = table.add(
        Op(
            name="a_pair", family="pair", operands=("x",), arguments=lambda x: ((x,), {}),
            results=("square", "triple"), infer=lambda specs: (specs[0], specs[0]), dtypes=FLOATING,
            decompose=lambda x: (x * x, x * 3),
        )
    )  # fmt: skip
    try:
        with Negated():
            pair = op(tb.asarray([2.0, 3.0]))
    finally:
        table.discard("a_pair")
    assert (pair.square.tolist(), pair.triple.tolist()) == ([-4.0, -9.0], [-6.0, -9.0])


def test_gradients_are_those_of_what_ran() -> None:
    x = tb.asarray([3.0]).requires_grad_()
    with Swap():
        (1.0 + x).sum().backward()
    assert x.grad.tolist() in ([-1.0], [1.0])
    x.grad, log = None, []
    y = (x * x).sum()
    with Log("log", log):
        y.backward()
    assert x.grad.tolist() == [6.0]
    assert "multiply" in [name for _, name, *_ in log]


def test_in_place_changes_are_ops_too() -> None:
    log: list = []
    x = tb.ones((2,))
    with Log("log", log):
        x += 1.0
        x.mul_(2.0)
        x[0] = 5.0
    assert x.tolist() == [5.0, 4.0]
    assert [name for _, name, *_ in log][:2] == ["add", "multiply"]


@pytest.mark.parametrize("compiled", [False, True])
def test_vmap_inside_autocast_and_reverse(compiled: bool) -> None:
    rows = tb.ones((3, 2, 2))

    def inside(x):
        with tb.autocast(tb.float16):
            return x @ x

    def around(xs):
        with tb.autocast(tb.float16):
            return tb.vmap(lambda x: x @ x)(xs)

    for function in (tb.vmap(inside), around):
        run = tb.compile(function) if compiled else function
        for _ in range(2):
            out = run(rows)
            assert out.dtype is tb.float16
            assert out.tolist() == [[[2.0, 2.0]] * 2] * 3


def test_a_mode_around_vmap_sees_all_examples_and_one_inside_sees_one() -> None:
    log: list = []
    rows = tb.ones((3, 2))
    with Log("around", log):
        tb.vmap(lambda row: row + row)(rows)
    assert ("around", "add", (3, 2), (3, 2)) in log
    assert ("around", "add", (2,), (2,)) not in log

    def inside(row):
        with Log("inside", log):
            return row + row

    log.clear()
    with Log("around", log):
        tb.vmap(inside)(rows)
    added = [entry for entry in log if entry[1] == "add"]
    assert added == [("inside", "add", (2,), (2,)), ("around", "add", (3, 2), (3, 2))]


def test_levels_of_vmap_nest() -> None:
    log: list = []
    x = tb.ones((2, 3, 4))
    with Log("around", log):
        out = tb.vmap(tb.vmap(lambda v: v.sum()))(x)
    assert out.tolist() == [[4.0] * 3] * 2
    assert ("around", "sum", (2, 3, 4)) in log


def test_a_decomposition_is_not_seen() -> None:
    log: list = []
    x = tb.ones((4,), device="refdev")
    with Log("log", log):
        tb.nn.functional.silu(x)
    assert [name for _, name, *_ in log] == ["silu"]


def test_a_compiled_function_inside_a_mode_runs_op_by_op() -> None:
    log: list = []
    run = tb.compile(lambda x: x * 2.0 + 1.0)
    x = tb.ones((2,))
    run(x)
    with Log("log", log):
        assert run(x).tolist() == [3.0, 3.0]
    assert [name for _, name, *_ in log] == ["multiply", "add"]
    assert run(x).tolist() == [3.0, 3.0]
    assert run.recompiles == []


def test_a_mode_inside_a_compiled_function_is_compiled_in() -> None:
    def function(x):
        with Swap():
            y = x + 1.0
        return y * 2.0

    run = tb.compile(function)
    for n in (3.0, 5.0, 7.0):
        assert run(tb.asarray([n])).tolist() == [(n - 1) * 2]
    assert run.recompiles == []
    assert run.reasons == []


def test_a_mode_of_this_program_that_a_compiled_function_enters() -> None:
    run = tb.compile(_with_global_mode)
    for n in (3.0, 5.0, 7.0):
        assert run(tb.asarray([n])).tolist() == [n - 1]


_SWAP = Swap()


def _with_global_mode(x):
    with _SWAP:
        return x + 1.0


def test_errors_unwind_the_stack() -> None:
    class Refuse(Mode):
        def apply(self, op, operands, attrs):
            raise RuntimeError("refused")

    x = tb.ones((2,))
    log: list = []
    with Log("outer", log):
        with pytest.raises(RuntimeError, match="refused"), Refuse():
            x + x
        assert len(mode_stack.get()) == 1
        with pytest.raises(tb.ShapeError):
            x + tb.ones((3,))
        x * x
    assert log[-1][1] == "multiply"


def test_an_error_inside_a_capture_unwinds_it() -> None:
    def fails(x):
        with Swap():
            x + 1.0
            raise KeyError("inside")

    with pytest.raises(KeyError):
        tb.compile(fails)(tb.ones((2,)))


def test_threads_have_stacks_of_their_own() -> None:
    log, results = [], []
    x = tb.ones((2,))

    def other() -> None:
        results.append((mode_stack.get(), (x + x).tolist()))
        with Log("other", log):
            x * x

    with Log("main", log):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert results == [((), [2.0, 2.0])]
    assert [name for name, *_ in log] == ["other"]


def test_tasks_have_stacks_of_their_own_and_inherit() -> None:
    log: list = []
    x = tb.ones((2,))

    async def enters(name: str) -> None:
        with Log(name, log):
            await asyncio.sleep(0)
            x + x
            await asyncio.sleep(0)

    async def plain() -> None:
        for _ in range(3):
            x * x
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(enters("a"), plain(), enters("b"))
        assert log == [("a", "add", (2,), (2,)), ("b", "add", (2,), (2,))]
        log.clear()
        with Log("outer", log):
            inside = asyncio.create_task(plain())
            await inside
            late = asyncio.create_task(plain())
        assert len(log) == 3
        await late  # a mode has ended where its block has, for those too who inherited it
        assert len(log) == 3

    asyncio.run(main())


def test_modes_that_generators_leave_out_of_order() -> None:
    log: list = []
    x = tb.ones((2,))

    def generator():
        with Log("generator", log):
            yield x + x

    steps = generator()
    next(steps)
    with Log("later", log):
        steps.close()
        x * x
    assert [(name, op) for name, op, *_ in log] == [("generator", "add"), ("later", "multiply")]


def test_one_mode_entered_twice_sees_an_op_twice() -> None:
    log: list = []
    mode = Log("log", log)
    x = tb.ones((2,))
    with mode, mode:
        x + x
    assert len(log) == 2


def test_with_no_mode_nothing_of_modes_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args):
        raise AssertionError("a mode's code ran")

    for name in ("apply_modes", "stack_of"):
        monkeypatch.setattr(modes, name, fail)
    monkeypatch.setattr("tensorbus.eager.runner.apply_modes", fail)
    x = tb.ones((2,))
    assert (tb.exp(x - 1.0) + x.sum(axis=0)).tolist() == [5.0 - 2.0] * 2
    assert tb.topk(x, 1).values.tolist() == [1.0]


@pytest.mark.parametrize("name", ["exp", "add"])
def test_the_hot_path_asks_once_whether_there_is_a_mode(name: str) -> None:
    function = tb.exp if name == "exp" else tb.add
    names = [i.argval for i in dis.get_instructions(function) if i.opname == "LOAD_GLOBAL"]
    assert names.count("active_modes") == 1
    assert not {"mode_stack", "apply_modes", "active_tracer"} & {*names}


def test_graph_tracers_keep_what_they_are_told_to_keep() -> None:
    specs = [Spec((2, 3), tb.float32)]

    def function(x):
        return tb.nn.functional.silu(x) + 1.0

    def ops(tracer: GraphTracer) -> set[str]:
        _, out = tracer.trace(function, specs)
        return {node.op for node in Graph(inputs=(), outputs=(out._value,))}

    assert "silu" in ops(OPS)
    assert "silu" not in ops(PRIMS)
    chosen = GraphTracer("chosen", lambda op: op.is_prim or op.name == "silu")
    assert ops(chosen) == ops(OPS)


def test_a_trace_is_not_seen_by_modes_nor_changed_by_autocast() -> None:
    log: list = []
    with Log("log", log), tb.autocast(), Swap():
        _, out = OPS.trace(lambda x: x @ x + x, [Spec((2, 2), tb.float32)])
    assert log == []
    assert out.dtype is tb.float32


def test_a_trace_takes_no_tensor_from_outside() -> None:
    y = tb.ones((2,))
    with pytest.raises(tb.DeviceError, match="no input"):
        OPS.trace(lambda x: x + y, [Spec((2,), tb.float32)])
