"""The kernels of a program, compiled many at a time: a few runs of the compiler, side by side.

A kernel is found again by a digest of its source, in this process and on disk, whichever program it was
compiled with.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from tensorbus.backend_api import DeviceError, Launch, keep, kept, kernel_parts, private_folder, verify_kernel

from .compiler import CCompiler, cores, entry_source, scratch

_NAME: Final = "tb_kernel_name"
_LARGEST: Final = 16
_LEAST: Final = 3
"""How many kernels one run of the compiler takes: at most, and at least where there are as many."""
_OPTIONS: Final = ("-fno-tree-loop-distribution",)
"""A result may lie where an operand lay: a loop stays one loop, so that elements are read before they go."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One kernel's source, without what all kernels begin with; ``symbol`` is its function's name."""

    symbol: str
    helpers: dict[str, str]
    text: str


class Units:
    """The kernels that this process has loaded, by symbol."""

    def __init__(self, compiler: CCompiler) -> None:
        self._compiler = compiler
        self._dialect = compiler.dialect(0)
        self._addresses: dict[str, int] = {}
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._lock = threading.RLock()

    def unit(self, launch: Launch) -> Unit:
        """Return the source of a launch's kernel."""
        named = replace(launch, kernel=replace(launch.kernel, name=f"{_NAME}_body"))
        helpers, own = kernel_parts(named.kernel, self._dialect)
        text = f"{own}\n{entry_source(named, _NAME)}"
        key = self._compiler.key("\0".join((*helpers.values(), text)), _OPTIONS)
        return Unit(symbol=f"tb_{key[:32]}", helpers=helpers, text=text)

    def addresses(self, launches: Sequence[Launch]) -> tuple[list[int], str]:
        """Return the address of each launch's kernel, and the source of all of them."""
        made: dict[int, Unit] = {}
        for launch in launches:
            if id(launch.kernel) not in made:
                verify_kernel(launch.kernel)
                made[id(launch.kernel)] = self.unit(launch)
        distinct = list({unit.symbol: unit for unit in made.values()}.values())
        with self._lock:
            missing = [u for u in distinct if u.symbol not in self._addresses and not self._find(u.symbol)]
            self._build(missing)
        found = [self._addresses[made[id(launch.kernel)].symbol] for launch in launches]
        return found, self._source(distinct)

    def _find(self, symbol: str) -> bool:
        """Load a kernel that lies on disk; return whether there is one."""
        folder = private_folder("cpu", "kernels")
        where = kept(folder / symbol) if folder is not None else None
        if folder is None or where is None:
            return False
        name = where.decode()
        library = self._libraries.get(name)
        if library is None:
            if kept(folder / name) is None:
                return False
            try:
                library = self._libraries[name] = ctypes.CDLL(str(folder / name))
            except OSError:
                return False  # whole, but not for this system
        return self._take(library, symbol)

    def _take(self, library: ctypes.CDLL, symbol: str) -> bool:
        function = getattr(library, symbol, None)
        if function is None:
            return False
        self._addresses[symbol] = ctypes.cast(function, ctypes.c_void_p).value or 0
        return True

    def _build(self, units: Sequence[Unit]) -> None:
        if not units:
            return
        runs = max(-(-len(units) // _LARGEST), min(cores(), len(units) // _LEAST), 1)
        groups = [units[k::runs] for k in range(runs)]
        if runs == 1:
            self._load(groups[0])
            return
        with ThreadPoolExecutor(min(runs, cores())) as pool:
            for future in [pool.submit(self._load, group) for group in groups]:
                future.result()

    def _load(self, units: Sequence[Unit]) -> None:
        binary = self._compiler.build(self._source(units), _OPTIONS)
        name = sha256("\0".join(u.symbol for u in units).encode()).hexdigest() + ".so"
        folder = private_folder("cpu", "kernels")
        if folder is not None and keep(folder / name, binary):
            for unit in units:
                keep(folder / unit.symbol, name.encode())
            path = folder / name
        else:
            path = Path(scratch()) / name
            path.write_bytes(binary)
        library = ctypes.CDLL(str(path))
        self._libraries[name] = library
        for unit in units:
            if not self._take(library, unit.symbol):
                raise DeviceError(f"cpu: {path} lacks the kernel {unit.symbol} that was compiled into it.")

    def _source(self, units: Sequence[Unit]) -> str:
        helpers = {name: text for unit in units for name, text in unit.helpers.items()}
        own = [unit.text.replace(_NAME, unit.symbol) for unit in units]
        return "\n".join([self._dialect.prologue, SLOT, *helpers.values(), *own])


SLOT: Final = "typedef union { double f; int64_t i; uint64_t u; } tb_slot;"
