"""Loops by hand that move what a row has to move: what memory allows, in C and in OpenCL C.

They read and write the arrays of the row, in the same number of threads, and compute next to nothing.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorbus as tb

from benchmarks.compiled import data
from benchmarks.compiled.threads import THREADS

Call = Callable[[], object]
_C = """
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#define CHUNK 65536  // every size is a multiple
static const float *x, *c;
static float *y;
static ptrdiff_t chunks;
static int two_arrays;
static atomic_long next, done;  // no thread is waited for that did not wake up
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER;
static long job;

static void take(void) {
  for (long k; (k = atomic_fetch_add(&next, 1)) < chunks; atomic_fetch_add(&done, 1)) {
    const float *restrict p = x + k * CHUNK, *restrict q = c + k * CHUNK;
    float *restrict r = y + k * CHUNK;
    if (two_arrays)
      for (int j = 0; j < CHUNK; j++) r[j] = p[j] + q[j];
    else
      for (int j = 0; j < CHUNK; j++) r[j] = p[j] + 1.0f;
  }
}
static void *serve(void *unused) {
  for (long seen = 0;;) {
    pthread_mutex_lock(&lock);
    while (job == seen) pthread_cond_wait(&begun, &lock);
    seen = job;
    pthread_mutex_unlock(&lock);
    take();
  }
  return unused;
}
void start(int threads) {
  pthread_t thread;
  for (int k = 1; k < threads; k++) pthread_create(&thread, NULL, serve, NULL);
}
void run(const float *from, const float *also, float *to, ptrdiff_t size, int both) {
  pthread_mutex_lock(&lock);
  x = from, c = also, y = to, two_arrays = both, chunks = size / CHUNK;
  atomic_store(&done, 0);
  atomic_store(&next, 0);
  job++;
  pthread_cond_broadcast(&begun);
  pthread_mutex_unlock(&lock);
  take();
  while (atomic_load(&done) < chunks) sched_yield();
}
"""
_OPENCL = """
__kernel void two(__global const float *x, __global const float *c, __global float *y) {
  const size_t k = get_global_id(0);
  y[k] = x[k] + c[k];
}
__kernel void one(__global const float *x, __global const float *c, __global float *y) {
  const size_t k = get_global_id(0);
  y[k] = x[k] + 1.0f;
}
"""


class Peer:
    """``variant`` is ``c`` or ``opencl``."""

    def __init__(self, variant: str) -> None:
        self.make = {"c": _in_c, "opencl": _in_opencl}[variant]

    def chain(self) -> Call:
        return self.make("two", data.CHAIN)

    def softmax(self) -> Call:
        return self.make("one", 8192 * 4096)

    def layer_norm(self) -> Call:
        return self.make("one", 8192 * 1024)

    def cumsum(self) -> Call:
        return self.make("one", 8192 * 4096)


def _in_c(name: str, size: int) -> Call:
    arrays = [np.ones(size, np.float32) for _ in range(3)]
    library = _library()
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    length, both = ctypes.c_ssize_t(size), name == "two"

    def call() -> Any:
        library.run(*pointers, length, both)
        return arrays  # they have to stay

    return call


@cache
def _library() -> ctypes.CDLL:
    """Compile the loops, as the cpu device compiles its own, and start their threads."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loops.c"), Path(folder, "loops.so")
        source.write_text(_C)
        compiler = shlex.split(os.environ.get("CC", "") or "cc")
        options = "-O3 -march=native -shared -fPIC -pthread".split()
        subprocess.run([*compiler, *options, str(source), "-o", str(library)], check=True)
        functions = ctypes.CDLL(str(library))
    functions.start(THREADS)
    return functions


def _in_opencl(name: str, size: int) -> Call:
    tb.Device("opencl").synchronize()  # brings up the device, which points PyOpenCL at the drivers
    import pyopencl as cl

    devices = [d for p in cl.get_platforms() for d in p.get_devices() if d.type & cl.device_type.CPU]
    context = cl.Context(devices[:1])
    queue = cl.CommandQueue(context)
    buffers: list[Any] = [cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * size) for _ in range(3)]
    for buffer in buffers:
        cl.enqueue_fill_buffer(queue, buffer, np.ones(1, np.float32), 0, 4 * size)
    kernel = getattr(cl.Program(context, _OPENCL).build(), name)

    def call() -> None:
        kernel(queue, (size,), (1024,), *buffers)
        queue.finish()

    return call
