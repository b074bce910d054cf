"""Ends of what libraries hold that are not over when the program is."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, sys, threading
from tensorbus import distributed
from tensorbus.distributed.process_group import teardown

libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc._exit, ctypes.c_void_p), 77, None)
libc.fopen.restype = ctypes.c_void_p
libc.fputs(b"from C", ctypes.c_void_p(libc.fopen({path!r}.encode(), b"w")))
never = threading.Event().wait
{work}
print("from Python")
{end}
"""
"""A handler of C's makes 77 of the status of the process."""
WORK = {
    "nothing": "",
    "an end in time": "teardown.close_within(lambda: None, 60.0)",
    "an abort in time": "teardown.begin(lambda: threading.Event().wait(0.5), 60.0)",
    "a close without end": "teardown.close_within(never, 0.1)",
    "an abort without end": "teardown.begin(never, 0.1)",
}


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "on_exit"), reason="C's library has no on_exit")
@pytest.mark.parametrize("work", WORK)
def test_libraries_keep_what_they_still_use(work: str, tmp_path: Path) -> None:
    """The process ends with its own status, and has said all; C's handlers run where nothing is at work."""
    for end, status in (("", 0), ("sys.exit(3)", 3), ("raise ValueError('no')", 1)):
        file = tmp_path / str(status)
        program = PROGRAM.format(work=WORK[work], end=end, path=str(file))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == (status if "without end" in work else 77), done.stderr
        assert "from Python" in done.stdout
        assert (file.read_text() == "from C") == ("without end" in work)
        assert ("ValueError: no" in done.stderr) == (status == 1)


def test_a_close_tells_what_it_raises() -> None:
    from tensorbus.distributed.process_group.teardown import close_within

    with pytest.raises(ZeroDivisionError):
        close_within(lambda: 1 // 0, 60.0)
