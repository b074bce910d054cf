"""Kernel selection as users see and steer it: explain, prefer_kernel, TENSORBUS_LOG=dispatch, fallback."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_api import Kernel, hookimpl
from tensorbus.dispatch.host_fallback import HostCount
from tensorbus.dispatch.kernel_tables import in_order
from tensorbus.dtypes.definition import FLOATING
from tensorbus.ops.definition import Op, table
from tensorbus.plugins.manifest import Manifest

X = tb.asarray([1.0, 2.0, 4.0], device="cpu")


def _addon(**kernels: Kernel) -> SimpleNamespace:
    def tensorbus_kernels(device_type: str) -> Any:
        return kernels

    return SimpleNamespace(tensorbus_kernels=hookimpl(tensorbus_kernels))


def _short(call: Any) -> bool | str:
    return call.shapes[0][0] < 10 or "only short ones"


@pytest.fixture
def extra() -> Iterator[list[Any]]:
    """Two kernels for ``cumulative_sum`` on cpu: ``picky`` before all others, ``late`` after them."""
    seen: list[Any] = []

    def run(x: Any, axis: int) -> Any:
        seen.append(x.shape)
        return np.cumsum(x, axis=axis)

    kernels = Kernel(name="picky", function=run, supports=_short, before=("*",))
    late = Kernel(name="late", function=run)
    plugins.register_plugin(
        "extra", _addon(cumulative_sum=kernels), Manifest(name="extra", kernels_for=("cpu",))
    )
    plugins.register_plugin(
        "other", _addon(cumulative_sum=late), Manifest(name="other", kernels_for=("cpu",))
    )
    yield seen
    plugins.unregister_plugin("extra")
    plugins.unregister_plugin("other")


def test_explain_names_every_kernel_and_why(extra: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    (short,) = tb.explain("cumulative_sum", X, axis=0).decisions
    assert short.verdicts[0].kernel.name == "picky"
    assert short.verdicts[-1].kernel.name == "late"
    assert short.chosen is short.verdicts[0]
    text = capsys.readouterr().out
    assert "cumulative_sum(float32[3], axis=0) on cpu:0: kernel 'picky'" in text
    assert "taken" in text.splitlines()[1]
    (long,) = tb.explain("cumulative_sum", tb.ones(20, device="cpu"), axis=0).decisions
    assert long.verdicts[0].reason == "only short ones"
    assert long.chosen is next(v for v in long.verdicts if v.reason is None)
    assert not extra, "explaining an op runs no kernel"


def test_a_preference_for_no_op_is_refused() -> None:
    with (
        pytest.raises(tb.UnsupportedOpError, match=r"no op is called 'sofmax'\. Did you mean 'softmax'"),
        tb.prefer_kernel(sofmax="generated"),
    ):
        pass
    assert tb.explain("exp", X).decisions[0].chosen is not None


def test_explain_shows_decompositions_and_functions() -> None:
    x = X.to("refdev")
    report = tb.explain("rsqrt", x)
    assert report.decisions[0].outcome == "decomposed into other ops"
    assert report.into == ("sqrt", "divide")
    names = [d.op.name for d in tb.explain(tb.var, x).decisions]
    assert "subtract" in names
    assert "sum" in names
    with pytest.raises(tb.UnsupportedOpError, match=r"no op is called 'sqart'\. Did you mean 'sqrt'"):
        tb.explain("sqart", x)


def test_the_decomposition_and_the_host_are_the_last_candidates(
    lonely: Op[...], capsys: pytest.CaptureFixture[str]
) -> None:
    x = X.to("refdev")
    (decision,) = tb.explain("rsqrt", x).decisions
    assert [c.name for c in decision.candidates] == ["decomposition", "host fallback"]
    assert decision.taken is decision.candidates[0]
    assert decision.chosen is None
    assert "2.  host fallback  of tensorbus  not taken: tensorbus.fallback is 'error' here" in (
        capsys.readouterr().out
    )
    with tb.fallback("allow"):
        decision = tb.explain("a_lonely_prim", x).decisions[0]
    assert decision.taken is decision.candidates[-1]
    tb.explain("add", X, X)
    assert "host fallback" not in capsys.readouterr().out.partition("add(")[2], "cpu is the host"


def test_a_preference_holds_inside_its_block(extra: list[Any]) -> None:
    def run() -> list[float]:
        return tb.cumulative_sum(X).tolist()

    run()
    assert extra == [(3,)]
    with tb.prefer_kernel(cumulative_sum="late"):
        assert [run(), run()] == [[1.0, 3.0, 7.0]] * 2
    own = next(
        v.kernel.name for v in tb.explain("cumulative_sum", X, axis=0).decisions[0].verdicts
        if v.owner.startswith("tensorbus-cpu") and v.reason is None
    )  # fmt: skip
    with tb.prefer_kernel(cumulative_sum=f"tensorbus-cpu:{own}"):
        run()
        run()
    assert len(extra) == 3
    run()
    assert len(extra) == 4


def test_an_impossible_preference_raises(extra: list[Any]) -> None:
    with (
        tb.prefer_kernel(cumulative_sum="picky"),
        pytest.raises(tb.UnsupportedOpError, match="cannot serve this call on cpu:0: only short ones"),
    ):
        tb.cumulative_sum(tb.ones(20, device="cpu"))
    with (
        tb.prefer_kernel(cumulative_sum="quick"),
        pytest.raises(tb.UnsupportedOpError, match="cpu has no kernel 'quick' for it; it has 'picky'"),
    ):
        tb.cumulative_sum(X)
    assert tb.cumulative_sum(tb.ones(20, device="cpu"))[-1].item() == 20
    with pytest.raises(TypeError, match="chosen by its name"):
        tb.prefer_kernel(add=3)


def test_a_preference_is_for_one_thread(extra: list[Any]) -> None:
    inside, done = threading.Event(), threading.Event()
    counts = []

    def other() -> None:
        inside.wait(10)
        tb.cumulative_sum(X)
        counts.append(len(extra))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    (decision,) = tb.explain("cumulative_sum", X, axis=0).decisions
    own = next(v.name for v in decision.verdicts[1:] if v.reason is None)
    with tb.prefer_kernel(cumulative_sum=own):
        tb.cumulative_sum(X)
        assert extra == []
        inside.set()
        assert done.wait(10)
        tb.cumulative_sum(X)
    thread.join()
    assert counts == [1]
    assert len(extra) == 1


def test_a_decorator_and_nesting(extra: list[Any]) -> None:
    @tb.prefer_kernel(cumulative_sum="late")
    def run() -> None:
        tb.cumulative_sum(X)

    with tb.prefer_kernel(cumulative_sum="picky"):
        run()
        run()
    assert len(extra) == 2


def test_order_is_declared_and_never_that_of_loading() -> None:
    def kernel(name: str, **rules: Any) -> Kernel:
        return Kernel(name=name, function=abs, **rules)

    offers = [
        ("own 1.0", kernel("a")),
        ("p 1.0", kernel("b", before=("own:a",))),
        ("q 1.0", kernel("c", after=("b",))),
    ]
    assert [k.name for _, k in in_order("op", offers)] == ["b", "a", "c"]
    both = [("p 1.0", kernel("b", before=("*",))), ("q 1.0", kernel("c", before=("*",)))]
    with pytest.raises(tb.PluginError, match=r"'b' of 'p 1.0' and 'c' of 'q 1.0' each claim to come before"):
        in_order("op", both)
    same = [("own 1.0", kernel("fast")), ("p 1.0", kernel("fast", before=("own:fast",)))]
    assert [owner for owner, _ in in_order("op", same)] == ["p 1.0", "own 1.0"]


def test_the_log_tells_each_choice_once() -> None:
    script = """
import tensorbus as tb
x = tb.ones(30, device="cpu")
tb.cumulative_sum(x)
tb.cumulative_sum(x)
tb.rsqrt(x.to("refdev"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "TENSORBUS_LOG": "dispatch"},
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if "cumulative_sum" in line]
    assert len(lines) == 1
    assert lines[0].startswith("tensorbus: cumulative_sum(float32[30], axis=0) on cpu:0: kernel ")
    assert "tensorbus: rsqrt(float32) on refdev:0: decomposed into other ops" in done.stderr


@pytest.fixture
def lonely() -> Iterator[Op[...]]:
    """A prim that only cpu has a kernel for."""
    op = table.add(
        Op(
            name="a_lonely_prim", family="lonely", operands=("x",), arguments=lambda x: ((x,), {}),
            infer=lambda specs: specs[0], vjp=lambda g: (g * 2,), dtypes=FLOATING,
        )
    )  # fmt: skip
    addon = _addon(a_lonely_prim=Kernel(name="double", function=lambda x: x * 2))
    plugins.register_plugin("lonely", addon, Manifest(name="lonely", kernels_for=("cpu",)))
    tb.fallback_counts(reset=True)
    yield op
    plugins.unregister_plugin("lonely")
    table.discard(op.name)
    tb.fallback_counts(reset=True)


def test_nothing_falls_back_unless_asked(lonely: Op[...]) -> None:
    x = X.to("refdev").requires_grad_()
    with pytest.raises(
        tb.UnsupportedOpError, match=r"a_lonely_prim: no kernel on refdev:0.*supported on cpu"
    ):
        lonely(x)
    with tb.fallback("allow"):
        y = lonely(x)
        assert (y.tolist(), str(y.device)) == ([2.0, 4.0, 8.0], "refdev:0")
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3
    assert tb.fallback_counts() == {("a_lonely_prim", "refdev"): HostCount(calls=1, bytes=24)}
    with pytest.raises(tb.UnsupportedOpError, match="'error' here"):
        lonely(x)


def test_a_fallback_warns_where_asked(lonely: Op[...]) -> None:
    with (
        tb.fallback("warn"),
        pytest.warns(tb.FallbackWarning, match=r"a_lonely_prim has no kernel on refdev:0"),
    ):
        lonely(X.to("refdev"))
    with tb.fallback("warn"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lonely(X).tolist() == [2.0, 4.0, 8.0]


def test_a_fallback_names_the_line_that_asked(lonely: Op[...]) -> None:
    x = X.to("refdev")
    calls = (lambda: lonely(x), lambda: tb.checkpoint(lonely, x))
    for call in calls:
        with tb.fallback("warn"), pytest.warns(tb.FallbackWarning) as warned:
            call()
        assert warned[0].filename == __file__


def test_explain_tells_of_the_fallback(lonely: Op[...]) -> None:
    x = X.to("refdev")
    assert tb.explain("a_lonely_prim", x).decisions[0].outcome == "refused: no kernel"
    with tb.fallback("allow"):
        assert tb.explain("a_lonely_prim", x).decisions[0].outcome == "falls back to the host"


def test_creation_never_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorbus.dispatch import kernel_tables

    tb.zeros(1, device="refdev")
    monkeypatch.setattr(kernel_tables.tables_of("refdev"), "ordered", lambda op: [])
    with tb.fallback("allow"), pytest.raises(tb.UnsupportedOpError, match="full: no kernel on refdev:0"):
        tb.full((7, 7, 7), 1.5, device="refdev")


def test_a_wrong_mode() -> None:
    with pytest.raises(ValueError, match=r"one of error, warn, allow, got 'alow'. Did you mean 'allow'"):
        tb.fallback("alow")
