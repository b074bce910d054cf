"""Work that compilers do side by side: as many at a time as there are cores, first come, first served.

Whoever needs a result that nobody has begun to make makes it, so that work may wait for other work. Threads
end with the queue, and are daemons: what they compile is stored whole or not at all.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

from ..machine import cores

T = TypeVar("T")


class CompileTask(Generic[T]):
    """A function that is called once, by the thread of the queue or by the one that needs its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        context = copy_context()
        self._function: Callable[[], T] | None = lambda: context.copy().run(function)
        self._state = threading.Condition(threading.Lock())
        self._is_claimed = self._is_done = False
        self._process = os.getpid()
        self._result: Any = None
        self._error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether the function has returned, or raised an error."""
        return self._is_done

    def result(self) -> T:
        """Return what the function returns, or raise what it raises: called here unless it runs already."""
        if self._process != os.getpid() and not self._is_done:  # a thread of the parent may have begun
            self._process, self._is_claimed = os.getpid(), False
            self._state = threading.Condition(threading.Lock())
        while not self._is_done:
            if not self.run():
                with self._state:
                    while self._is_claimed and not self._is_done:
                        self._state.wait()
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result

    def run(self) -> bool:
        """Call the function unless somebody else does; return whether. After an interrupt others may."""
        with self._state:
            if self._is_claimed:
                return False
            self._is_claimed = True
        try:
            assert self._function is not None
            self._result = self._function()
            self._is_done = True
        except Exception as error:
            self._error, self._is_done = error, True
        finally:
            with self._state:
                self._is_claimed = self._is_done
                if self._is_done:
                    self._function = None
                self._state.notify_all()
        return True


class CompileQueue:
    """Jobs in order, and the threads that do them, of which there are none while there is nothing to do."""

    def __init__(self) -> None:
        self._jobs: deque[CompileTask[Any]] = deque()
        self._lock = threading.Lock()
        self._threads = 0

    def submit(self, function: Callable[[], T]) -> CompileTask[T]:
        """Return the job that calls ``function`` in this thread's context, in another thread where one is."""
        job = CompileTask(function)
        with self._lock:
            self._jobs.append(job)
            begins = self._threads < cores()
            self._threads += begins
        if begins:
            try:
                threading.Thread(target=self._work, daemon=True).start()
            except RuntimeError:  # the interpreter is ending and starts no threads: who needs it does it
                with self._lock:
                    self._threads -= 1
        return job

    def after_fork(self) -> None:
        """Forget what threads of the parent do; who needs it does it."""
        self.__init__()  # type: ignore[misc]

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._threads -= 1
                    return
                job = self._jobs.popleft()
            job.run()


COMPILE_QUEUE: Final = CompileQueue()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=COMPILE_QUEUE.after_fork)
