"""How threads part a job: each begins with boxes of its own, and helps with those of others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.compiler import NATIVE

SOURCE = """
#include <pthread.h>
#include <stdint.h>
#include <time.h>
// Buffers: how often each box was run, and by which thread; parameter: the first box that takes long.
void tb_note(void *const *b, const int64_t *p, const int64_t *r) {
  for (int64_t k = r[0]; k < r[1]; ++k) {
    if (k >= p[0]) nanosleep(&(struct timespec){0, 2000000}, 0);
    ((int32_t *)b[0])[k] += 1, ((int64_t *)b[1])[k] = (int64_t)(intptr_t)pthread_self();
  }
}
// The same, where the first box that takes long waits for another thread at one, though not for ever.
void tb_meet(void *const *b, const int64_t *p, const int64_t *r) {
  volatile int64_t *first = b[2], *met = first + 1;
  tb_note(b, (int64_t[]){INT64_MAX}, r);
  for (int64_t k = r[0]; k < r[1]; ++k) {
    if (k < p[0]) continue;
    const int64_t me = (int64_t)(intptr_t)pthread_self();
    const int64_t other = __sync_val_compare_and_swap(first, 0, me);
    if (other && other != me) *met = 1;
    for (int turn = 0; turn < 30000 && !*met; ++turn) nanosleep(&(struct timespec){0, 2000000}, 0);
    *met = 1;
  }
}
"""


@pytest.fixture
def threads() -> Iterator[None]:
    before = tb.get_num_threads()
    yield
    tb.set_num_threads(before)


def noted(count: int, slow: int, task: str = "tb_note") -> tuple[np.ndarray, np.ndarray]:
    """Run a job of so many boxes; return how often each was run, and by whom."""
    compiler = NATIVE.compiler()
    assert compiler is not None
    times, who, met = np.zeros(count, np.int32), np.zeros(count, np.int64), np.zeros(2, np.int64)
    function = getattr(compiler.library(SOURCE), task)
    params = np.int64(slow).tobytes()
    compiler.call(function, [x.ctypes.data for x in (times, who, met)], params, (count,), (1,))
    return times, who


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("count", [1, 2, 3, 5, 64, 1001])
def test_every_box_is_run_once_by_any_number_of_threads(count: int) -> None:
    for number in (1, 2, 3, 8, 300, 4) * 5:
        tb.set_num_threads(number)
        times, _ = noted(count, count)
        assert (times == 1).all(), number


@pytest.mark.usefixtures("threads")
def test_boxes_of_a_part_that_takes_long_are_helped_with() -> None:
    tb.set_num_threads(2)
    times, who = noted(40, 20, "tb_meet")
    assert (times == 1).all()
    assert len(set(who[20:])) == 2


@pytest.mark.usefixtures("threads")
def test_the_caller_begins_with_the_first_part() -> None:
    tb.set_num_threads(4)
    callers = {noted(400, 0)[1][0] for _ in range(3)}
    assert len(callers) == 1


MOVED = """
import os
from pathlib import Path
import tensorbus as tb
from test_parts_of_jobs import noted
usual = os.sched_getaffinity(0)
tb.set_num_threads(4)
for slow in range(30, 40):
    assert (noted(40, slow)[0] == 1).all()
# A thread that goes elsewhere has a processor of its own to wait for.
while any(os.sched_getaffinity(int(t.name)) != usual for t in Path("/proc/self/task").iterdir()):
    os.sched_yield()
print("all may run anywhere")
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="threads have no processors of their own here"
)
def test_who_holds_others_up_is_brought_to_a_free_processor_and_may_leave_it_again() -> None:
    """A box that sleeps is taken for one whose thread was interrupted; nobody else's threads are here."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", MOVED], cwd=here, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout == "all may run anywhere\n", done.stderr
