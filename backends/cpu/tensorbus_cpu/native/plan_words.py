"""The numbers of a plan's bytecode: some are there once and for all, the others are computed from sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from tensorbus.backend_api import SymInt, substitute

from ..gemm.blas_call import tile
from .bytecode import thread_pieces
from .late_word import LateWord
from .relocatable_program import Address

if TYPE_CHECKING:
    from tensorbus.backend_api import PlanEnv

    from .bytecode import BytecodeProgram
    from .relocatable_program import PythonCall, RelocatableProgram


class SizedWords:
    """Bytecode for one set of sizes, see ``driver.Numbers``."""

    __slots__ = ("products", "references", "words")

    def __init__(self, words: Any, references: Any, products: bool) -> None:
        self.words, self.references, self.products = words, references, products


class PlanWords:
    """Bytecode with symbols. ``limits`` are the numbers of elements that lengths may come to, by length."""

    def __init__(self, listing: BytecodeProgram, env: PlanEnv, limits: Mapping[Any, int]) -> None:
        self._listing, self._products = listing, listing.products
        words: list[Any] = [*listing.words]
        places = [k for k, word in enumerate(words) if type(word) in (SymInt, LateWord)]
        self._places = np.array(places, np.int64)
        self._compute = _computation([words[k] for k in places], [*env.symbols], limits)
        for k in places:
            words[k] = 0
        self._calls = self._open_calls(listing.listing)
        self._fixed = np.array(words, np.int64)

    def at(self, sizes: Mapping[str, int]) -> SizedWords | None:
        """Return the bytecode for these sizes; None where they exceed the limits."""
        values = self._compute(**sizes)
        if values is None:
            return None
        words = self._fixed.copy()
        words[self._places] = values
        runs = []
        close = substitute(sizes)
        for call, places in self._calls:
            run = call.at(close).run()
            words[places] = id(run)
            runs.append(run)
        return SizedWords(words, (self._listing, runs), self._products)

    @staticmethod
    def _open_calls(program: RelocatableProgram) -> list[tuple[PythonCall, list[int]]]:
        """Return the calls of kernels that are made for each set of sizes, and where words name each."""
        places: dict[int, list[int]] = {}
        for k, word in enumerate(program.words):
            if word.__class__ is Address and word[0] == "call" and program.calls[word[2]].is_open:
                places.setdefault(word[2], []).append(k)
        return [(program.calls[number], words) for number, words in places.items()]


def _computation(
    words: list[Any], symbols: list[str], limits: Mapping[Any, int]
) -> Callable[..., list[int] | None]:
    """Return the function of the symbols that computes all numbers; None where one exceeds its limit."""
    names: dict[str, str] = {}
    lines: list[str] = []

    def named(text: str) -> str:
        if text not in names:
            names[text] = f"v{len(names)}"
            lines.append(f"    {names[text]} = {text}")
        return names[text]

    def shown(x: Any) -> str:
        if type(x) is tuple:
            return f"({', '.join(map(shown, x))},)"
        return named(x.text) if type(x) is SymInt else repr(x)

    over = [f"{x.text} > {most}" for x, most in limits.items() if type(x) is SymInt]
    values = []
    for word in words:
        if type(word) is SymInt:
            values.append(named(word.text))
        else:
            call = f"{word.function}({', '.join(map(shown, word.arguments))})"
            values.append(f"{named(call)}[{word.part}]")
    head = [f"def compute({', '.join(symbols)}):"]
    if over:
        head.append(f"    if {' or '.join(over)}: return None")
    scope: dict[str, Any] = {"pieces": _pieces, "tile": _tile}
    exec("\n".join([*head, *lines, f"    return [{', '.join(values)}]"]), scope)
    compute: Callable[..., Any] = scope["compute"]
    return compute


_pieces, _tile = lru_cache(1 << 12)(thread_pieces), lru_cache(1 << 12)(tile)
