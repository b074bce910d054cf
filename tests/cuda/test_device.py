"""The cuda device on a GPU: memory, streams, copies and exchange. What ops compute is held by the kit."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import tensorbus as tb
from tensorbus_cuda import device as cuda

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]


@pytest.fixture
def gpu() -> tb.Device:
    """The first GPU."""
    return tb.Device("cuda")


def test_memory_is_counted_and_reused(gpu: tb.Device) -> None:
    runtime = cuda.runtime()
    gc.collect()
    before = runtime.memory_stats(0).allocated
    x = tb.ones((1024, 1024), device=gpu)
    assert runtime.memory_stats(0).allocated - before >= 4 << 20
    del x
    gc.collect()
    assert runtime.memory_stats(0).allocated == before
    assert runtime.memory_stats(0).reserved >= 4 << 20
    runtime.empty_cache(0)


def test_running_out_of_memory_leaves_everything_usable(gpu: tb.Device) -> None:
    x = tb.ones((4,), device=gpu)
    with pytest.raises(tb.OutOfMemoryError, match="no room for"):
        tb.ones((1 << 22, 1 << 20), device=gpu)
    assert (x + 1).tolist() == [2.0] * 4


def test_a_bad_index_is_named_when_it_is_waited_for(gpu: tb.Device) -> None:
    x = tb.arange(3, device=gpu)
    with pytest.raises(IndexError, match="index 7 is out of range for an axis of length 3"):
        x[tb.asarray([7], device=gpu)].tolist()
    assert x.tolist() == [0, 1, 2]


def test_streams_wait_for_events_and_reads_for_all(gpu: tb.Device) -> None:
    x = tb.ones((2048, 2048), device=gpu)
    side = tb.Stream(gpu)
    for _ in range(3):
        event = tb.Event(gpu)
        event.record()
        side.wait_event(event)
        with tb.stream(side):
            y = x @ x @ x
        assert y[0, 0].item() == float(2048**2)


def test_memory_used_in_two_streams_is_not_reused_too_early(gpu: tb.Device) -> None:
    side = tb.Stream(gpu)
    for k in range(20):
        x = tb.full((1 << 22,), float(k), device=gpu)
        event = tb.Event(gpu)
        event.record()
        side.wait_event(event)
        with tb.stream(side):
            y = x * 2 + 1
        del x
        tb.full((1 << 22,), -1.0, device=gpu)
        side.record_event().wait()
        assert float((y - (2 * k + 1)).abs().max().item()) == 0.0


def test_dlpack_goes_both_ways(gpu: tb.Device) -> None:
    cupy = pytest.importorskip("cupy", reason="the cuda device needs CuPy")
    x = tb.arange(6.0, device=gpu).reshape((2, 3))
    assert cupy.from_dlpack(x).get().tolist() == x.tolist()
    array = cupy.arange(6, dtype="f4").reshape(2, 3).T
    y = tb.from_dlpack(array)
    assert (y.device, y.tolist()) == (gpu, array.get().tolist())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "complex64"])
def test_products_agree_with_the_host(gpu: tb.Device, dtype: str) -> None:
    kind = getattr(tb, dtype)
    x = tb.asarray([[k % 7 - 3 for k in range(row, row + 40)] for row in range(30)]).to(kind)
    there = x.to(gpu)
    assert (there @ there.T).tolist() == (x @ x.T).tolist()
    turned, plain = tb.flip(there, axis=1)[::2, 10:], tb.flip(x, axis=1)[::2, 10:]
    assert (turned @ there.T[10:]).tolist() == (plain @ x.T[10:]).tolist()


def test_binaries_are_kept_on_disk(gpu: tb.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    compiler = cuda.runtime().compiler
    source = compiler.dialect(0).prologue + 'extern "C" __global__ void tb_kept() {}'
    built = compiler.built
    for _ in range(2):
        compiler._functions.clear()
        compiler._function(cuda.runtime().units[0], source, "tb_kept")
        assert compiler.built == built + 1
    assert len(list((tmp_path / "cuda" / "programs").glob("*.cubin"))) == 1
    (files,) = (tmp_path / "cuda" / "programs").glob("*.cubin")
    files.write_bytes(b"damaged")
    compiler._functions.clear()
    with pytest.warns(RuntimeWarning, match="is damaged"):
        compiler._function(cuda.runtime().units[0], source, "tb_kept")
    assert compiler.built == built + 2
