"""``TENSORBUS_DUMP=dir``: every stage of each compiled program in files, and a page that shows them all.

The page has four columns that scroll by themselves: the graph, the groups of ops that became one step each
with their times, the loops and the code. A group leads to its loops and its code, and these lead back.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from ...backend_interface.compilation import CompileRequest, Executable, ProgramPart
from ...devices.device import Device
from ...system import fork_safe_locks

_STYLE: Final = """
body { font: 13px/1.5 system-ui, sans-serif; margin: 0; color: #1b1f24; background: #fff }
header { padding: .6rem 1rem; border-bottom: 1px solid #d0d7de }
h1 { font-size: 1.1rem; margin: 0 0 .3rem }
h2 { font-size: .9rem; margin: 0; padding: .4rem .6rem; position: sticky; top: 0; background: #f6f8fa }
dl { display: flex; flex-wrap: wrap; gap: .2rem 1.6rem; margin: 0 } dl div { display: flex; gap: .4rem }
dt { color: #57606a } dd { margin: 0; font-variant-numeric: tabular-nums }
main { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(22rem, 1fr); overflow-x: auto }
section { overflow: auto; height: calc(100vh - 8rem); border-right: 1px solid #d0d7de }
article { padding: .4rem .6rem; border-bottom: 1px solid #eaeef2; scroll-margin-top: 2rem }
article:target { background: #fff8c5 }
article p { margin: 0 } .ops { color: #57606a }
.time { float: right; font-variant-numeric: tabular-nums }
.bar { height: 4px; background: #eaeef2; margin: .2rem 0 }
.bar i { display: block; height: 4px; background: #0969da }
pre { font: 11px/1.45 ui-monospace, monospace; margin: 0; white-space: pre; tab-size: 2 }
section > pre { padding: .4rem .6rem } a { color: #0969da; text-decoration: none }
@media (prefers-color-scheme: dark) {
  body, h2 { color: #e6edf3; background: #0d1117 } article:target { background: #3b2e00 }
  header, section, article { border-color: #30363d } .bar { background: #30363d }
  a, dt, .ops { color: #79c0ff }
}
"""
_TIMED_RUNS: Final = (1, 10, 100)
"""The runs after which the steps are timed, and the page is written again."""
_lock = fork_safe_locks.simple()
_count = 0


class TimedExecutable:
    """An executable that times its runs, and rewrites its page as the times become known."""

    def __init__(self, inner: Executable, device: Device, page: TracePage) -> None:
        self.inner, self.device, self.page = inner, device, page
        self.seconds: list[float] = []

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the program, and wait for it."""
        wait, index = self.device.runtime.synchronize, self.device.index
        wait(index)
        start = perf_counter()
        out = self.inner(values)
        wait(index)
        self.seconds.append(perf_counter() - start)
        if len(self.seconds) in _TIMED_RUNS:
            steps = getattr(self.inner, "times", None)
            try:
                self.page.write(self.seconds, steps(values) if steps is not None else {})
            except OSError as error:
                _warn_refused(self.page.folder.parent, error)
        return out

    def stages(self) -> Mapping[str, str]:
        """Return the texts of the program."""
        return self.inner.stages()


class TracePage:
    """The files of one program, in a folder of its own."""

    def __init__(
        self, folder: Path, device: Device, request: CompileRequest, executable: Executable, seconds: float,
        notes: Sequence[str], passes: str = "",
    ) -> None:  # fmt: skip
        self.folder, self.device, self.request, self.compile_seconds = folder, device, request, seconds
        self.notes = notes
        self.stages = {"captured": str(request.graph), **executable.stages()}
        if passes:
            self.stages["passes"] = passes
        parts = getattr(executable, "parts", None)
        self.parts: Sequence[ProgramPart] = parts() if parts is not None else ()
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.stages.items():
            (folder / f"{name.replace(' ', '_')}.txt").write_text(text)
        self.write([], {})

    def write(self, runs: Sequence[float], steps: Mapping[str, float]) -> None:
        """Write the page with the seconds of whole runs and of single steps, as far as known."""
        title = escape(f"{self.folder.name} on {self.device}")
        facts = "".join(
            f"<div><dt>{escape(a)}</dt><dd>{escape(b)}</dd></div>" for a, b in self._facts(runs, steps)
        )
        text = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style><header><h1>{title}</h1><dl>{facts}</dl></header>"
            f"<main>{''.join(self._columns(steps))}</main></html>\n"
        )
        (self.folder / "index.html").write_text(text)
        if steps:
            lines = [f"{seconds * 1e6:12.2f} us  {name}" for name, seconds in steps.items()]
            (self.folder / "times.txt").write_text("\n".join([*lines, ""]))

    def _facts(self, runs: Sequence[float], steps: Mapping[str, float]) -> list[tuple[str, str]]:
        ops = sum(node.op not in ("input", "constant") for node in self.request.graph)
        facts = [("device", str(self.device)), ("mode", self.request.mode), ("ops", str(ops))]
        facts += [("groups", str(len(self.parts)))] if self.parts else []
        facts.append(("compiled in", f"{self.compile_seconds * 1e3:.1f} ms"))
        if runs:
            facts.append((f"fastest of {len(runs)} run(s)", f"{min(runs) * 1e6:.1f} us"))
        if steps:
            facts.append(("all groups, one by one", f"{sum(steps.values()) * 1e6:.1f} us"))
        return facts + [("", note) for note in self.notes]

    def _columns(self, steps: Mapping[str, float]) -> list[str]:
        """Return the columns of the page: where a program has no parts, its stages side by side."""
        if not self.parts:
            return [_column(name, f"<pre>{escape(text)}</pre>") for name, text in self.stages.items()]
        columns = [_column("graph", f"<pre>{escape(self.stages.get('graph', ''))}</pre>")]
        if self.stages["captured"] != self.stages.get("graph"):
            columns.insert(0, _column("captured", f"<pre>{escape(self.stages['captured'])}</pre>"))
        groups = "".join(self._group(k, part, steps) for k, part in enumerate(self.parts))
        columns.append(_column("groups and times" if steps else "groups", groups))
        if self.stages.get("schedules"):
            columns.append(_column("schedules", f"<pre>{escape(self.stages['schedules'])}</pre>"))
        return columns + [
            _column(what, "".join(self._texts(what, steps)))
            for what in ("loops", "code") if any(getattr(part, what) for part in self.parts)
        ]  # fmt: skip

    def _group(self, k: int, part: ProgramPart, steps: Mapping[str, float]) -> str:
        """Return a step: its name, its share of the time, its ops, and where its loops and code stand."""
        links = "".join(
            f' <a href="#{what}{self._first(what, part)}">{what}</a>'
            for what in ("loops", "code") if getattr(part, what)
        )  # fmt: skip
        bar = ""
        if part.name in steps:
            share = 100 * steps[part.name] / max(sum(steps.values()), 1e-12)
            bar = f'<div class="bar"><i style="width:{share:.1f}%"></i></div>'
        ops = f'<p class="ops">{escape(_with_counts(part.ops))}</p>' if part.ops else ""
        return (
            f'<article id="group{k}">{_time(part, steps)}<p><b>{escape(part.name)}</b>{links}</p>{bar}{ops}'
            f"<pre>{escape(part.text)}</pre></article>"
        )

    def _texts(self, what: str, steps: Mapping[str, float]) -> list[str]:
        """Return the loops or the code, each text once, below the groups that it serves."""
        served: dict[str, list[int]] = {}
        for k, part in enumerate(self.parts):
            if getattr(part, what):
                served.setdefault(getattr(part, what), []).append(k)
        return [
            f'<article id="{what}{users[0]}"><p>'
            + ", ".join(
                f'<a href="#group{k}">{escape(self.parts[k].name)}</a> {_time(self.parts[k], steps)}'
                for k in users
            )
            + f"</p><pre>{escape(text)}</pre></article>"
            for text, users in served.items()
        ]

    def _first(self, what: str, part: ProgramPart) -> int:
        """Return the number of the first group of the same loops or code."""
        return next(k for k, p in enumerate(self.parts) if getattr(p, what) == getattr(part, what))


def _column(name: str, inside: str) -> str:
    return f"<section><h2>{escape(name)}</h2>{inside}</section>"


def _time(part: ProgramPart, steps: Mapping[str, float]) -> str:
    seconds = steps.get(part.name)
    return "" if seconds is None else f'<span class="time">{seconds * 1e6:.2f} us</span>'


def _with_counts(ops: Sequence[str]) -> str:
    """Return names with how often each occurs.

    >>> _with_counts(["add", "exp", "add"])
    'add x2, exp'
    """
    counts = {name: list(ops).count(name) for name in ops}
    return ", ".join(name if n == 1 else f"{name} x{n}" for name, n in counts.items())


def write_trace(
    folder: Path,
    device: Device,
    request: CompileRequest,
    executable: Executable,
    seconds: float,
    notes: Sequence[str],
    passes: str = "",
) -> Executable:
    """Write what is known of a program that took ``seconds`` to compile; return it, with its runs timed.

    ``passes`` has the graph after each pass that changed it.
    """
    global _count
    with _lock:
        _count += 1
        number = _count
    try:
        page = TracePage(
            folder / f"program_{os.getpid()}_{number:04d}",
            device,
            request,
            executable,
            seconds,
            notes,
            passes,
        )
    except OSError as error:
        _warn_refused(folder, error)
        return executable
    return TimedExecutable(executable, device, page)


@cache
def _warn_once(folder: Path, why: str) -> None:
    warnings.warn(
        f"TENSORBUS_DUMP={str(folder)!r}: programs cannot be written there: {why}. Name a folder that can be"
        f" made or written to; the program goes on without.",
        RuntimeWarning,
        stacklevel=3,
    )


def _warn_refused(folder: Path, error: OSError) -> None:
    """Warn, once for each folder, that nothing can be written to it."""
    _warn_once(folder, error.strerror or str(error))
