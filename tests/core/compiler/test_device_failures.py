"""Device failures in a compiled program are raised: only data-dependent errors are left to Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_interface.compilation import CompileRequest, Executable
from tensorbus.compiler.capture import flush
from tensorbus.compiler.programs import program_cache as executables
from tensorbus.compiler.programs.op_trace import OpTrace
from tensorbus.errors import DeviceError, OutOfMemoryError, ValuesError
from tensorbus.executors.kernel_interpreter import Interpreting


class Failing:
    """The lowering of the default device, whose executables fail as long as ``error`` is one."""

    modes: dict[str, str] = {}

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.runs = 0

    def compile(self, order: CompileRequest) -> Executable:
        compiled = Interpreting(tb.get_default_device().type).compile(order)

        def run(values: Sequence[Any]) -> Sequence[Any]:
            self.runs += 1
            if self.error is not None:
                raise self.error
            return compiled(values)

        return run


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Failing:
    failing = Failing()
    backend = plugins.backend(tb.get_default_device().type)
    executables.clear()
    monkeypatch.setattr(backend, "_lowering", (failing,))
    yield failing
    executables.clear()


def step(x: tb.Tensor, weight: tb.Tensor, index: tb.Tensor) -> tb.Tensor:
    weight[...] = weight + x[index].sum()
    return weight * 2


def captured() -> tuple[Callable[..., Any], tuple[tb.Tensor, ...]]:
    args = (tb.arange(4.0), tb.zeros(2), tb.asarray([1, 2]))
    compiled = tb.compile(step)
    compiled(*args)
    assert compiled.replays, compiled.reasons
    assert args[1].tolist() == [3.0, 3.0]
    return compiled, args


@pytest.mark.parametrize(
    "error",
    [
        DeviceError("add(float32[2]) on a card: it fell off the bus."),
        OutOfMemoryError("add(float32[2]): no memory left."),
        MemoryError("no memory left"),
        RuntimeError("a driver's own"),
        TypeError("a bug"),
        KeyboardInterrupt(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_failure_of_the_device_is_raised_and_changes_nothing(device: Failing, error: BaseException) -> None:
    compiled, args = captured()
    device.error, runs = error, device.runs
    own = not isinstance(error, (tb.TensorbusError, MemoryError, KeyboardInterrupt))
    with pytest.raises(DeviceError if own else type(error)) as raised:
        compiled(*args)
    assert (raised.value.__cause__ if own else raised.value) is error
    assert not own or "of tensorbus-" in str(raised.value)
    assert device.runs == runs + 1
    assert args[1].tolist() == [3.0, 3.0]
    device.error = None
    assert compiled(*args).tolist() == [12.0, 12.0]
    assert args[1].tolist() == [6.0, 6.0]
    assert len(compiled.replays) == 1


def test_a_data_dependent_error_is_left_to_python(device: Failing) -> None:
    compiled, args = captured()
    device.error = ValuesError("gather: out of range")
    assert compiled(*args).tolist() == [12.0, 12.0]
    assert args[1].tolist() == [6.0, 6.0]


def training() -> tuple[tb.nn.Module, tb.optim.Optimizer, Callable[[tb.Tensor], tb.Tensor]]:
    """Return a model, its optimizer, and a step that trains it."""
    model = tb.nn.Linear(2, 1)
    optimizer = tb.optim.Adam(model.parameters(), lr=0.1)

    def train(x: tb.Tensor) -> tb.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, train


def test_a_training_step_that_fails_leaves_its_state(
    device: Failing,
) -> None:
    model, optimizer, train = training()
    compiled, x = tb.compile(train), tb.ones((3, 2))
    while not compiled.replays:
        compiled(x)
    before = model.weight.tolist(), optimizer.state[model.weight]["step"]
    device.error = DeviceError("matmul(float32[3,2], float32[2,1]) on a card: it fell off the bus.")
    with pytest.raises(DeviceError, match="matmul"):
        compiled(x)
    assert (model.weight.tolist(), optimizer.state[model.weight]["step"]) == before
    device.error = None
    compiled(x)
    assert optimizer.state[model.weight]["step"] == before[1] + 1


def test_a_kernel_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = plugins.backend(tb.get_default_device().type)
    executables.clear()
    monkeypatch.setattr(backend, "_lowering", (Interpreting(backend.type),))
    compiled = tb.compile(lambda x: x.exp() + 1)
    x = tb.ones(3)
    compiled(x)
    executable = compiled.replays[0].prepared.program.executable
    name = next(n for n in executable._names if n.startswith("k_"))

    def broken(*values: Any) -> Any:
        raise OSError("the bus is gone")

    monkeypatch.setitem(executable._run.__globals__, name, broken)
    with pytest.raises(DeviceError, match=r"(exp|add)\(float32.* failed with OSError: the bus is gone"):
        compiled(x)
    executables.clear()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=repr)
@pytest.mark.parametrize("moment", ["compiled", "run", "taken over"])
@pytest.mark.parametrize("after", [0, 1])
def test_an_interrupt_while_a_step_is_captured_leaves_old_or_new_values(
    device: Failing, monkeypatch: pytest.MonkeyPatch, error: BaseException, moment: str, after: int
) -> None:
    model, _, train = training()
    x = tb.ones((3, 2))
    with monkeypatch.context() as patch:
        compiled = tb.compile(train)
        for _ in range(after):
            compiled(x)
        compiled = tb.compile(train) if after else compiled
        executables.clear()
        before = model.weight.tolist()

        def interrupted(*args: Any) -> Any:
            raise error

        if moment == "run":
            device.error = error
        elif moment == "compiled":
            patch.setattr(device, "compile", interrupted)
        else:
            patch.setattr(flush.TraceFlush, "_values", _once(interrupted, flush.TraceFlush._values))
        with pytest.raises(type(error)):
            compiled(x)
    device.error = None
    got = model.weight.tolist()
    if moment == "run":
        assert got == before
    else:
        assert got != before
    assert all(abs(v) < 10 for row in got for v in row)
    for p in model.parameters():
        assert p.grad is None or p.grad.shape == p.shape == tb.asarray(p.grad.tolist()).shape
    for _ in range(3):
        loss = compiled(x).item()
    assert loss == loss
    assert compiled.replays, compiled.reasons


def _once(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    calls = [first]

    def call(*args: Any) -> Any:
        return calls.pop()(*args) if calls else then(*args)

    return call


def test_an_interrupt_between_two_devices_leaves_new_values(monkeypatch: pytest.MonkeyPatch) -> None:
    here = tb.zeros(2)
    there = tb.zeros(2, device="refdev")

    @tb.compile
    def both() -> None:
        here[...] = here + 1
        there[...] = there + here.to("refdev")

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(flush.TraceFlush, "_note", _once(interrupted, flush.TraceFlush._note))
        with pytest.raises(KeyboardInterrupt):
            both()
    assert here.tolist() == [1.0, 1.0]
    assert there.tolist() == [1.0, 1.0]


def test_a_backward_program_that_cannot_be_compiled_raises(
    device: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(order: CompileRequest) -> Executable:
        raise RuntimeError("no room for code")

    x = tb.ones(3).requires_grad_()
    monkeypatch.setattr(device, "compile", refuse)
    with pytest.raises(RuntimeError, match="no room for code"):
        tb.compile(lambda x: tb.softmax(x * 3 - 1))(x)


def test_an_interrupt_in_the_midst_of_a_new_input_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = tb.ones(2), tb.ones(2)
    add = OpTrace.add

    def interrupted(self: OpTrace, op: str, *args: Any) -> Any:
        if op == "input" and len(self.sources) == 2:
            raise KeyboardInterrupt
        return add(self, op, *args)

    @tb.compile
    def change() -> None:
        weight[...] = weight * 2
        weight[...] = weight + x

    with monkeypatch.context() as patch:
        patch.setattr(OpTrace, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            change()
    assert weight.tolist() == [2.0, 2.0]
