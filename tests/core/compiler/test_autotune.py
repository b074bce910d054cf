"""``mode="max-autotune"``: knobs of a lowering are chosen by timing the program, and stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.backend_interface.compilation import CompileRequest, Knob
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.compiler.programs.autotune import autotune
from tensorbus.devices.device import Device
from tensorbus.dtypes import definition as dt
from tensorbus.errors import DeviceError
from tensorbus.ops.definition import Spec

CPU = Device("cpu", 0)
SLOW, FAST = 0.02, 1e-4


class Clock:
    """Seconds that pass where a program runs; a look takes a millionth."""

    seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1e-6
        return self.seconds


CLOCK = Clock()


def order(*shapes: tuple[int, ...]) -> CompileRequest:
    specs = [Spec(shape, dt.float32) for shape in shapes]
    inputs = tuple(Node(op="input", attrs={"index": k}, spec=spec) for k, spec in enumerate(specs))
    return CompileRequest(graph=Graph(inputs=inputs, outputs=inputs), index=0, mode="max-autotune")


class Program:
    """An executable that takes as long as it is told to, in two steps."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = seconds
        self.runs = 0

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        self.runs += 1
        CLOCK.seconds += sum(self.seconds)
        return values

    def stages(self) -> Mapping[str, str]:
        return {}

    def times(self, values: Sequence[Any]) -> Mapping[str, float]:
        return {f"step {k}": seconds for k, seconds in enumerate(self.seconds)}


class Lowering:
    """A lowering with knobs, whose programs' steps take what ``takes`` says of a value."""

    def __init__(self, *knobs: Knob, takes: Mapping[tuple[int, int], float]) -> None:
        self._knobs, self._takes = knobs, takes
        self.orders: list[CompileRequest] = []
        self.programs: list[Program] = []

    def knobs(self, order: CompileRequest) -> Sequence[Knob]:
        return self._knobs

    def compile(self, order: CompileRequest) -> Program:
        self.orders.append(order)
        whole = order.chosen.get("width", 1)
        values = [order.chosen.get(f"width@step {k}", whole) for k in range(2)]
        self.programs.append(Program([self._takes[k, v] for k, v in enumerate(values)]))
        return self.programs[-1]


TAKES = {(0, 1): SLOW, (0, 2): FAST, (1, 1): FAST, (1, 2): SLOW / 2}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tensorbus.compiler.programs.autotune.perf_counter", CLOCK)


def knob(each: bool = False) -> Knob:
    return Knob(name="width", usual=1, values=(1, 2), what="how wide", each=each)


def test_the_fastest_value_is_taken_and_said() -> None:
    lowering = Lowering(knob(), takes=TAKES)
    program, notes = autotune(CPU, lowering, order((3,)))
    assert program is lowering.programs[-1]
    assert dict(lowering.orders[-1].chosen) == {"width": 2}
    note, total = notes
    assert "width, how wide: 2 instead of 1" in note
    assert "all together" in total


def test_the_usual_value_stays_where_no_other_is_faster() -> None:
    lowering = Lowering(knob(), takes={**TAKES, (0, 1): FAST})
    program, notes = autotune(CPU, lowering, order((3,)))
    assert program is lowering.programs[0]
    assert "1 as ever, no value is faster" in notes[0]


def test_a_value_for_each_step() -> None:
    lowering = Lowering(knob(each=True), takes=TAKES)
    _, notes = autotune(CPU, lowering, order((3,)))
    assert dict(lowering.orders[-1].chosen) == {"width@step 0": 2}
    assert "2 for step 0 instead of 1" in notes[0]


def test_a_result_is_stored_on_disk_for_the_same_program() -> None:
    _, notes = autotune(CPU, Lowering(knob(), takes=TAKES), order((3,)))
    again = Lowering(knob(), takes=TAKES)
    program, same = autotune(CPU, again, order((3,)))
    assert same == notes
    assert [dict(o.chosen) for o in again.orders] == [{"width": 2}]
    assert isinstance(program, Program)
    assert program.runs == 0
    other = Lowering(knob(), takes=TAKES)
    autotune(CPU, other, order((4,)))
    assert len(other.orders) > 1, "another program is measured anew"


def test_a_damaged_result_is_measured_anew(tmp_path: Path) -> None:
    autotune(CPU, Lowering(knob(), takes=TAKES), order((3,)))
    (path,) = [p for p in (tmp_path / "cpu" / "choices").iterdir() if p.suffix != ".sha256"]
    path.write_bytes(b"{}")
    again = Lowering(knob(), takes=TAKES)
    with pytest.warns(RuntimeWarning, match="is damaged, or was changed"):
        autotune(CPU, again, order((3,)))
    assert len(again.orders) > 1


def test_a_hopeless_value_is_run_twice_at_most() -> None:
    lowering = Lowering(knob(), takes={(0, 1): FAST, (0, 2): SLOW, (1, 1): 0.001, (1, 2): SLOW})
    autotune(CPU, lowering, order((3,)))
    assert lowering.programs[1].runs == 2


@pytest.mark.parametrize("each", [False, True])
def test_a_value_that_the_device_refuses_is_said_and_not_taken(each: bool) -> None:
    class Refusing(Lowering):
        def compile(self, order: CompileRequest) -> Program:
            if 3 in order.chosen.values():
                raise DeviceError("too wide for this device")
            return super().compile(order)

    widths = Knob(name="width", usual=1, values=(3, 1, 2), what="how wide", each=each)
    lowering = Refusing(widths, takes=TAKES)
    _, notes = autotune(CPU, lowering, order((3,)))
    assert 2 in lowering.orders[-1].chosen.values()
    assert "3 cannot be run: too wide for this device" in notes[0]


def test_explain_says_that_a_device_has_nothing_to_choose() -> None:
    x = tb.ones((4, 8), device="refdev")
    for mode, text in (("max-autotune", "nothing to choose"), ("reduce-overhead", "nothing to gain")):
        report = tb.compile.explain(tb.compile(lambda x: tb.softmax(x * 2), mode=mode))(x)
        (note,) = report.notes
        assert note.startswith(mode)
        assert text in note
        assert note in str(report)
    assert tb.compile.explain(lambda x: x + 1)(x).notes == ()
