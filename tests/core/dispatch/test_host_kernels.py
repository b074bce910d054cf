"""Kernels that go through the host: declared, counted, and shown by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import fft, linalg, plugins
from tensorbus.backend_interface.protocols import Kernel
from tensorbus.dispatch.plan import invalidate
from tensorbus.kernels.via_host import FFT, HOST_KERNEL, LINALG, host_kernels
from tensorbus.ops.definition import table
from tensorbus.ops.lazy_families import load_all

from error_bounds import assert_alike

DEVICES = [name for name in ("refdev", "opencl") if name in plugins.known_types()]


@pytest.mark.parametrize("device", DEVICES)
def test_the_manifest_lists_exactly_the_kernels_that_go_through_the_host(device: str) -> None:
    backend = plugins.backend(device)
    (_, kernels), *_ = backend.kernels
    hosted = {op for op, k in kernels.items() if isinstance(k, Kernel) and k.name == HOST_KERNEL}
    assert hosted
    assert set(backend.manifest.host_ops) == hosted


def test_bytes_are_counted_both_ways() -> None:
    x = tb.eye(3, dtype="float64", device="refdev")
    tb.fallback_counts(reset=True)
    linalg.eigh(x)
    linalg.eigh(x)
    (key,) = counts = tb.fallback_counts(reset=True)
    assert key == ("eigh", "refdev")
    assert (counts[key].calls, counts[key].bytes) == (2, 2 * 8 * (9 + 3 + 9))


def test_explain_shows_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    tb.explain("svd", tb.eye(3, device="refdev"))
    assert "kernel 'host' of tensorbus-refdev" in capsys.readouterr().out


def test_work_that_is_queued_comes_first() -> None:
    x = tb.ones((2, 2), device="refdev") + tb.eye(2, device="refdev")
    inverse = np.asarray([[2 / 3, -1 / 3], [-1 / 3, 2 / 3]], np.float32)
    assert_alike(linalg.inv(x).numpy(), inverse, 3 * 4)  # the condition is 3


def test_an_error_of_the_host_names_the_op_and_changes_nothing() -> None:
    x = tb.zeros((2, 2), device="refdev")
    with pytest.raises(tb.LinAlgError, match="inv: a matrix is singular"):
        linalg.inv(x)
    assert x.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    tb.device("refdev").synchronize()


def test_all_ops_that_are_offered_exist_and_have_a_kernel_on_the_host() -> None:
    load_all()
    (_, kernels), *_ = plugins.backend("cpu").kernels
    for name in (*LINALG, *FFT):
        assert name in table
        assert name in kernels
    prims = {op.name for op in table if op.is_prim and op.family in ("linalg", "fft")}
    assert prims - {*LINALG, *FFT} == set()


def test_kernels_are_made_without_looking_for_the_host() -> None:
    (kernel,) = host_kernels("nowhere", "svd").values()
    assert kernel.name == HOST_KERNEL


def test_a_dtype_that_the_device_lacks_is_refused_not_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = plugins.backend("refdev").runtime
    known = runtime.properties(0)
    real = replace(known, dtypes=frozenset(d for d in known.dtypes if not d.is_complex))
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "properties", lambda index: real)
        invalidate()
        x = tb.eye(2, device="refdev")
        for f in (linalg.eig, fft.rfft, fft.fft):
            with pytest.raises(tb.UnsupportedDtypeError, match="refdev:0 has no complex64"):
                f(x)
        assert linalg.svdvals(x).tolist() == [1.0, 1.0]
    invalidate()
