"""The exit handlers of C libraries, which take away what threads inside of a library still use.

Python ends threads that are in Python when a program ends. One that is in a library goes on until the process
is gone: beside the handlers, by which libraries give back all that they hold. It is then ended by a signal.
"""

from __future__ import annotations

import ctypes


def skip_exit_handlers() -> None:
    """Let the process end, once Python has, without the exit handlers that C libraries have by now.

    The status stays, and C's files are flushed. The system takes the memory and the devices back. Where C's
    library has no ``on_exit``, as on macOS, nothing is changed.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "on_exit"):
        return
    # Handlers run from the last one back: the files are flushed, then _exit gets the status.
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    getattr(libc, "__cxa_atexit")(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)
