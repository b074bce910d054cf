"""``tb.compile.explain`` reports the call that it makes, whatever was captured before."""

import tensorbus as tb
from tensorbus.compiler.compiled_function import CompiledFunction


def branches() -> CompiledFunction[..., tb.Tensor]:
    @tb.compile(dynamic=False)
    def f(x: tb.Tensor, number: bool) -> tb.Tensor:
        if number:
            return x * x.sum().item()
        return x * 2 if x.shape[0] == 2 else tb.sin(x)

    for n in (2, 3):
        f(tb.ones((n,)), False)
    return f


def test_an_earlier_program_that_runs_again() -> None:
    f = branches()
    for n, op in ((2, "multiply"), (3, "sin"), (2, "multiply")):
        report = tb.compile.explain(f)(tb.ones((n,)), False)
        assert [op in str(graph) for graph in report.graphs] == [True]
        assert f"the shape of argument x (Tensor), ({n},)" in {guard.text for guard in report.guards}
        assert len(report.recompiles) == 1


def test_an_earlier_program_of_another_length() -> None:
    f = tb.compile(lambda x: x * 2, dynamic=True)
    for n in range(2, 90):  # more than are lowered one by one
        f(tb.ones((n,)))
    for n in (5, 7, 5, 100, 101):
        (graph,) = tb.compile.explain(f)(tb.ones((n,))).graphs
        assert f"float32[{n}] = multiply" in str(graph)


def test_a_program_beside_a_call_that_is_left_to_python() -> None:
    f = branches()
    left = tb.compile.explain(f)(tb.ones((2,)), True)
    assert "needs values" in str(left.reason)
    assert (len(left.graphs), len(left.breaks), left.guards) == (2, 1, ())
    report = tb.compile.explain(f)(tb.ones((2,)), False)
    assert (len(report.graphs), len(report.breaks), report.segments) == (1, 1, 1)
    assert report.guards
    assert "1 segment(s); Python runs the lines between: it needs values" in str(report)


def test_guards_are_told_by_the_names_of_the_code() -> None:
    class Scale:
        factor = 2.0

        def of(self, x: tb.Tensor) -> tb.Tensor:
            return tb.sin(x) * self.factor

    report = tb.compile.explain(Scale().of)(tb.ones((2,)))
    texts = " | ".join(guard.text for guard in report.guards)
    assert f"attribute 'factor' of class {Scale.__qualname__}, which was 2.0" in texts
    assert "what is looked up in tensorbus: attribute 'sin'" in texts
