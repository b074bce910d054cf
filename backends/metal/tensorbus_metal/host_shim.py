"""Generated MSL on the host: a C++ compiler takes it by a header that stands in for Metal's library.

For tests: where there is no Metal, this is how the numbers of every kernel are checked. Threads run one after
the other; where a kernel has barriers, those of a threadgroup take turns.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import (
    DeviceError,
    build_folder,
    cache_store,
    cached_library,
    load_library,
    private_folder,
    run_compiler,
    with_line_numbers,
)

from .dialect import MAX_BUFFERS
from .mlx_kernel_wrapper import SLOT, storage

if TYPE_CHECKING:
    from tensorbus.backend_api import Dialect, DType, LoopKernel

SHIM: Final = Path(__file__).parent / "shim"
_OPTIONS: Final = (
    "-x c++ -std=c++17 -O1 -fPIC -shared -w -ffp-contract=off -fwrapv -fno-strict-aliasing -fsigned-char"
).split()
_LINK: Final = ("-lm", "-pthread")
_SINGLE: Final = (("-fsingle-precision-constant",), ("-Xclang", "-cl-single-precision-constant"))
"""What makes a number like 1.0 a float, as in Metal, by the compiler that is asked: GCC, Clang."""
FORMAT: Final[dict[str, str]] = {
    "index": "q", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H",
    "uint32": "I", "uint64": "Q", "float32": "f", "complex64": "2f",
}  # fmt: skip
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_POINTER: Final = re.compile(
    r"[^;{}(),<>#\n]*\b(?:TB_\w+|bool|(?:u?(?:char|short|int|long)|half|float)[234]?)(?:\s+const)?\s*[*&]"
)
_ADDRESS_SPACE: Final = re.compile(r"\b(device|constant|thread)\b")
Entry = Callable[[Sequence[int], bytes, Sequence[int], Sequence[int]], None]
"""Runs a kernel: addresses of its buffers, parameters as ``packed`` gives them, grid and group."""


class Shim:
    """The kernels that were compiled for the host in this process."""

    def __init__(self, command: Sequence[str]) -> None:
        """Compile by ``command``, a C++ compiler."""
        self.command = (*command, *_single(command))
        self.built = 0
        self._entries: dict[str, Entry] = {}
        self._expected: dict[str, LoopKernel] = {}
        self._lock = threading.Lock()

    def expect(self, source: str, kernel: LoopKernel) -> None:
        """Compile a kernel with the next one that is: starting a compiler costs more than most kernels."""
        with self._lock:
            if source not in self._entries:
                self._expected[source] = kernel

    def entry(self, source: str, kernel: LoopKernel, dialect: Dialect) -> Entry:
        """Return what runs a kernel, compiled once. Raises ``DeviceError`` with the source numbered."""
        known = self._entries.get(source)
        if known is None:
            within_limits(kernel)
            with self._lock:
                expected, self._expected = self._expected, {}
            self.compile([*expected.items(), (source, kernel)], dialect)
            known = self._entries[source]
        return known

    def compile(self, kernels: Iterable[tuple[str, LoopKernel]], dialect: Dialect) -> None:
        """Compile sources, with the kernels that they were rendered from, into one library."""
        with self._lock:
            todo = {source: kernel for source, kernel in kernels if source not in self._entries}
            if not todo:
                return
            library = self._library(_joined(todo, dialect))
            for number, source in enumerate(todo):
                self._entries[source] = _bound(getattr(library, f"tb_entry_{number}"))

    def _library(self, text: str) -> ctypes.CDLL:
        about = "\0".join((text, *self.command, *_OPTIONS, *(p.read_text() for p in sorted(SHIM.iterdir()))))
        folder = private_folder("metal", "host")
        name = f"{sha256(about.encode()).hexdigest()}.so"
        library = cached_library(folder / name) if folder is not None else None
        if library is not None:
            return library
        binary = self._build(text)
        if folder is not None and cache_store(folder / name, binary):
            library = cached_library(folder / name)
        try:
            return library or load_library(name, binary)
        except OSError as error:
            raise DeviceError(
                f"metal: what {self.command[0]} made cannot be loaded: {error}.\n{with_line_numbers(text)}"
            ) from error

    def _build(self, text: str) -> bytes:
        self.built += 1
        try:
            with build_folder("metal") as folder:
                output, written = folder.path / "made.so", folder.path / "source.metal"
                written.write_text(text, encoding="utf-8")
                command = [*self.command, *_OPTIONS, f"-I{SHIM}", str(written), "-o", str(output), *_LINK]
                process = run_compiler(command, folder.environment)
                if process.returncode:
                    raise DeviceError(
                        f"metal: MSL does not compile on the host.\n{process.stderr}\n"
                        f"{with_line_numbers(text)}"
                    )
                return folder.read(output.name)
        except OSError as error:
            raise DeviceError(f"metal: MSL cannot be compiled on the host: {error}.") from error


def within_limits(kernel: LoopKernel) -> None:
    """Raise ``DeviceError`` where a kernel has more arguments than Metal takes."""
    buffers = len(kernel.buffers) + 2  # parameters, and a sign of the end
    if buffers > MAX_BUFFERS:
        raise DeviceError(
            f"metal: {kernel.name} has {buffers} arguments in memory; Metal has {MAX_BUFFERS} at most."
        )


def within_language(name: str, source: str) -> None:
    """Raise ``DeviceError`` for what Metal refuses in a function that a user wrote, and C++ does not.

    Every pointer says where it points. Memory of a group belongs into the kernel that calls the function.
    """
    code = _COMMENT.sub(" ", source)
    if re.search(r"\bthreadgroup\b", code):
        raise DeviceError(
            f"metal: {name} has threadgroup memory and does not compile on Metal: it is declared in kernels"
            f" only, and this is a function that one calls.\n{with_line_numbers(source)}"
        )
    for match in _POINTER.finditer(code):
        if not _ADDRESS_SPACE.search(match[0]):
            raise DeviceError(
                f"metal: {name} does not compile on Metal: {match[0].strip()!r} does not say where it points;"
                f" put device, constant or thread before it.\n{with_line_numbers(source)}"
            )


def packed(kinds: Sequence[DType], values: Sequence[Any]) -> bytes:
    """Return the parameters of a kernel, each in a slot of its own."""
    slots = []
    for kind, value in zip(kinds, values, strict=True):
        form, parts = FORMAT[kind.name], (value.real, value.imag) if kind.is_complex else (value,)
        slots.append(struct.pack(form, *parts).ljust(SLOT, b"\0"))
    return b"".join(slots)


def _bound(function: Any) -> Entry:
    function.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
    function.restype = None

    def run(addresses: Sequence[int], params: bytes, grid: Sequence[int], group: Sequence[int]) -> None:
        sizes = ctypes.c_uint32 * 3
        function(
            (ctypes.c_void_p * max(len(addresses), 1))(*addresses), params,
            sizes(*grid, *(1,) * (3 - len(grid))), sizes(*group, *(1,) * (3 - len(group))),
        )  # fmt: skip

    return run


def _joined(todo: dict[str, LoopKernel], dialect: Dialect) -> str:
    """Return one source: each kernel with its helpers in a namespace, and a function that takes arrays."""
    parts = [dialect.prologue]
    for number, (source, kernel) in enumerate(todo.items()):
        arguments = [f"({storage(b.dtype, dialect)} *)b[{k}]" for k, b in enumerate(kernel.buffers)]
        arguments += [
            f"*(const {storage(p.dtype, dialect)} *)(p + {SLOT * k})" for k, p in enumerate(kernel.params)
        ]
        call = f"k{number}::{kernel.name}({', '.join([*arguments, 'at'])})"
        parts += [
            f"namespace k{number} {{\n{source.removeprefix(dialect.prologue)}}}\n",
            f'extern "C" void tb_entry_{number}'
            "(void *const *b, const char *p, const uint *grid, const uint *group)"
            f" {{\n  tb_{'threadgroups' if dialect.barrier in source else 'threads'}"
            f"(grid, group, [=](uint3 at) {{ {call}; }});\n}}\n",
        ]
    return "".join(parts)


def _single(command: Sequence[str]) -> Sequence[str]:
    version = run_compiler([*command, "--version"]).stdout
    return _SINGLE["clang" in version]


@cache
def shim() -> Shim:
    """Return the process's. Raises ``DeviceError`` where there is no C++ compiler."""
    for name in ("c++", "g++", "clang++"):
        compiler = shutil.which(name)
        if compiler is not None:
            return Shim((compiler,))
    raise DeviceError("metal: no C++ compiler was found to run MSL on the host; install g++ or clang++.")
