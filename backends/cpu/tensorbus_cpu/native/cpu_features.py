"""The C compiler's names for this processor: the option, 16-bit floats, gcc's names for vectors."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tensorbus.backend_api import DeviceError

if TYPE_CHECKING:
    import subprocess

OWN: Final = ("-march=native", "-mcpu=native", "")
"""How compilers are told to use all that this processor has; the first that is taken. Never -ffast-math."""
WIDER: Final = {16: "AVX512F AVX512BW AVX512DQ AVX512VL AVX512VBMI2 FMA F16C", 8: "AVX2 FMA F16C"}
"""What vectors of so many float32 take. Processors of before AVX512-VBMI2 slow down where they have 16."""


class NoCompilerError(DeviceError):
    """Nothing can be compiled any more; what NumPy can compute it computes from then on."""


def ask(command: Sequence[str]) -> str:
    """Return the first of ``OWN`` that a compiler takes, and words for what it has.

    ``half`` is for 16-bit floats, ``gnu`` for gcc, ``wide8`` or ``wide16`` for vectors of so many lanes.
    Raises ``DeviceError`` for a compiler that cannot be run, or fails.
    """
    for option in OWN:
        whole = [*command, *([option] if option else [])]
        done = _run([*whole, "-dM", "-E", "-x", "c", os.devnull])
        if done.returncode == 0:
            half = " half" * ("__FLT16_MAX__" in done.stdout)
            if " __clang__ " in done.stdout:
                return option + half
            lanes = next((n for n in WIDER if _has(n, whole, done.stdout)), 0)
            return f"{option}{half} gnu{f' wide{lanes}' if lanes else ''}"
    raise DeviceError(f"cpu: the C compiler fails.\n{shlex.join(command)}\n{done.stderr}")


def _has(lanes: int, command: Sequence[str], macros: str) -> bool:
    """Return whether there are the instructions, and the names that gcc has had for them so far."""
    if not all(f" __{name}__ " in macros for name in WIDER[lanes].split()):
        return False
    from .simd_helpers import probe

    # Printed: who is root had better not tell a compiler to write to, or to remove, a device's file.
    strict = ["-S", "-Werror=implicit-function-declaration", "-x", "c", "-", "-o", "-"]
    return _run([*command, *strict], probe(lanes)).returncode == 0


def _run(command: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    from tensorbus.backend_api import run_compiler

    try:
        return run_compiler(command, text=text)
    except TimeoutError as error:
        raise NoCompilerError(f"cpu: {error}.") from error
    except OSError as error:
        raise DeviceError(f"cpu: the C compiler {command[0]!r} cannot be run: {error}") from error
