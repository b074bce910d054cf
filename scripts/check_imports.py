"""Holds all imports of core to the layers of pyproject.toml: those inside of functions and for types too.

import-linter sees imports at the top of modules and, unless told otherwise, those under ``TYPE_CHECKING``; it
does not see names of modules in strings. This script reads the same contract and counts all of them:
``import`` statements anywhere, ``import_module("tensorbus.x")``, and the tables of ``lazy_exports``. It fails
where an import goes up or joins two packages that must not know each other, and where modules of different
packages import each other in a circle. Run ``python scripts/check_imports.py``; ``make lint`` does.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = ROOT / "core"
PACKAGE = "tensorbus"


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a module of core by another: where it stands, and whether it is deferred or for types."""

    importer: str
    imported: str
    path: Path
    line: int
    kind: str

    def __str__(self) -> str:
        where = f"{self.path.relative_to(ROOT)}:{self.line}"
        return f"{where}: {self.importer} imports {self.imported}{f' ({self.kind})' if self.kind else ''}"


def modules() -> dict[str, Path]:
    """Return every module of core by name."""
    paths = {}
    for path in sorted((CORE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(CORE).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def imports_of(name: str, path: Path, known: dict[str, Path]) -> Iterator[Import]:
    """Yield the imports of one module, wherever they stand in it."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def absolute(module: str, level: int) -> str:
        parts = package.split(".")[: len(package.split(".")) - level + 1] if level else []
        return ".".join([*parts, *([module] if module else [])])

    def named(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node.module or "", node.level)
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                text = str(first.value)
                dots = len(text) - len(text.lstrip("."))
                yield absolute(text.lstrip("."), dots)
            elif called == "lazy_exports" and len(node.args) > 1 and isinstance(node.args[1], ast.Dict):
                for key in node.args[1].keys:
                    if isinstance(key, ast.Constant):
                        yield f"{package}.{key.value}"

    def visit(node: ast.AST, kind: str) -> Iterator[Import]:
        for target in named(node):
            if target.split(".")[0] == PACKAGE and target in known:
                yield Import(name, target, path, getattr(node, "lineno", 0), kind)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            kind = "deferred"
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, "for types")
            for child in node.orelse:
                yield from visit(child, kind)
            return
        for child in ast.iter_child_nodes(node):
            yield from visit(child, kind)

    yield from visit(ast.parse(path.read_text()), "")


def layers() -> dict[str, tuple[int, int]]:
    """Return each part of core with its layer, 0 on top, and its place among those that are beside it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(c for c in settings["contracts"] if c["type"] == "layers")
    assert contract["containers"] == [PACKAGE], contract
    assert not contract.get("ignore_imports"), "the layers contract has exceptions"
    return {
        part.strip(): (depth, place)
        for depth, layer in enumerate(contract["layers"])
        for place, part in enumerate(layer.split("|"))
    }


def part_of(module: str) -> str:
    """Return the package (or the module of the root) that a module of core belongs to; "" for the root."""
    return module.split(".")[1] if "." in module else ""


def upward(imports: list[Import], order: dict[str, tuple[int, int]]) -> list[str]:
    """Return what is wrong with imports by the layers."""
    wrong = []
    for each in imports:
        here, there = part_of(each.importer), part_of(each.imported)
        if here == there or not here:  # the root stands above all but the command line
            continue
        if not there:
            if order[here][0] <= order["cli"][0]:
                continue
            wrong.append(f"{each}: the root package stands above all others")
        elif here not in order or there not in order:
            wrong.append(f"{each}: {here if here not in order else there!r} has no layer in pyproject.toml")
        elif order[there][0] <= order[here][0]:
            relation = "beside" if order[there][0] == order[here][0] else "above"
            wrong.append(f"{each}: {there} stands {relation} {here}")
    return wrong


def circles(imports: list[Import]) -> list[list[str]]:
    """Return the strongly connected sets of modules that lie in more than one package (Tarjan, 1972)."""
    edges: dict[str, set[str]] = {}
    for each in imports:
        edges.setdefault(each.importer, set()).add(each.imported)
        edges.setdefault(each.imported, set())
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result = []
    for root in edges:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        work = [(root, iter(edges[root]))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    circle = [stack.pop()]
                    while circle[-1] != node:
                        circle.append(stack.pop())
                    if len({part_of(m) for m in circle}) > 1:
                        result.append(sorted(circle))
    return result


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    known = modules()
    imports = [each for name, path in known.items() for each in imports_of(name, path, known)]
    wrong = upward(imports, layers())
    wrong += [f"modules of several packages import each other: {', '.join(c)}" for c in circles(imports)]
    for text in wrong:
        print(text)
    kinds = {kind: sum(e.kind == kind for e in imports) for kind in ("", "deferred", "for types")}
    print(
        f"{len(known)} modules, {kinds['']} imports at the top, {kinds['deferred']} deferred,"
        f" {kinds['for types']} for types: {len(wrong) or 'nothing'} wrong."
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
