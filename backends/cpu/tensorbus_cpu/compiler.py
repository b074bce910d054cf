"""C source to calls: the system's compiler, a cache on disk, and the threads that run what it made."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shlex
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import (
    DeviceError,
    c_compiler,
    cache_load,
    cache_store,
    cached_library,
    cached_property,
    private_folder,
    threads,
    with_line_numbers,
)

from .machine import cores, physical_memory
from .memory import empty, use_pool
from .native.compiler_command import UNIX, find, identity
from .native.cpu_features import OWN, WIDER, NoCompilerError, ask
from .native.kernel_entry import entry_source, pieces, slot

if TYPE_CHECKING:  # the code generator is imported when the first array is large enough
    from tensorbus.backend_api import Dialect, Launch

_OPTIONS: Final = (
    "-std=gnu11 -O3 -fPIC -shared -fwrapv -ffp-contract=off -fno-math-errno -fno-trapping-math"
    " -fno-asynchronous-unwind-tables -Werror=implicit-function-declaration"
).split()
FAST_COMPILATION: Final = ("-Og",)
"""A quarter less to wait for than -O1 when the first program is compiled, and 0.05 us more a run."""
_WHOLE_LOOPS: Final = "-fno-tree-loop-distribution"
"""A result may lie where an operand lay: a loop stays one loop, so that elements are read before they go."""
_KERNELS: Final = (
    "-O2 -ftree-vectorize -fvect-cost-model=dynamic -fpeel-loops"
    " -fira-region=one -fno-tree-vrp -fno-tree-pre -fno-gcse -fno-schedule-insns2"
).split()
"""Of -O3 and -O2 what generated kernels gain by: half as long to wait for, and as fast code."""
_BARE: Final = "-nostdlib"
"""Kernels call nothing that Python has not loaded but -lm: a tenth less to wait for."""
_LINK: Final = ("-lm", "-pthread")
_PIPE: Final = "-pipe"
"""The assembler reads while the compiler writes: a tenth less for a short source."""
_UNWATCHED: Final = "-fno-sanitize=undefined"
"""zig makes debugging builds of what is compiled quickly: they end where an address is not aligned."""
_MIN_THREAD_ITEMS: Final = 8192
"""How many work-items of a grid are worth a thread's while."""
_PROBE_SOURCE: Final = "int tb_least(void) { return 1; }\n"
"""What every compiler that works makes a library of."""


class _NoRoomError(Exception):
    """A folder has no room to compile in."""


class CCompiler:
    """A C compiler, and the libraries that it has made in this process."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self.built = 0
        self._libraries: dict[tuple[str, ...], ctypes.CDLL] = {}
        self._locks: dict[tuple[str, ...], threading.RLock] = {}
        self._asking = threading.Lock()
        self._answer: str | None = None
        self._stopped = ""
        self._options = [*_OPTIONS, *self._own()]
        self._run: Any = None
        self._runtime: ctypes.CDLL | None = None

    def _own(self) -> list[str]:
        """Return the option for all that this processor has."""
        known = Path(self.command[0]).name in ("cc", "gcc", "clang")
        if platform.machine() in ("x86_64", "AMD64") and known:
            return [OWN[0], _PIPE]
        option = self.asked().partition(" ")[0]
        return [x for x in (option, _PIPE if known else _UNWATCHED) if x]

    @cached_property
    def has_half(self) -> bool:
        """Whether it has 16-bit floats; not where it says nothing any more."""
        try:
            return " half" in self.asked()
        except NoCompilerError:
            return False

    @cached_property
    def lanes(self) -> int:
        """The number of float32 in a vector by gcc's names for instructions: AVX-512's, AVX2's, or none."""
        return next((n for n in WIDER if f" wide{n}" in self.asked()), 0)

    @cached_property
    def for_kernels(self) -> tuple[str, ...]:
        """The options for the kernels of programs."""
        bare = sys.platform == "linux" and platform.machine() == "x86_64"
        gnu = Path(self.command[0]).name in ("cc", "gcc", "clang") or " gnu" in self.asked()
        fast = _KERNELS if " gnu" in self.asked() else ()
        return (*fast, *([_WHOLE_LOOPS] if gnu else []), *([_BARE] if bare else []))

    @cached_property
    def for_written_vectors(self) -> tuple[str, ...]:
        """The options for sources whose vectors are written out: -O3 takes half as long again for nothing."""
        return ("-O2", "-fpeel-loops", "-fno-tree-loop-vectorize") if " gnu" in self.asked() else ()

    def asked(self) -> str:
        """Return the first of ``OWN`` that this compiler takes, and what else it has: asked once."""
        with self._asking:
            if self._answer is None:
                if self._stopped:
                    raise NoCompilerError(self._stopped)
                try:
                    self._answer = self._known()
                except DeviceError as error:
                    self._stopped = str(error)
                    if isinstance(error, NoCompilerError) or self._libraries:
                        raise self._stop(str(error)) from error
                    raise
            return self._answer

    def _known(self) -> str:
        folder = private_folder("cpu", "libraries")
        parts = ("half lanes f16c gnu", *self.command, identity(self.command))
        name = sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
        known = cache_load(folder / f"{name}.txt") if folder is not None else None
        if known is None:
            known = ask(self.command).encode()
            if folder is not None:
                cache_store(folder / f"{name}.txt", known)
        return known.decode()

    @property
    def runtime(self) -> ctypes.CDLL:
        """The library with threads and memory: one for all that is compiled."""
        if self._runtime is None:
            self._runtime = self.library(c_source("runtime"), *FAST_COMPILATION)
        return self._runtime

    def library(self, source: str, *options: str) -> ctypes.CDLL:
        """Return the shared library of ``source``, made once; ``DeviceError`` shows the source numbered."""
        key = (source, *options)
        loaded = self._libraries.get(key)
        if loaded is None:
            with self._locks.setdefault(key, threading.RLock()):
                loaded = self._libraries.get(key)
                if loaded is None:
                    loaded = self._libraries[key] = self._load(source, options)
        return loaded

    def after_fork(self) -> None:
        """Make locks anew that another thread of the parent may have held."""
        self._asking = threading.Lock()
        self._locks.clear()

    def key(self, source: str, options: Sequence[str]) -> str:
        """Return the name on disk of the library of ``source``, for this compiler and processor."""
        text = "\0".join((source, *self.command, *self._options, *options, identity(self.command)))
        return sha256(text.encode(errors="surrogateescape")).hexdigest()

    def _load(self, source: str, options: Sequence[str]) -> ctypes.CDLL:
        folder = private_folder("cpu", "libraries")
        name = f"{self.key(source, options)}.so"
        library = cached_library(folder / name) if folder is not None else None
        if library is not None:
            return library
        binary = self.build(source, options)
        try:
            return self.loaded(folder, name, binary)
        except OSError as error:
            raise self.unloadable(error, source) from error

    def loaded(self, folder: Path | None, name: str, binary: bytes) -> ctypes.CDLL:
        """Return a new library, kept on disk where that can be. Raises ``OSError`` where it does not load."""
        if folder is not None and cache_store(folder / name, binary):
            library = cached_library(folder / name)
            if library is not None:
                return library
        from tensorbus.backend_api import load_library

        return load_library(name, binary)

    def unloadable(self, error: OSError, source: str) -> DeviceError:
        """Return the error for a library that does not load: of its source, or of all that is compiled."""
        text = f"cpu: what {shlex.join(self.command)} made cannot be loaded: {error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or not self._makes_loadable():
            return self._stop(f"{text}.")
        return DeviceError(f"{text}\n{with_line_numbers(source)}")

    def _makes_loadable(self) -> bool:
        """Return whether the least library that there can be is made, and loads."""
        from tensorbus.backend_api import load_library

        try:
            load_library("least.so", self.build(_PROBE_SOURCE, ()))
        except (DeviceError, OSError):
            return False
        return True

    def _stop(self, why: str) -> NoCompilerError:
        """Run no more, for whoever has this compiler still; return the error that says why."""
        self._stopped = why
        NATIVE.give_up(why)
        return NoCompilerError(why)

    def build(self, source: str, options: Sequence[str]) -> bytes:
        """Run the compiler; return the shared library that it makes. ``DeviceError`` shows the source.

        It runs in the cache's folder, and in that for temporary files where there is no room. Raises
        ``NoCompilerError`` where there is none there either, or the compiler does not return, or has worked
        and makes nothing any more; and from then on.
        """
        if self._stopped:
            raise NoCompilerError(self._stopped)
        self.built += 1
        try:
            try:
                return self._built(source, options, cached=True)
            except _NoRoomError:
                return self._built(source, options, cached=False)
        except (_NoRoomError, TimeoutError) as error:
            raise self._stop(f"cpu: {error}") from error
        except DeviceError as error:
            if source == _PROBE_SOURCE or not self._libraries or self._makes_loadable():
                raise
            raise self._stop(str(error)) from error

    def _built(self, source: str, options: Sequence[str], *, cached: bool) -> bytes:
        from tensorbus.backend_api import build_folder

        try:
            with build_folder("cpu", cached=cached) as folder:
                output, written = folder.path / "made.so", folder.path / "source.c"
                written.write_text(source, encoding="utf-8")
                command = [*self.command, *self._options, *options, str(written), "-o", str(output), *_LINK]
                process = self._ran(command, folder.environment)
                if os.strerror(errno.ENOSPC) in process.stderr:
                    raise _NoRoomError(f"there is no room to compile C code in.\n{process.stderr}")
                if process.returncode or not os.path.lexists(output):
                    raise DeviceError(
                        f"cpu: C code does not compile.\n{shlex.join(command)}\n{process.stderr}\n"
                        f"{with_line_numbers(source)}"
                    )
                return folder.read(output.name)
        except TimeoutError:
            raise
        except OSError as error:
            place = "the cache's folder" if cached else "the folder for temporary files"
            raise _NoRoomError(
                f"C code cannot be compiled in {place}: {error}. Make room there, or set TMPDIR."
            ) from error

    def _ran(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        from tensorbus.backend_api import run_compiler

        try:
            return run_compiler(command, environment)
        except TimeoutError:
            raise
        except OSError as error:
            raise DeviceError(f"cpu: the C compiler {self.command[0]!r} cannot be run: {error}") from error

    def call(
        self,
        function: Any,
        addresses: Sequence[int],
        params: bytes,
        grid: Sequence[int],
        piece: Sequence[int],
    ) -> None:
        """Run a compiled kernel over ``grid``, ``piece`` by ``piece``, in all threads; Python goes on."""
        self.prepared(function, len(addresses), params, grid, piece)(*addresses)

    def prepared(
        self, function: Any, count: int, params: bytes, grid: Sequence[int], piece: Sequence[int]
    ) -> Callable[..., None]:
        """Return what runs a kernel over ``grid``, given the ``count`` addresses of its buffers."""
        if self._run is None:
            run = self.runtime.tb_run
            run.argtypes, run.restype = (ctypes.c_void_p,) * 5, None
            self._run = run  # last: another thread calls it as soon as it is there
        run, whole, buffers = self._run, ctypes.c_int64 * 3, ctypes.c_void_p * max(count, 1)
        lengths, pieces = whole(*grid, *(1,) * (3 - len(grid))), whole(*piece, *(1,) * (3 - len(piece)))
        return lambda *addresses: run(function, buffers(*addresses), params, lengths, pieces)

    # What the generated kernels need: see ``tensorbus.kernels.generated_program.Compiler``.

    def dialect(self, index: int) -> Dialect:
        """Return C as this compiler takes it."""
        from .dialect import dialect

        return dialect(half=self.has_half, lanes=self.lanes)

    def describe(self, index: int) -> str:
        """Return the device's name."""
        return "cpu"

    def allocate(self, nbytes: int, index: int) -> Any:
        """Return an array of bytes."""
        return empty((nbytes,), "u1")

    def is_own(self, buffer: Any, index: int) -> bool:
        """Return True: whoever asks for a change in place has looked at the array."""
        return True

    def are_own(self, buffers: Sequence[Any], index: int) -> bool:
        """Return True, as ``is_own`` does."""
        return True

    def errors(self, index: int) -> Any:
        """Refuse: kernels that look for bad indices check them first here."""
        raise DeviceError("cpu: no generated kernel reports errors later")

    def error_code(self, op: str) -> int:
        """Return 0: see ``errors``."""
        return 0

    def prepare(
        self, source: str, launch: Launch, index: int
    ) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        """Return what runs the kernel with this launch's sizes."""
        from tensorbus.backend_api import RuntimeArg

        kernel = launch.kernel
        slots = "typedef union { double f; int64_t i; uint64_t u; } tb_slot;\n"
        entry = self.library(f"{source}{slots}{entry_source(launch)}").tb_entry
        codes = [slot(p.dtype) for p in kernel.params]
        form = struct.Struct("".join(codes) or "x")
        fixed = [0 if isinstance(v, RuntimeArg) else v for v in launch.values]
        late = [k for k, v in enumerate(launch.values) if isinstance(v, RuntimeArg)]
        grid = launch.grid or (1,)
        piece = pieces(grid, 1 if kernel.task else _MIN_THREAD_ITEMS, tiled=launch.tiled)
        params = form.pack(*fixed) if codes else b""
        call = self.call

        def run(buffers: Sequence[Any], values: Sequence[Any]) -> None:
            packed = params
            if late:
                filled = list(fixed)
                for k, value in zip(late, values, strict=True):
                    filled[k] = value
                packed = form.pack(*filled)
            call(entry, [0 if b is None else b.ctypes.data for b in buffers], packed, grid, piece)

        return run


@cache
def c_source(name: str) -> str:
    """Return one of the package's own C sources."""
    return (Path(__file__).parent / "csource" / f"{name}.c").read_text()


_MISSING: Final = (
    "no C compiler: NumPy computes large arrays, on one thread; install one, or pip install ziglang"
    if UNIX
    else f"NumPy computes large arrays, on one thread: C is compiled on Unix only, and this is {sys.platform}"
)


def _broken(why: str) -> str:
    """Return the note on a compiler that does not work, without the source that it was given."""
    named = f" (CC={c_compiler()!r})" if c_compiler() is not None else ""
    text = why.partition("\n   1 ")[0].strip().encode(errors="backslashreplace").decode()
    return f"no C compiler that works{named}: NumPy computes large arrays, on one thread. {text}"


class NativeCode:
    """The compiler, once something is large enough to need it; or why there is none."""

    def __init__(self) -> None:
        self.reason = ""
        self.threads = threads() or cores()
        self.working: CCompiler | None = None
        self._tools: CCompiler | None = None
        self._tried = False
        self._lock = threading.Lock()

    def tools(self) -> CCompiler | None:
        """Return the compiler as it is found; ``compiler`` says whether what it makes runs."""
        if self._tools is None and not self._tried:
            command = find()
            try:
                self._tools = CCompiler(command) if command is not None else None
            except DeviceError as error:
                self._tried, self.reason = True, _broken(str(error))
        return self._tools or self.working

    def compiler(self) -> CCompiler | None:
        """Return the compiler; None where there is none that works."""
        if not self._tried:
            with self._lock:
                if not self._tried:
                    self.working = self._bring_up()
                    self._tried = True
                    if self.working is None:
                        self._tools = None
        return self.working

    def needed(self) -> CCompiler:
        """Return the compiler. Raises ``NoCompilerError`` where there is none, maybe since a moment ago."""
        compiler = self.compiler()
        if compiler is None:
            raise NoCompilerError(self.reason)
        return compiler

    def _bring_up(self) -> CCompiler | None:
        tools = self._tools
        command = tools.command if tools is not None else find()
        if command is None:
            self.reason = _MISSING
            return None
        try:
            compiler = tools or CCompiler(command)
            runtime = compiler.runtime
            runtime.tb_set_threads(self.threads)
        except (DeviceError, AttributeError) as error:  # a library without what was compiled into it
            self.reason = _broken(str(error))
            return None
        use_pool(runtime, (physical_memory() or 1 << 32) // 8)
        return compiler

    def answers(self, tools: CCompiler) -> bool:
        """Return whether a compiler says what it is; one that does not counts as none."""
        try:
            tools.asked()
        except DeviceError as error:
            with self._lock:
                self._tools, self._tried, self.reason = None, True, _broken(str(error))
            return False
        return True

    def give_up(self, why: str) -> None:
        """Do without a compiler from now on, and say so, once."""
        reported = bool(self.reason)
        self.working, self._tools, self._tried, self.reason = None, None, True, _broken(why)
        if not reported:
            warnings.warn(self.reason, RuntimeWarning, stacklevel=2)

    def describe(self) -> dict[str, object]:
        """Say what large arrays are computed by, without making it."""
        command = None if self.reason else find()
        if command is not None:
            return {"compiler": shlex.join(command)}
        return {"compiler": None, "note": self.reason or _MISSING}

    def use_threads(self, count: int) -> None:
        """Compute with up to ``count`` threads from now on."""
        self.threads = count
        if self.working is not None:
            self.working.runtime.tb_set_threads(count)

    def after_fork(self) -> None:
        """Make locks anew that another thread of the parent may have held."""
        self._lock = threading.Lock()
        if self._tools is not None:
            self._tools.after_fork()
        if self.working is not None:
            self.working.after_fork()


NATIVE: Final = NativeCode()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=NATIVE.after_fork)
