"""Draw docs/architecture.svg and write the table of core/README.md, from the packages as they are.

    python scripts/draw_architecture.py            # writes both
    python scripts/draw_architecture.py --check    # exit code 1 where they are not what would be written

The packages and their order come from the contract of layers in pyproject.toml, what each is for from the
first sentence of its docstring, the hooks from plugins/hookspecs.py, the devices from folders in backends/
and plugins/refdev. So neither can say what is not so; a test runs the check.
"""

from __future__ import annotations

import ast
import html
import math
import re
import sys
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "core" / "tensorbus"
DRAWING = ROOT / "docs" / "architecture.svg"
TABLE = ROOT / "core" / "README.md"

# A band begins with the first of its layers that the contract has, and goes down to the next band.
BANDS = (
    ("What people run and call", ("__main__", "cli")),
    ("Transforms, and how programs run", ("library", "control_flow", "eager_fusion", "func", "executors")),
    ("Ops as Python functions", ("kernels", "eager")),
    ("From an op to its kernel", ("autograd", "interchange", "tensor", "dispatch")),
    ("Programs as data, and how they become source", ("lowering", "graph")),
    ("What an operation means, and the tensor", ("ops",)),
    ("Devices and plugins", ("devices", "plugins", "backend_interface")),
    ("The ground", ("dtypes", "tracing", "system")),
)
# Where two calls pass through, in order. "cpu" stands for any device.
PATHS = (
    ("eager", "a + b", ("eager", "dispatch", "cpu", "autograd")),
    ("compiled", "tb.compile(f)(x)", ("compiler", "graph", "lowering", "executors", "cpu")),
)

WIDTH, MARGIN, GAP, COLUMNS = 900, 24, 10, 4
CELL = (WIDTH - 2 * MARGIN - (COLUMNS - 1) * GAP) / COLUMNS
NAME_HEIGHT, LINE_HEIGHT, LINES = 20, 14, 5
CHARACTER, CHIP_CHARACTER = 6.3, 6.03  # the widest fonts of those that STYLE names
HIDDEN = {"version"}

STYLE = """
  text { font-family: -apple-system, "Segoe UI", Helvetica, "DejaVu Sans", sans-serif; font-size: 11px }
  text { fill: #57606a }
  .name, .chip { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
  .name { font-size: 12.5px; font-weight: 600; fill: #1f2328 }
  .band { font-size: 12px; font-weight: 600; fill: #57606a }
  .chip { font-size: 10px; fill: #57606a }
  .page { fill: #ffffff; stroke: #d0d7de }
  .cell { fill: #f6f8fa; stroke: #d0d7de }
  .device { fill: #fff8ec; stroke: #d4a72c }
  .bus { fill: #9a6700 }
  .badge { font-size: 10px; font-weight: 700; fill: #ffffff; text-anchor: middle }
  .plug { font-weight: 600; fill: #ffffff }
  .eager { fill: #0969da } .compiled { fill: #bc4c00 }
  .wire { stroke: #9a6700; stroke-width: 3 }
"""
DARK = """
  text, .band, .chip { fill: #9198a1 }
  .name { fill: #f0f6fc }
  .page { fill: #0d1117; stroke: #3d444d }
  .cell { fill: #151b23; stroke: #3d444d }
  .device { fill: #272115; stroke: #9e6a03 }
  .bus { fill: #9e6a03 }
  .badge, .plug { fill: #ffffff }
  .eager { fill: #1f6feb } .compiled { fill: #c2560a }
  .wire { stroke: #9e6a03 }
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """A module or package of core, or a device: its name, what it is for, the stages inside of it."""

    name: str
    sentence: str
    stages: tuple[str, ...] = ()
    arrow: str = " → "

    @property
    def chips(self) -> str:
        """The stages, as they are written into the cell."""
        return self.arrow.join(self.stages)


@dataclass(kw_only=True)
class Band:
    """A part of the drawing: some neighbouring layers."""

    title: str
    packages: list[Package] = field(default_factory=list)


def docstring(path: Path) -> str:
    """Return the docstring of a module, or of a package's ``__init__``."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not text:
        raise SystemExit(f"{file.relative_to(ROOT)} has no docstring.")
    return text


def package(path: Path, name: str | None = None) -> Package:
    """Return what is drawn of a package: its first sentence, and the subpackages that the docstring names."""
    text = docstring(path)
    sentence = re.split(r"(?<=[.])\s", " ".join(text.split("\n\n")[0].split()), maxsplit=1)[0].replace(
        "``", ""
    )
    named = dict.fromkeys(re.findall(r"``(\w+)/?``", text))
    stages = tuple(stage for stage in named if (path / stage / "__init__.py").exists())
    arrow = " → " if "Stages in order" in text else "  ·  "
    return Package(name=name or path.name, sentence=sentence.rstrip("."), stages=stages, arrow=arrow)


def layers() -> list[str]:
    """Return the packages of core, top to bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = [c for c in contracts if c["type"] == "layers" and c["containers"] == ["tensorbus"]]
    return [name.strip(" ()") for layer in contract["layers"] for name in re.split(r"[|:]", layer)]


def bands() -> list[Band]:
    """Return the packages of core in their bands."""
    names = layers()
    begins = {next((n for n in names if n in first), None): title for title, first in BANDS}
    if None in begins:
        raise SystemExit(f"no layer of {begins[None]!r} is left: mend BANDS.")
    shown: list[Band] = []
    for name in names:
        if name in begins or not shown:
            shown.append(Band(title=begins.get(name, BANDS[0][0])))
        if name not in HIDDEN:
            shown[-1].packages.append(package(CORE / name))
    return shown


def devices() -> list[Package]:
    """Return the devices of this repository, and the place for one more."""
    folders = [*sorted((ROOT / "backends").iterdir()), ROOT / "plugins" / "refdev"]
    known = [
        package(folder / f"tensorbus_{folder.name}", folder.name) for folder in folders if folder.is_dir()
    ]
    return [*known, Package(name="yours", sentence="A package that anybody publishes; docs/devices.md")]


def hooks() -> list[str]:
    """Return the names of the hooks that a plugin implements."""
    tree = ast.parse((CORE / "plugins" / "hookspecs.py").read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name.removeprefix("tensorbus_") for name in names if name.startswith("tensorbus_")]


class Drawing:
    """The SVG, filled from top to bottom."""

    def __init__(self, names: set[str]) -> None:
        self.parts: list[str] = []
        self.badges: dict[str, list[tuple[str, int]]] = {}
        for kind, _, path in PATHS:
            if missing := set(path) - names:
                raise SystemExit(f"{', '.join(missing)}: no such package; mend PATHS.")
            for number, name in enumerate(path, 1):
                self.badges.setdefault(name, []).append((kind, number))

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "") -> None:
        """Write a line."""
        style = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{style}>{html.escape(words, quote=False)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 6) -> None:
        """Draw a rectangle."""
        where = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self.parts.append(f'<rect class="{kind}" {where} rx="{radius:g}"/>')

    def badge(self, x: float, y: float, kind: str, number: int) -> None:
        """Draw the number of a step of a path."""
        self.parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="8"/>')
        self.text(x, y + 3.6, str(number), "badge")

    def cell(
        self, x: float, y: float, width: float, height: float, shown: Package, kind: str = "cell"
    ) -> None:
        """Draw a package: its name, its sentence, its stages, and the steps of paths that pass through."""
        self.box(x, y, width, height, kind)
        self.text(x + 10, y + 18, shown.name, "name")
        for place, (way, number) in enumerate(self.badges.get(shown.name, ())):
            self.badge(x + width - 15 - 20 * place, y + 14, way, number)
        for place, line in enumerate(lines(shown, width)):
            self.text(x + 10, y + NAME_HEIGHT + 12 + LINE_HEIGHT * place, line)
        if shown.stages:
            self.text(x + 10, y + height - 9, shown.chips, "chip")

    def row(self, y: float, packages: list[Package], kind: str = "cell", columns: int = COLUMNS) -> float:
        """Draw a row of packages, one with stages as wide as they need; return where it ends."""
        spans = [span(shown) for shown in packages]
        width = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns
        widths = [wide * (width + GAP) - GAP for wide in spans]
        height = max(cell_height(shown, wide) for shown, wide in zip(packages, widths, strict=True))
        x: float = MARGIN
        for shown, wide in zip(packages, widths, strict=True):
            self.cell(x, y, wide, height, shown, kind)
            x += wide + GAP
        return y + height


def span(shown: Package) -> int:
    """Return how many columns a package takes."""
    return math.ceil((len(shown.chips) * CHIP_CHARACTER + 20 + GAP) / (CELL + GAP)) if shown.stages else 1


def lines(shown: Package, width: float) -> list[str]:
    """Return the sentence of a package, broken to the width of its cell."""
    broken = textwrap.wrap(shown.sentence, int((width - 16) / CHARACTER))
    if len(broken) > LINES:
        raise SystemExit(
            f"{shown.name}: the first sentence of its docstring is too long for the drawing: {shown.sentence}"
        )
    return broken


def cell_height(shown: Package, width: float) -> float:
    """Return the height that a package needs."""
    return NAME_HEIGHT + 6 + LINE_HEIGHT * len(lines(shown, width)) + (18 if shown.stages else 4)


def rows(packages: list[Package]) -> list[list[Package]]:
    """Return the packages of a band in rows that fit, as evenly as they can be shared out."""
    rows: list[list[Package]] = []
    left = 0
    together = sum(map(span, packages))
    most = math.ceil(together / math.ceil(together / COLUMNS))
    for shown in packages:
        if span(shown) > left:
            rows.append([])
            left = max(most, span(shown))
        rows[-1].append(shown)
        left -= span(shown)
    return rows


def draw() -> str:
    """Return the drawing."""
    parts = bands()
    inside = {shown.name for band in parts for shown in band.packages}
    drawing = Drawing(inside | {shown.name for shown in devices()})
    y = 34.0
    drawing.text(MARGIN, y, "The core of tensorbus: imports go down, and to the right", "name")
    x: float = WIDTH - MARGIN
    for kind, call, path in reversed(PATHS):
        x -= 7.6 * len(call)
        drawing.text(x, y, call, "name")
        x -= 16
        drawing.badge(x, y - 4, kind, len(path))
        drawing.text(x - 16, y, "…", anchor="middle")
        drawing.badge(x - 32, y - 4, kind, 1)
        x -= 62
    for band in parts:
        y += 26
        drawing.text(MARGIN, y, band.title, "band")
        y += 8
        for place, some in enumerate(rows(band.packages)):
            y = drawing.row(y + (GAP if place else 0), some, columns=sum(map(span, some)))
    y = draw_devices(drawing, y + 22)
    content = "\n".join(drawing.parts)
    style = f"{STYLE}  @media (prefers-color-scheme: dark) {{{DARK}  }}\n"
    size = f'viewBox="0 0 {WIDTH} {y:.0f}" width="{WIDTH}" height="{y:.0f}"'
    label = "The packages of tensorbus, top to bottom, and the devices that plug into it"
    page = f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{y - 1:.0f}" rx="10"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">\n'
        f"<style>{style}</style>\n{page}\n{content}\n</svg>\n"
    )


def draw_devices(drawing: Drawing, y: float) -> float:
    """Draw the bus, and the devices that are plugged into it; return where the page ends."""
    known = devices()
    drawing.box(MARGIN, y, WIDTH - 2 * MARGIN, 26, "bus", 4)
    what = (
        f"the bus: hooks {', '.join(hooks())} come in by entry points; only tensorbus.backend_api is imported"
    )
    drawing.text(WIDTH / 2, y + 17, what, "plug", "middle")
    columns = len(known)
    width = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns
    for place in range(columns):
        middle = MARGIN + place * (width + GAP) + width / 2
        for off in (-14, 0, 14):
            x = middle + off
            line = f'x1="{x:.1f}" y1="{y + 26:.1f}" x2="{x:.1f}" y2="{y + 42:.1f}"'
            drawing.parts.append(f'<line class="wire" {line}/>')
    bare = [Package(name=shown.name, sentence=shown.sentence) for shown in known]
    return drawing.row(y + 42, bare, "device", columns) + MARGIN


def table(text: str) -> str:
    """Return core/README.md with its table of packages as it should be."""
    packages = [shown for band in reversed(bands()) for shown in reversed(band.packages)]
    rows = [f"| `{shown.name}` | {shown.sentence} |" for shown in packages]
    head, _, rest = text.partition("<!-- packages -->\n")
    _, _, tail = rest.partition("<!-- end -->\n")
    lines = "\n".join(["| package | what |", "|---|---|", *rows])
    return f"{head}<!-- packages -->\n{lines}\n<!-- end -->\n{tail}"


def main() -> int:
    """Write the drawing and the table, or check them."""
    drawn, written = draw(), table(TABLE.read_text(encoding="utf-8"))
    if "--check" in sys.argv[1:]:
        stale = [
            str(path.relative_to(ROOT))
            for path, text in ((DRAWING, drawn), (TABLE, written))
            if not path.exists() or path.read_text(encoding="utf-8") != text
        ]
        if stale:
            print(f"{' and '.join(stale)}: not as the packages are. Run: python scripts/draw_architecture.py")
        return 1 if stale else 0
    DRAWING.write_text(drawn, encoding="utf-8")
    TABLE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
