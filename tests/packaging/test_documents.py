"""What documents name exists: files that they link to, files of the source, headings."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from tensorbus import distributed

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "core").glob("*.md"),
        *ROOT.glob("backends/*/*.md"),
        *ROOT.glob("plugins/*/*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
    ]
)
RECORDS = ROOT / "docs" / "decisions"


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"(?s)```.*?```", "", document.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{document.relative_to(ROOT)} links to {link}"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


def test_the_index_lists_every_record_of_a_decision() -> None:
    listed = LINK.findall((RECORDS / "README.md").read_text(encoding="utf-8"))
    there = {path.name for path in RECORDS.glob("*.md")} - {"README.md"}
    assert {link for link in listed if "/" not in link} == there
    for name in there:
        text = (RECORDS / name).read_text(encoding="utf-8")
        assert re.findall(r"(?m)^## (\w+)$", text) == ["Context", "Decision", "Consequences"], name


def test_the_glossary_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| word |")]
    for row in rows:
        named = re.findall(r"`([\w/]+\.(?:py|md))`", row.rsplit("| ", 1)[1])
        assert named, row
        for path in named:
            assert any((base / path).exists() for base in (ROOT, ROOT / "core/tensorbus")), path


NAMED = re.compile(r"`([\w/]+\.(?:py|toml|md|svg))(?::([\w.]+))?`")


def names_of(file: Path) -> set[str]:
    """Return the functions, classes, methods, fields and variables that a module defines or imports."""
    module = ast.parse(file.read_text(encoding="utf-8"))
    exports = (node.names for node in ast.walk(module) if isinstance(node, ast.ImportFrom))
    names = {alias.asname for names in exports for alias in names if alias.asname}
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
            }
            fields = [inner.target for inner in node.body if isinstance(inner, ast.AnnAssign)]
            names |= {f"{node.name}.{field.id}" for field in fields if isinstance(field, ast.Name)}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_architecture_names_what_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    missing = []
    for path, name in NAMED.findall(text):
        there = [base / path for base in (ROOT, ROOT / "core/tensorbus") if (base / path).exists()]
        if not there or (name and name not in names_of(there[0])):
            missing.append(f"{path}:{name}")
    assert not missing
    questions = text.partition("## Ten questions")[2]
    rows = [line for line in questions.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) == 10
    for row in rows:
        paths = NAMED.findall(row)
        assert 1 <= len({path for path, _ in paths}) <= 3, row
        assert all(name for _, name in paths), f"{row}: say which function"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_from_the_root_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = re.findall(
        r"(?<![\w/.-])(?:core|backends|plugins|docs|examples|scripts)/[\w/.-]+\.(?:py|md|toml)\b", text
    )
    bases = (ROOT, ROOT / "core/tensorbus")
    assert not {path for path in named if not any((base / path).exists() for base in bases)}


def test_all_that_connects_ranks_is_explained() -> None:
    pages = [
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("distributed.md", "connecting.md")
    ]
    public = [name for name in dir(distributed) if not name.startswith("_")]
    public = [name for name in public if not inspect.ismodule(getattr(distributed, name))]
    assert len(public) > 80
    words = set(re.findall(r"\w+", " ".join(pages)))
    assert not set(public) - words  # each stands on a page
    for name in public:
        text = inspect.getdoc(getattr(distributed, name)) or ""
        assert re.search(r"\w.*\n\n(?s:.*)>>> ", text), name  # and has an example, which doctest runs
