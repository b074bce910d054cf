"""``TENSORBUS_DUMP=dir``: every stage of each compiled program in files, and a page that shows them all."""

from __future__ import annotations

import html
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ..runtime import Executable, Order

_STYLE = """
body { font: 13px/1.5 system-ui, sans-serif; margin: 1rem; color: #1b1f24; background: #fff }
h1 { font-size: 1.1rem } h2 { font-size: .95rem; margin: 0 0 .4rem; position: sticky; left: 0 }
.stages { display: flex; gap: 1rem; align-items: flex-start; overflow-x: auto }
section { flex: none; max-width: 60rem; border: 1px solid #d0d7de; border-radius: 6px; padding: .6rem }
pre { font: 11px/1.45 ui-monospace, monospace; margin: 0; white-space: pre; tab-size: 2 }
table { border-collapse: collapse } td, th { padding: .15rem .8rem .15rem 0; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
"""
_lock = threading.Lock()
_count = 0


class Timed:
    """An executable that remembers how long its runs took, and rewrites its page as they get known."""

    def __init__(self, inner: Executable, page: Page) -> None:
        self.inner, self.page = inner, page
        self.seconds: list[float] = []

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the program."""
        start = perf_counter()
        out = self.inner(values)
        self.seconds.append(perf_counter() - start)
        if len(self.seconds) in (1, 10, 100):
            steps = getattr(self.inner, "times", None)
            self.page.write(self.seconds, steps(values) if steps is not None else {})
        return out

    def stages(self) -> Mapping[str, str]:
        """Return the texts of the program."""
        return self.inner.stages()


class Page:
    """The files of one program, in a folder of its own."""

    def __init__(
        self, folder: Path, device: str, order: Order, stages: Mapping[str, str], seconds: float
    ) -> None:
        self.folder, self.device, self.order, self.compiled = folder, device, order, seconds
        self.stages = {"graph": str(order.graph), **stages}
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.stages.items():
            (folder / f"{name.replace(' ', '_')}.txt").write_text(text)
        self.write([], {})

    def write(self, runs: Sequence[float], steps: Mapping[str, float]) -> None:
        """Write the page with what is known of times: of whole runs, and of single steps in seconds."""
        ops = sum(node.op not in ("input", "constant") for node in self.order.graph)
        rows = [("device", self.device), ("mode", self.order.mode), ("ops", str(ops))]
        rows.append(("compiled in", f"{self.compiled * 1e3:.1f} ms"))
        if runs:
            rows.append((f"fastest of {len(runs)} run(s)", f"{min(runs) * 1e6:.1f} us"))
        facts = "".join(f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in rows)
        timed = "".join(
            f'<tr><td>{html.escape(name)}</td><td class="number">{seconds * 1e6:.1f} us</td></tr>'
            for name, seconds in steps.items()
        )
        parts = [f"<section><h2>program</h2><table>{facts}</table></section>"]
        if timed:
            parts.append(f"<section><h2>times</h2><table>{timed}</table></section>")
        parts += [
            f"<section><h2>{html.escape(name)}</h2><pre>{html.escape(text)}</pre></section>"
            for name, text in self.stages.items()
        ]
        title = html.escape(f"{self.folder.name} on {self.device}")
        text = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
            f'<style>{_STYLE}</style><h1>{title}</h1><div class="stages">{"".join(parts)}</div></html>\n'
        )
        (self.folder / "index.html").write_text(text)


def dumped(folder: Path, device: str, order: Order, executable: Executable, seconds: float) -> Executable:
    """Write what is known of a program that took ``seconds`` to compile; return it, with its runs timed."""
    global _count
    with _lock:
        _count += 1
        number = _count
    page = Page(folder / f"program_{os.getpid()}_{number:04d}", device, order, executable.stages(), seconds)
    return Timed(executable, page)
