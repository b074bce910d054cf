"""The kit finds what is wrong with a device's compiled programs, where its kernels are right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tensorbus.backend_api import CompileRequest, Executable, Interpreting

from faulty import NAME, device, outcome, problems

pytestmark = pytest.mark.full

Spoil = Callable[[CompileRequest, list[Any]], list[Any]]


@dataclass(frozen=True)
class Spoiling:
    """A lowering whose programs are right but for what ``spoil`` does to their results."""

    spoil: Spoil

    def compile(self, order: CompileRequest) -> Executable:
        return Spoiled(order, Interpreting(NAME).compile(order), self.spoil)


@dataclass
class Spoiled:
    order: CompileRequest
    right: Executable
    spoil: Spoil
    runs: int = 0

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        self.runs += 1
        return self.spoil(self.order, list(self.right(values)))

    def stages(self) -> Mapping[str, str]:
        return self.right.stages()


def has(order: CompileRequest, op: str) -> bool:
    return any(node.op == op for node in order.graph)


def problem_of(op: str, spoil: Spoil, dtype: str = "float32") -> str:
    """Return what the kit says of the compiled programs; it says nothing of the kernels."""
    with device(lowering=Spoiling(spoil)):
        seen = problems(op, dtype)
    assert set(seen) <= {"compiled", "derivative", "jvp"}  # whose programs it makes too
    return seen.get("compiled", "")


@pytest.mark.parametrize(
    "op", ["add", "exp", "sum", "matmul", "sort", "softmax", "full", "reshape", "gather"]
)
def test_nothing_is_found_where_nothing_is_wrong(op: str) -> None:
    assert problem_of(op, lambda order, outs: outs) == ""
    with device():
        assert outcome(op).findings == ()


def test_a_program_of_other_bits_is_not_taken_for_one_that_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ``compile`` compares, one of a few calls is Python's: its bits are the kernels'."""
    monkeypatch.setenv("TENSORBUS_COMPARE_EAGER", "1")
    assert problem_of("exp", lambda order, outs: [np.nextafter(x, np.inf, dtype=x.dtype) for x in outs]) == ""


def test_a_lowering_that_computes_something_else() -> None:
    assert "wrong; at" in problem_of("exp", lambda order, outs: [x * np.float32(1.01) for x in outs])


def test_a_lowering_that_is_a_little_off() -> None:
    def spoil(order: CompileRequest, outs: list[Any]) -> list[Any]:
        return [x * np.float32(1 + 2e-6) for x in outs]

    assert "within 3 ulp" in problem_of("exp", spoil)


def test_a_lowering_that_is_wrong_in_one_of_many_calls() -> None:
    def spoil(order: CompileRequest, outs: list[Any]) -> list[Any]:
        *others, last = outs
        return [*others, np.asarray(last + 1, last.dtype)]

    assert "wrong; at" in problem_of("negative", spoil)


def test_a_lowering_that_widens() -> None:
    assert "compiled" in problem_of("exp", lambda order, outs: [x.astype(np.float64) for x in outs])


def test_a_lowering_that_loses_a_shape() -> None:
    assert problem_of("multiply", lambda order, outs: [x.reshape(-1) for x in outs])


def test_a_lowering_that_raises_names_the_call_at_fault() -> None:
    def spoil(order: CompileRequest, outs: list[Any]) -> list[Any]:
        if any(not x.size for x in outs):
            raise RuntimeError("nothing to do")
        return outs

    with device(lowering=Spoiling(spoil)):
        findings = outcome("multiply").findings
    assert findings
    assert {f.check for f in findings} == {"compiled"}
    assert all("nothing to do" in f.problem and "0" in f.call for f in findings)


def test_a_program_that_is_wrong_from_its_second_run_on() -> None:
    class Wearing(Spoiling):
        def compile(self, order: CompileRequest) -> Executable:
            spoiled = Spoiled(order, Interpreting(NAME).compile(order), lambda order, outs: outs)
            spoiled.spoil = lambda order, outs: outs if spoiled.runs < 2 else [np.zeros_like(x) for x in outs]
            return spoiled

    with device(lowering=Wearing(lambda order, outs: outs)):
        assert problems("exp")["compiled"].startswith("run ")


def test_a_lowering_that_is_wrong_for_gradients_only() -> None:
    def spoil(order: CompileRequest, outs: list[Any]) -> list[Any]:
        return [-x for x in outs] if has(order, "cos") else outs

    assert "gradient of operand 0" in problem_of("sin", spoil)


def test_a_lowering_that_is_wrong_in_another_dtype() -> None:
    def spoil(order: CompileRequest, outs: list[Any]) -> list[Any]:
        return [np.asarray(x + 1, x.dtype) if x.dtype == np.int64 else x for x in outs]

    assert problem_of("add", spoil) == ""
    assert "wrong; at" in problem_of("add", spoil, "int64")


def test_a_lowering_that_is_wrong_on_many_elements() -> None:
    def spoil(order: CompileRequest, outs: list[Any]) -> list[Any]:
        return [np.zeros_like(x) if x.size > 1 << 16 else x for x in outs]

    assert "wrong; at" in problem_of("exp", spoil)
    assert "wrong; at" in problem_of("flip", spoil)


class Around(Spoiling):
    """A lowering with something around the right program: ``spoil`` makes it, for each program anew."""

    def compile(self, order: CompileRequest) -> Executable:
        spoiled = Spoiled(order, Interpreting(NAME).compile(order), lambda order, outs: outs)
        spoiled.right = self.spoil(order, [spoiled.right])[0]
        return spoiled


def around(op: str, run: Callable[[Executable, list[Any]], Any]) -> str:
    """Return what is found where programs are run by ``run(right, values)``."""

    @dataclass
    class Program:
        right: Executable

        def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
            out: Sequence[Any] = run(self.right, list(values))
            return out

        def stages(self) -> Mapping[str, str]:
            return self.right.stages()

    with device(lowering=Around(lambda order, x: [Program(x[0])])):
        return "\n".join(f.problem for f in outcome(op).findings if f.check == "compiled")


def test_a_program_that_changes_its_inputs() -> None:
    def run(right: Executable, values: list[Any]) -> Any:
        outs = right(values)
        for v in values:
            if isinstance(v, np.ndarray) and v.flags.writeable and v.dtype == np.float32:
                np.abs(v, out=v)
        return outs

    assert "changed an operand" in around("abs", run)


def test_a_program_that_ignores_strides() -> None:
    def packed(v: Any) -> Any:
        if not isinstance(v, np.ndarray) or v.flags.c_contiguous or v.base is None:
            return v
        return np.frombuffer(v.base.tobytes(), v.dtype)[: v.size].reshape(v.shape)

    assert "in a box of larger tensors" in around(
        "exp", lambda right, values: right(list(map(packed, values)))
    )


def test_a_program_that_is_not_deterministic() -> None:
    turns = itertools.count()

    def run(right: Executable, values: list[Any]) -> Any:
        late = next(turns) % 3 == 2
        return [
            np.nextafter(x, np.float32(9)) if late and x.dtype == np.float32 else x for x in right(values)
        ]

    assert "other bits when it was made again" in around("exp", run)


def test_a_program_that_uses_its_results_again() -> None:
    cache: dict[Any, Any] = {}

    def run(right: Executable, values: list[Any]) -> Any:
        outs = [np.array(x) for x in right(values)]
        key = tuple((x.shape, x.dtype.name) for x in outs)
        for old, new in zip(cache.setdefault(key, outs), outs, strict=True):
            old[...] = new
        return cache[key]

    assert "changed the result of an earlier one" in around("exp", run)
