"""A package that only adds a kernel, and one that only adds an op."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["kernel_only", "op_only"])
def test_an_addon_is_under_40_lines(name: str) -> None:
    files = [p for p in (Path(__file__).parent / name).rglob("*") if p.suffix in (".py", ".toml")]
    assert len(files) == 4
    assert sum(len(path.read_text().splitlines()) for path in files) < 40


def test_a_kernel_for_somebody_elses_device_is_taken_where_it_can(run_with: Callable[..., str]) -> None:
    output = run_with(
        """
        import tensorbus as tb
        short, long = tb.ones((2, 8)), tb.ones((2, 80))
        first = tb.explain("softmax", short, axis=-1).decisions[0]
        assert (first.chosen.owner, first.chosen.kernel.name) == ("addon-kernel 1.0", "short")
        refused = tb.explain("softmax", long, axis=-1).decisions[0]
        assert refused.verdicts[0].reason == "only rows along the last axis, of up to 64 elements"
        assert refused.chosen is None or refused.chosen.kernel.name != "short"
        x = tb.asarray([[0.5, -1.0, 2.0]], device="cpu").requires_grad_()
        y = tb.softmax(x, axis=-1)
        assert abs(y.sum().item() - 1) < 1e-6
        (y * y).sum().backward()
        assert abs(x.grad.sum().item()) < 1e-6
        with tb.prefer_kernel(softmax="short"):
            assert tb.softmax(short).shape == (2, 8)
            try:
                tb.softmax(long)
            except tb.UnsupportedOpError as error:
                assert "only rows along the last axis" in str(error)
            else:
                raise AssertionError("an impossible choice must raise")
        """,
        "kernel_only",
    )
    assert output.splitlines()[1].split() == ["1.", "short", "of", "addon-kernel", "1.0", "taken"]


def test_compiled_programs_call_it_too(run_with: Callable[..., str]) -> None:
    run_with(
        """
        import sys
        import tensorbus as tb

        def count(function, x):
            seen = []
            def note(frame, event, given):
                if event == "call" and "addon_kernel" in frame.f_code.co_filename:
                    seen.append(frame.f_code.co_name)
            function(x), function(x)  # compiled
            sys.setprofile(note)
            try:
                y = function(x)
            finally:
                sys.setprofile(None)
            assert tb.max(tb.abs(y - (tb.softmax(x * 2) + 1))).item() < 1e-6
            return seen.count("softmax")

        function = tb.compile(lambda x: tb.softmax(x * 2) + 1)
        short, long = tb.randn((4, 8), device="cpu"), tb.randn((4, 80), device="cpu")
        assert count(function, short) == 1
        assert count(function, long) == 0
        with tb.prefer_kernel(softmax="short"):
            assert count(function, short) == 1
            try:
                function(long)
            except tb.UnsupportedOpError as error:
                assert "only rows along the last axis" in str(error)
            else:
                raise AssertionError("an impossible choice must raise")
        rows = tb.randn((2048, 16), device="cpu")
        assert count(function, rows) == 1
        with tb.prefer_kernel(softmax="generated"):
            assert count(function, rows) == 0
        assert count(function, rows) == 1
        for device in ("opencl", "refdev"):  # the package has nothing for these
            assert count(function, short.to(device)) == 0
        """,
        "kernel_only",
    )


def test_a_new_op_works_on_every_device(run_with: Callable[..., str]) -> None:
    run_with(
        """
        import math
        import tensorbus as tb
        for device in ("cpu", "opencl", "refdev"):
            x = tb.asarray([-100.0, 0.5, 40.0], device=device).requires_grad_()
            y = tb.softcap(x)
            assert all(abs(a - 30 * math.tanh(b / 30)) < 1e-4 for a, b in zip(y.tolist(), x.tolist()))
            (first,) = tb.grad(y.sum(), x, create_graph=True)
            want = [1 / math.cosh(v / 30) ** 2 for v in x.tolist()]
            assert all(abs(a - b) < 1e-4 for a, b in zip(first.tolist(), want))
            (second,) = tb.grad(first.sum(), x)
            want = [-2 / 30 * math.tanh(v / 30) / math.cosh(v / 30) ** 2 for v in x.tolist()]
            assert all(abs(a - b) < 1e-4 for a, b in zip(second.tolist(), want))
            rows = tb.asarray([[1.0, 2.0], [3.0, 4.0]], device=device)
            batched = tb.vmap(lambda row: row.softcap().sum())(rows)
            assert all(abs(a - tb.softcap(r).sum().item()) < 1e-4 for a, r in zip(batched.tolist(), rows))
        """,
        "op_only",
    )


def test_the_conformance_kit_examines_an_op_that_a_package_adds(run_with: Callable[..., str]) -> None:
    devices = ["--device", "cpu", "--device", "refdev"]
    shown = run_with(["tensorbus", "conformance", *devices, "--ops", "softcap", "--quick"], "op_only")
    assert shown.count("softcap") == 2
    assert "failed" not in shown
