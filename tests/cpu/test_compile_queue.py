"""Compilers side by side: each job is done once, by whoever comes first, and no wait is for nobody."""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar

import pytest
from tensorbus_cpu.machine import cores
from tensorbus_cpu.native.compile_queue import CompileQueue, CompileTask

WAIT = 60.0
"""Seconds after which something that should have happened has not."""


def test_jobs_are_done_once_and_as_many_at_a_time_as_there_are_cores() -> None:
    queue, gate, lock = CompileQueue(), threading.Event(), threading.Lock()
    running: list[int] = []
    most, done = [0], [0]

    def work(k: int) -> int:
        with lock:
            running.append(k)
            most[0] = max(most[0], len(running))
            if len(running) == cores():
                gate.set()
        assert gate.wait(WAIT)
        with lock:
            running.remove(k)
            done[0] += 1
        return k * k

    jobs = [queue.submit(lambda k=k: work(k)) for k in range(3 * cores())]
    assert gate.wait(WAIT)
    assert [job.result() for job in jobs] == [k * k for k in range(3 * cores())]
    assert done == [3 * cores()]
    assert most[0] <= cores() + 1  # and the one that waits for a result, which makes it


def test_what_nobody_has_begun_is_done_by_who_needs_it() -> None:
    queue, gate = CompileQueue(), threading.Event()
    held = [queue.submit(lambda: gate.wait(WAIT)) for _ in range(cores())]
    inner = queue.submit(threading.get_ident)
    assert queue.submit(inner.result).result() == threading.get_ident()
    gate.set()
    assert all(job.result() for job in held)


def test_errors_are_those_of_the_job_each_time() -> None:
    def fail() -> None:
        raise ValueError("no")

    job = CompileQueue().submit(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            job.result()


def test_an_interrupted_job_is_done_by_the_next_one() -> None:
    results = iter([KeyboardInterrupt(), 3])

    def work() -> int:
        result = next(results)
        if isinstance(result, BaseException):
            raise result
        return result

    job = CompileTask(work)
    with pytest.raises(KeyboardInterrupt):
        job.result()
    assert job.result() == 3


def test_jobs_have_the_context_of_who_submits_them() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    queue, token = CompileQueue(), variable.set("here")
    job = queue.submit(variable.get)
    variable.reset(token)
    assert job.result() == "here"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_does_what_threads_of_its_parent_had_begun() -> None:
    queue, gate, begun = CompileQueue(), threading.Event(), threading.Event()
    parent = os.getpid()

    def work() -> bool:
        begun.set()
        return os.getpid() != parent or gate.wait(WAIT)

    job = queue.submit(work)
    assert begun.wait(WAIT)
    child = os.fork()
    if not child:
        code = 1
        try:
            queue.after_fork()
            code = 0 if job.result() and queue.submit(lambda: True).result() else 1
        finally:
            os._exit(code)
    gate.set()
    assert os.waitpid(child, 0)[1] == 0
    assert job.result()
