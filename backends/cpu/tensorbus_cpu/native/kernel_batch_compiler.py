"""The kernels of a program, compiled many at a time: a few runs of the compiler, side by side.

A kernel is found again by a digest of its source, in this process and on disk, whichever program it was
compiled with.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tensorbus.backend_api import (
    DeviceError,
    WeakSet,
    cache_load,
    cache_store,
    cached_library,
    private_folder,
)

from ..compiler import CCompiler
from ..machine import cores
from .compile_queue import COMPILE_QUEUE
from .kernel_entry import entry_source

if TYPE_CHECKING:  # the code generator is imported when something is to be generated
    from tensorbus.backend_api import Launch

    from .compile_queue import CompileTask

_NAME: Final = "tb_kernel_name"
_MAX_BATCH: Final = 16
_MIN_BATCH: Final = 3
"""How many kernels one run of the compiler takes: at most, and at least where there are as many."""


class KernelUnit:  # plain classes: making a dataclass takes about as long as loading a program
    """One kernel's source, without what all kernels begin with; ``symbol`` is its function's name."""

    __slots__ = ("helpers", "symbol", "text")

    def __init__(self, *, symbol: str, helpers: dict[str, str], text: str) -> None:
        self.symbol, self.helpers, self.text = symbol, helpers, text


class _BatchBuild:
    """Kernels that are being compiled to a library, which has a name."""

    __slots__ = ("library", "units")

    def __init__(self, units: Sequence[KernelUnit], library: CompileTask[tuple[str, ctypes.CDLL]]) -> None:
        self.units, self.library = units, library


_every: Final[WeakSet[KernelUnits]] = WeakSet()


class KernelUnits:
    """The kernels that this process has loaded, by symbol."""

    def __init__(self, compiler: CCompiler) -> None:
        self.compiler = compiler
        self._addresses: dict[str, int] = {}
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._coming: dict[str, _BatchBuild] = {}
        self._lock = threading.RLock()
        _every.add(self)

    def after_fork(self) -> None:
        """Make a new lock, which a thread of the parent may hold. What that compiled is compiled here."""
        self._lock = threading.RLock()

    def unit(self, launch: Launch) -> KernelUnit:
        """Return the source of a launch's kernel."""
        from dataclasses import replace

        from tensorbus.backend_api import kernel_parts

        named = replace(launch, kernel=replace(launch.kernel, name=f"{_NAME}_body"))
        helpers, own = kernel_parts(named.kernel, self.compiler.dialect(0))
        text = f"{own}\n{entry_source(named, _NAME)}"
        begins = _digest(self.compiler.dialect(0).prologue)
        key = self.compiler.key("\0".join((begins, *helpers.values(), text)), self.compiler.for_kernels)
        return KernelUnit(symbol=f"tb_{key[:32]}", helpers=helpers, text=text)

    def symbols(self, launches: Sequence[Launch], units: dict[int, KernelUnit]) -> tuple[list[str], str]:
        """Begin to compile what is not there; return each launch's symbol, and the source of all kernels.

        ``units`` are the sources of kernels, by the kernels' ids; those of new ones are added.
        """
        from tensorbus.backend_api import verify_kernel

        for launch in launches:
            if id(launch.kernel) not in units:
                verify_kernel(launch.kernel)
                units[id(launch.kernel)] = self.unit(launch)
        distinct = list({unit.symbol: unit for unit in units.values()}.values())
        with self._lock:
            known = self._addresses.keys() | self._coming.keys()
            self._build([u for u in distinct if u.symbol not in known and not self._find(u.symbol)])
        return [units[id(launch.kernel)].symbol for launch in launches], self._source(distinct)

    def address(self, symbol: str) -> int | None:
        """Return where a kernel is, compiled or loaded if need be; None where there is none."""
        with self._lock:
            coming = self._coming.get(symbol)
            if coming is not None:
                self._load(coming)
            if symbol not in self._addresses and not self._find(symbol):
                return None
            return self._addresses[symbol]

    def _find(self, symbol: str) -> bool:
        """Load a kernel that lies on disk; return whether there is one."""
        folder = private_folder("cpu", "kernels")
        where = cache_load(folder / symbol) if folder is not None else None
        if folder is None or where is None:
            return False
        name = where.decode()
        library = self._libraries.get(name)
        if library is None:
            library = cached_library(folder / name)
            if library is None:
                return False
            self._libraries[name] = library
        return self._take(library, symbol)

    def _take(self, library: ctypes.CDLL, symbol: str) -> bool:
        function = getattr(library, symbol, None)
        if function is None:
            return False
        self._addresses[symbol] = ctypes.cast(function, ctypes.c_void_p).value or 0
        return True

    def _build(self, units: Sequence[KernelUnit]) -> None:
        if not units:
            return
        for group in _shared_out(units, _runs(len(units), cores())):
            build = _BatchBuild(group, COMPILE_QUEUE.submit(partial(self._compiled, group)))
            self._coming |= {unit.symbol: build for unit in group}

    def _compiled(self, units: Sequence[KernelUnit]) -> tuple[str, ctypes.CDLL]:
        """Return the name of a library of some kernels, and the library, loaded."""
        source = self._source(units)
        binary = self.compiler.build(source, self.compiler.for_kernels)
        name = sha256("\0".join(u.symbol for u in units).encode()).hexdigest() + ".so"
        folder = private_folder("cpu", "kernels")
        try:
            library = self.compiler.loaded(folder, name, binary)
        except OSError as error:
            raise self.compiler.unloadable(error, source) from error
        if folder is not None:
            for unit in units:
                cache_store(folder / unit.symbol, name.encode())
        return name, library

    def _load(self, build: _BatchBuild) -> None:
        """Wait for a library. ``DeviceError`` shows the source that does not compile."""
        try:
            name, library = build.library.result()
            self._libraries[name] = library
            for unit in build.units:
                if not self._take(library, unit.symbol):
                    raise DeviceError(
                        f"cpu: {name} lacks the kernel {unit.symbol} that was compiled into it."
                    )
        finally:
            if build.library.is_done:  # else whoever waited was interrupted: other programs need it
                for unit in build.units:
                    self._coming.pop(unit.symbol, None)

    def _source(self, units: Sequence[KernelUnit]) -> str:
        helpers = {name: text for unit in units for name, text in unit.helpers.items()}
        own = [unit.text.replace(_NAME, unit.symbol) for unit in units]
        return "\n".join([self.compiler.dialect(0).prologue, SLOT, *helpers.values(), *own])


def _runs(count: int, side_by_side: int) -> int:
    """Return how many runs of the compiler take so many kernels: what keeps all cores busy to the end."""
    least = -(-count // _MAX_BATCH)
    if least > side_by_side:
        return -(-least // side_by_side) * side_by_side
    return max(least, min(side_by_side, count // _MIN_BATCH), 1)


def _shared_out(units: Sequence[KernelUnit], count: int) -> list[list[KernelUnit]]:
    """Return the units in ``count`` groups that take about as long: longest first, each where least is."""
    groups: list[list[KernelUnit]] = [[] for _ in range(count)]
    sizes = [0] * count
    for unit in sorted(units, key=lambda u: -len(u.text)):
        k = sizes.index(min(sizes))
        groups[k].append(unit)
        sizes[k] += len(unit.text)
    return groups


@cache
def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


SLOT: Final = "typedef union { double f; int64_t i; uint64_t u; } tb_slot;"


@cache
def units_of(compiler: CCompiler) -> KernelUnits:
    """Return the kernels of a compiler in this process."""
    return KernelUnits(compiler)


def _after_fork() -> None:
    for units in _every:
        units.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
