"""Errors that a GPU tells of late: with the work that they may come from, and at each later use."""

from __future__ import annotations

import ctypes
import gc
import importlib
import queue
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from tensorbus.backend_api import Reports, StridedArray
from tensorbus.dtypes.definition import float32
from tensorbus.errors import DeviceError
from tensorbus_cuda import device as cuda
from tensorbus_cuda.async_errors import SHOWN, Failures, Watch, listed


@pytest.fixture(autouse=True)
def work_that_is_never_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver say of each event that work before it goes on."""
    monkeypatch.setattr("tensorbus_cuda.unit.event_query", lambda: lambda ptr: 600)
    monkeypatch.setattr("tensorbus_cuda.unit._LOOKING_SECONDS", 0.001)


class _NumberedError(RuntimeError):
    """An exception as CuPy makes them of CUDA's numbers."""

    def __init__(self, status: int) -> None:
        super().__init__(f"error {status}")
        self.status = status


class _Context:
    """What is current while it is entered."""

    inside = 0

    def __enter__(self) -> None:
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1


def test_the_last_launches_are_named_in_order() -> None:
    failures = Failures("cuda:0 (Card)")
    for k in range(40):
        failures.note(f"tb_kernel_{k}")
    failures.note("scribble")
    message = str(failures.error(_NumberedError(700)))
    assert message.startswith("cuda:0 (Card): a kernel read or wrote where it has no memory (error 700")
    shown = ", ".join(f"kernel_{k}" for k in range(40 - SHOWN + 1, 40))
    assert f"Launched last, in order: {shown}, scribble." in message
    assert "CUDA_LAUNCH_BLOCKING=1" in message
    assert "start the process again" in message


_Words = ctypes.c_int64 * 3
"""The words in which kernels report, in pinned memory."""


def _unit(words: Any, when_waiting: Callable[[], None]) -> Any:
    """Return a unit whose kernels are done ``when_waiting`` for all of them."""
    unit = object.__new__(cuda.Unit)
    unit.name, unit.failures = "cuda:0", Failures("cuda:0")
    unit._device = SimpleNamespace(synchronize=when_waiting)
    unit._context = Watch(unit.failures, nullcontext())
    unit.pinned = SimpleNamespace(release=lambda: None)
    unit._reported, unit._errors = words, SimpleNamespace()
    unit._running = unit._unread = False
    unit._local = threading.local()
    unit._local.entered = True
    unit.late, unit.looks, unit.interruptible, unit.marks = [], [], None, {}
    unit.read_checks, unit.origins = [], frozenset()
    unit.stream = lambda: SimpleNamespace(record=lambda: SimpleNamespace(ptr=5))
    unit.error_block()
    return unit


def test_a_report_that_comes_after_another_stream_was_waited_for_is_raised(cupy_or_names: None) -> None:
    words, reports = _Words(), Reports()
    code = reports.code("gather")
    unit = _unit(words, lambda: None)
    unit.check(reports)  # as behind another stream: the kernel still runs
    words[:] = (code, 7, 5)
    unit.wait()
    with pytest.raises(IndexError, match="index 7 is out of range for an axis of length 5"):
        unit.check(reports)
    words[:] = (code, 8, 5)  # as of nobody: what was waited for has been looked at
    unit.check(reports)


def test_a_report_is_read_when_all_of_it_is_there(cupy_or_names: None) -> None:
    words, reports = _Words(), Reports()
    code = reports.code("gather")

    def rest() -> None:
        words[:] = (code, 7, 5)

    unit = _unit(words, rest)
    words[:] = (code, 0, 0)
    with pytest.raises(IndexError, match="index 7 is out of range for an axis of length 5"):
        unit.check(reports)
    unit.check(reports)


def test_what_a_wait_raised_is_put_back_for_a_read(cupy_or_names: None) -> None:
    words = _Words()
    unit = _unit(words, lambda: None)
    runtime = _runtime_of(unit)
    words[:] = (runtime.reports.code("gather"), 7, 5)
    unit.error_block()
    message = "index 7 is out of range for an axis of length 5"
    with pytest.raises(IndexError, match=message) as caught:
        runtime.synchronize(0)
    runtime.synchronize(0)
    runtime.put_back_read_error(caught.value, 0)
    with pytest.raises(IndexError, match=message):
        runtime.synchronize(0)
    runtime.synchronize(0)


@pytest.mark.parametrize(("code", "done"), [(0, True), (600, False), (700, None)])
def test_looking_at_an_event_tells_of_work_that_failed(
    code: int, done: bool | None, cupy_or_names: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks again until it is done would look for ever: CuPy's ``done`` takes every error for waiting."""
    monkeypatch.setattr(cuda, "event_query", lambda: lambda ptr: code)
    runtime = object.__new__(cuda.CudaRuntime)
    runtime.units = [_unit(_Words(), lambda: None)]
    runtime.units[0].failures.note("tb_scale")
    event = SimpleNamespace(ptr=1, done=False)
    if done is not None:
        assert runtime.event_done(event, 0) is done
        return
    for words in ("Launched last, in order: scale", "lost to this process"):
        with pytest.raises(DeviceError, match=words):
            runtime.event_done(event, 0)


def test_an_upload_is_waited_for_on_its_own_gpu(cupy_or_names: None) -> None:
    """The default stream is that of whichever GPU is current; another one has work of its own."""
    memory = importlib.import_module("tensorbus_cuda.memory")
    current, seen = _Context(), []
    failures = Failures("cuda:1")
    failures.lost = "nobody waits for what goes"
    stream = SimpleNamespace(synchronize=lambda: seen.append(current.inside))
    unit = SimpleNamespace(
        stream=lambda: stream, default=None, silent=None, current=lambda: current, failures=failures,
        total=1 << 30,
    )  # fmt: skip
    block = memory.Pool(unit).counted(None, 0, 512)
    block.queued = True
    for _ in range(2):
        block.used_by("another stream")
    assert seen == [1]
    assert current.inside == 0


def test_what_was_waited_for_is_not_named() -> None:
    failures = Failures("cuda:0")
    failures.note("fine")
    failures.done()
    failures.note("wrong")
    failures.note("wrong")
    message = str(failures.error(719))
    assert "in order: wrong (2 times)." in message
    assert "fine" not in message


def test_a_lost_gpu_says_so_whatever_fails_next() -> None:
    failures = Failures("cuda:1")
    failures.note("trap")
    assert failures.error(_NumberedError(2)) is None
    assert failures.error(ValueError("no number")) is None
    assert failures.error(718) is not None
    again = str(failures.error(_NumberedError(2)))
    assert again.startswith("cuda:1: lost to this process, since work failed before. ")
    assert "trap" in again
    assert listed([]) == ""


def test_a_watch_passes_on_what_is_not_final() -> None:
    failures, context = Failures("cuda:0"), _Context()
    watch = Watch(failures, context)
    with watch:
        assert context.inside == 1
    with pytest.raises(_NumberedError), watch:
        raise _NumberedError(2)
    with pytest.raises(KeyError), watch:
        raise KeyError
    with pytest.raises(DeviceError, match="error 700 of CUDA") as caught, watch:
        raise _NumberedError(700)
    assert isinstance(caught.value.__cause__, _NumberedError)
    assert context.inside == 0
    with pytest.raises(DeviceError, match="lost to this process"):
        watch.__enter__()
    assert context.inside == 0


SCRIPT = """
import tensorbus as tb

source = 'extern "C" __global__ void scribble(const TB_x *x, TB_out *out, long long n) {{ {body} }}'
scribble = tb.kernel({{"cuda": source}}, name="scribble", tensors={{"x": tb.float32}}, out=lambda x: x)
unit = tb.Device("cuda")
x = tb.ones((8,), device=unit)
(x * 5).tolist()
unit.synchronize()
held = x.to("cpu", non_blocking=True)
held.tolist()
y = None

def started():
    global y
    y = scribble(tb.exp(x))
    return y

def message_of(function):
    try:
        function()
    except tb.DeviceError as error:
        return str(error)
    return "no error"

print("first:", message_of(lambda: {first}))
later = [
    lambda: unit.synchronize(), lambda: y.tolist(), lambda: (x + x).tolist(), lambda: x @ x,
    lambda: tb.ones((3,), device=unit), lambda: tb.asarray([1.0], device=unit),
    lambda: tb.ones((1 << 24,), device=unit), lambda: x.to("cpu", non_blocking=True).numpy(),
    lambda: tb.Event(unit).record(), lambda: tb.Stream(unit).synchronize(), lambda: scribble(x).tolist(),
]
for function in later:
    print("later:", message_of(function))
print("cpu:", (tb.ones((2,), device="cpu") + 1).tolist(), held.tolist()[0])
"""


@pytest.mark.cuda
@pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}")
@pytest.mark.parametrize(
    "first",
    ["(started(), unit.synchronize())", "started().tolist()", "started().to('cpu', non_blocking=True) + 1"],
)
@pytest.mark.parametrize(
    ("body", "number"), [("*(volatile int *)16 = 1;", 700), ('asm("trap;");', 719)], ids=["address", "trap"]
)
def test_a_kernel_that_fails_is_named_and_the_gpu_is_lost(body: str, number: int, first: str) -> None:
    script = textwrap.dedent(SCRIPT).format(body=body.replace('"', '\\"').replace("'", "\\'"), first=first)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    assert lines[0].startswith("first: cuda:0"), done.stdout
    assert f"(error {number} of CUDA). Launched last, in order:" in lines[0]
    named = lines[0].partition("in order: ")[2].partition(".")[0]
    assert "scribble" in named.split(", ")
    assert "exp" in named
    assert "multiply" not in named  # it was waited for
    later = [line for line in lines if line.startswith("later:")]
    assert len(later) == 11
    assert all("lost to this process, since work failed before" in line for line in later), done.stdout
    assert lines[-1] == "cpu: [2.0, 2.0] 1.0"
    assert "tensorbus" not in done.stderr, done.stderr  # what CuPy cannot free at the end is its own


class _Looks:
    """Somebody who looks behind each wait."""

    count = 0

    def look(self) -> None:
        self.count += 1


def _runtime_of(unit: Any) -> Any:
    runtime = object.__new__(cuda.CudaRuntime)
    runtime.units, runtime.reports = [unit], Reports()
    return runtime


def _stuck() -> tuple[Any, Any, _Looks, threading.Semaphore, threading.Event]:
    """Return a unit whose waits end with the event, its runtime, who looks, and what tells of each wait."""
    begun, ended, looked = threading.Semaphore(0), threading.Event(), _Looks()

    def stuck() -> None:
        begun.release()
        ended.wait(60)

    unit = _unit(_Words(), stuck)
    runtime = _runtime_of(unit)
    runtime.make_waits_interruptible(looked.look, 0)
    return unit, runtime, looked, begun, ended


def test_errors_of_others_end_a_wait_that_would_not_end(cupy_or_names: None) -> None:
    """Each is raised once, also where nobody waited when it came; what fails by itself is raised as it is."""
    unit, runtime, looked, begun, ended = _stuck()

    def fail() -> None:
        assert begun.acquire(timeout=60)
        for word in ("first", "second"):
            runtime.raise_later(DeviceError(f"the {word} group failed"), 0)
        runtime.interrupt_waits(0)

    failing = threading.Thread(target=fail)
    failing.start()
    for word in ("first", "second"):
        with pytest.raises(DeviceError, match=f"the {word} group failed"):
            runtime.synchronize(0)
    failing.join()
    ended.set()
    runtime.synchronize(0)
    error = DeviceError("known already")
    runtime.raise_later(error, 0)
    runtime.interrupt_waits(0)
    runtime.not_later(error, 0)
    runtime.synchronize(0)
    assert looked.count >= 2  # behind waits that came to their end, and during long ones
    del looked
    runtime.synchronize(0)

    def broken() -> None:
        raise KeyError("of the call itself")

    with pytest.raises(KeyError, match="of the call itself"):
        unit.until(broken)


def test_a_copy_that_nobody_waits_for_keeps_its_few_bytes(cupy_or_names: None) -> None:
    unit = _unit(_Words(), lambda: None)
    unit._given_up = []
    unit.pinned = SimpleNamespace(allocate=bytearray)
    first = unit.room()
    assert unit.room() is first
    unit.give_up_room()
    assert unit._given_up == [first]
    assert unit.room() is not first


@pytest.mark.parametrize("first", ["a wait", "a look", "not_later"])
def test_one_error_ends_all_waits(cupy_or_names: None, first: str) -> None:
    """Whoever raises it first, or knows it already: the work that the others wait for may never be done."""
    threads, count = list[threading.Thread](), 3
    errors: queue.SimpleQueue[str] = queue.SimpleQueue()
    unit, runtime, looked, begun, ended = _stuck()

    def wait() -> None:
        try:
            runtime.synchronize(0)
        except DeviceError as error:
            errors.put(str(error))

    for _ in range(count):
        threads.append(threading.Thread(target=wait))
        threads[-1].start()
        assert begun.acquire(timeout=60)
    error = DeviceError("the group failed")
    runtime.raise_later(error, 0)
    if first == "a look":
        with pytest.raises(DeviceError, match="the group failed"):
            unit.check(runtime.reports)
    elif first == "not_later":
        runtime.not_later(error, 0)
    runtime.interrupt_waits(0)
    try:
        assert all("the group failed" in errors.get(timeout=30) for _ in range(count))
    finally:
        ended.set()
    for thread in threads:
        thread.join(60)
    runtime.synchronize(0)  # nothing is left to raise, and waits begin again
    del looked


class _Bytes(bytearray):
    """Memory of the host whose end can be seen."""


def test_a_large_copy_that_nobody_waits_for_keeps_the_memory_it_writes(
    cupy_or_names: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver writes on where a wait was ended, by Ctrl-C or by an error of others."""
    buffers: list[weakref.ref[_Bytes]] = []
    begun, going_on, seen = threading.Event(), threading.Event(), queue.SimpleQueue[bytes | None]()

    def host(nbytes: int) -> _Bytes:
        memory = _Bytes(nbytes)
        buffers.append(weakref.ref(memory))
        return memory

    def synchronize() -> None:
        begun.set()
        going_on.wait(60)
        memory = buffers[0]()
        if memory is not None:
            ctypes.memset(written[0], 7, len(memory))
        seen.put(None if memory is None else bytes(memory))

    written: list[int] = []
    memory = SimpleNamespace(copy_to_host_async=lambda at, nbytes, stream: written.append(at))
    monkeypatch.setattr(cuda, "bytearray", host, raising=False)
    monkeypatch.setattr(cuda, "pack", lambda compiler, value, index: value)
    unit = _unit(_Words(), lambda: None)
    stream = SimpleNamespace(synchronize=synchronize, record=lambda: SimpleNamespace(ptr=5))
    unit.stream = lambda: stream
    runtime = _runtime_of(unit)
    runtime.compiler = None
    looked = _Looks()
    runtime.make_waits_interruptible(looked.look, 0)
    count = cuda.STAGING_BYTES
    value = StridedArray(SimpleNamespace(memory=memory), (count,), (1,), 0, float32)

    def fail() -> None:
        begun.wait(60)
        runtime.raise_later(DeviceError("the group failed"), 0)
        runtime.interrupt_waits(0)

    failing = threading.Thread(target=fail)
    failing.start()
    with suppress(DeviceError):  # leaves no trace of its own, which would hold the memory
        runtime.to_host(value, float32, 0)
        raise AssertionError("the wait was not ended")
    failing.join()
    gc.collect()
    going_on.set()
    assert seen.get(timeout=60) == bytes([7]) * 4 * count
    del looked


def test_who_looks_during_a_long_wait_may_end_it(
    cupy_or_names: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever watches from a thread of its own may itself be kept waiting by the GPU."""
    monkeypatch.setattr("tensorbus_cuda.interruptible_wait._PERIOD", 0.01)
    ended = threading.Event()
    unit = _unit(_Words(), lambda: ended.wait(60) and None)
    runtime = _runtime_of(unit)

    class Watch:
        def look(self) -> None:
            runtime.raise_later(DeviceError("a rank did not come"), 0)
            runtime.interrupt_waits(0)

    watch = Watch()
    runtime.make_waits_interruptible(watch.look, 0)
    with pytest.raises(DeviceError, match="a rank did not come"):
        runtime.synchronize(0)
    ended.set()


@pytest.mark.parametrize(
    "ended_by", ["the work", "that of one stream", "an error of the work", "an error of others", "time"]
)
def test_the_end_of_work_is_looked_for_before_a_thread_waits(
    cupy_or_names: None, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """No thread does where all is done that might not end; what is to be raised comes from the wait."""
    unit, calls = _unit(_Words(), lambda: calls.append(threading.current_thread().name)), list[Any]()
    runtime, looked = _runtime_of(unit), _Looks()
    clock = iter(range(100))
    here = threading.current_thread().name

    def query(ptr: int) -> int:
        calls.append(ptr)
        if len(calls) == 3 and ended_by == "an error of others":
            runtime.raise_later(DeviceError("a group failed"), 0)
            runtime.interrupt_waits(0)
        if len(calls) < 3 or ended_by in ("time", "an error of others"):
            return 600
        return 700 if ended_by == "an error of the work" else 600 if ptr != 5 and "one" in ended_by else 0

    monkeypatch.setattr("tensorbus_cuda.unit.event_query", lambda: query)
    monkeypatch.setattr("tensorbus_cuda.unit._LOOKING_SECONDS", 6)
    monkeypatch.setattr("tensorbus_cuda.unit.perf_counter", lambda: next(clock))
    runtime.record_event(SimpleNamespace(ptr=1, record=lambda: SimpleNamespace(ptr=8)), 0)
    runtime.record_event(SimpleNamespace(ptr=1, record=lambda: SimpleNamespace(ptr=9)), 0)
    runtime.synchronize(0)
    assert calls == [here]  # nobody could end it, and so nobody need look
    calls.clear()
    runtime.make_waits_interruptible(looked.look, 0)
    if ended_by == "an error of others":
        with pytest.raises(DeviceError, match="a group failed"):
            runtime.synchronize(0)
        assert calls == [5] * 3
        return
    runtime.synchronize(0)
    looks = [5] * (6 if ended_by == "time" else 3) + [9] * ended_by.startswith("th")
    assert calls == [*looks, here if ended_by == "the work" else "tensorbus-cuda-wait"]
