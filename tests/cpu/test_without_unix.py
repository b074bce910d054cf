"""The core and the cpu device without fork, /proc and what else only Unix has: as on Windows."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = '''
import builtins, ctypes, os, sys

for name in ("fork", "register_at_fork", "getuid", "geteuid", "sysconf", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("resource", "fcntl", "pwd", "grp"):
    sys.modules[name] = None
opened = builtins.open


def open(file, *args, **kwargs):
    if str(file).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(file)
    return opened(file, *args, **kwargs)


class Kernel32:
    """Answers as the library of Windows does: two numbers of 32 bits, then sizes."""

    class GetCurrentProcess:
        restype = None
        def __new__(cls): return 7

    @staticmethod
    def K32GetProcessMemoryInfo(process, counters, size):
        assert (process.value, size, counters[0]) == (7, 8 + 8 * 8, size)
        counters[1], counters[2] = 3 << 30, 2 << 30
        return 1


builtins.open, cdll = open, ctypes.CDLL
ctypes.CDLL = lambda name, *args, **kwargs: Kernel32 if name == "kernel32" else cdll(name, *args, **kwargs)
import tensorbus as tb
'''


def printed(program: str) -> list[str]:
    """Return the lines that a program prints there."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_computes_eager_and_compiled() -> None:
    program = """
x = tb.asarray([1.0, 2.0]).requires_grad_()
(x * x).sum().backward()
print(x.grad.tolist(), tb.compile(lambda x: tb.exp(x) + 1)(tb.zeros((300, 300))).sum().item())
print((tb.ones((600, 600)) @ tb.ones((600, 600)))[5, 5].item())
"""
    assert printed(program) == ["[2.0, 4.0] 180000.0", "600.0"]


def test_it_says_what_the_process_holds() -> None:
    program = """
stats = tb.Device("cpu").memory_stats()
print(stats.allocated, stats.peak, stats.scope, tb.Device("cpu").properties.memory)
"""
    assert printed(program) == [f"{2 << 30} {3 << 30} process None"]


def test_it_says_that_nothing_is_compiled() -> None:
    program = """
about = tb.Device("cpu").properties.extra
print(about["compiler"], "on Unix only" in about["note"])
x = tb.ones((600, 600)) + 1
print(tb.Device("cpu").properties.extra["note"] == about["note"])
"""
    assert printed(program) == ["None True", "True"]
