"""Finds words of the project's own where the field has one: ``docs/glossary.md`` says which word to use.

Some are words that no line needs, others are plain English and wrong only as the name of a module or a class.
A class name of the core that stands for two things is found too.
``python scripts/check_words.py`` prints each place with such a word, and exits with 1 where there is one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
WORDS: Final = {
    r"\b(light|solo|thin)[ _]items?\b|\bsolo_\w+|\bsolo\b": "work-item, task",
    r"\bteams?\b|_teams?\b": "workgroup",
    r"\bswaps?[ _]lanes?\b|\bswap_\d": "subgroup shuffle",
    r"\bpackets?\b|_packets?\b": "vector",
    r"\bpulls? (in|into|its)\b|\bpulled (in|into|by)\b|\bPULLED\b|\bPull\b": "inline",
    r"\bpart(ed|ing) (in two|of|by|pass)|\bparting\b": "partition",
    r"(?i:\bstrips\b|\bstrip_\w+|_strips?\b)|\bstacks of rows\b|is_stack_of_rows": "column reduction, panel",
    r"\bwalks? (of|over|along|through) (rows?|columns?|elements|an? )|\bwalked by\b": "loop",
    r"\bendings\b": "last-block epilogue",
    r"\bdrifting\b": "varying",
    r"(?<!-)\bitems? (of|in|to) (an?|the|one) (work-?group|group|block|grid|kernel)\b": "work-item",
    r"\bsettles?\b|\bsettled\b|\bsettle[sd]?_\w+": "materialize",
    r"\brecordings?\b(?! (function|history|of a))|\b[Rr]ecorders?\b": "tracer, trace",
    r"\bjoined (function|program|op|call)s?\b|\bjoined\(": "eager fusion",
    r"\bbundles?d?\b": "fused update",
    r"\bbrought (kernel|along)|\bbrought\b": "user kernel, source",
    r"\b_?(MOST|MANY|FEW|LEAST|SHORT|EACH|ALONE)\b": "a name that says what it bounds",
}
"""The words, each with what the field says."""
MODULES: Final = {
    "pull": "inline", "parting": "partition", "counting": "radix_pass", "ranked": "scatter",
    "along": "scatter", "rows": "row_normalization", "strips": "column_normalization",
    "stacks": "column_reduction", "columns": "column_reduction", "walks": "reduction_loop",
    "streams": "grid_stride", "gaps": "padded_rows", "early": "early_free",
    "endings": "last_block_epilogue", "joins": "concat_in_place", "bundles": "fused_update",
    "staged": "split_reductions", "order": "compile_request", "steps": "launch_list",
    "batch": "parallel_batch", "reach": "reachable", "looking": "inspection", "marks": "value_identity",
    "changes": "mutations", "answer": "output_codegen", "beginning": "optimizer_init", "finishing": "flush",
    "failing": "data_dependent_errors", "lengths": "sym_int", "places": "varying_inputs",
    "moving": "varying_inputs", "stands": "symbolic", "drifting": "varying", "pending": "lazy_value",
    "landing": "wait_for_copies", "settling": "materialize", "recorder": "tracer", "recording": "op_trace",
    "joining": "fused_function", "choice": "kernel_selection", "offer": "register",
    "hosting": "host_fallback", "returned": "result_check", "decision": "decision_log",
    "preference": "kernel_preference", "changing": "inplace_kernel", "assigning": "setitem",
    "later": "lazy_import", "lines": "user_frame", "nested": "nested_sequence", "locks": "fork_safe_locks",
}  # fmt: skip
"""Names of modules, each with a noun that says what is in it; also with an underscore before."""
CLASSES: Final = {
    "Pull": "Inliner", "Reach": "ReachableState", "Look": "ObjectView", "Changes": "Mutations",
    "Moving": "StateVaries", "GuardWriter": "GuardCodegen", "AnswerWriter": "OutputCodegen",
    "Finish": "TraceFlush", "Length": "SymInt", "Lengths": "ShapeEnv", "Number": "SymNumber",
    "Pending": "LazyValue", "Recorder": "Tracer", "Recording": "OpTrace", "Job": "KernelTask",
    "Steps": "LaunchList", "Late": "RuntimeArg", "Several": "ProductReducer", "Team": "Workgroup",
    "Rows": "RowKernel", "Order": "CompileRequest", "Staged": "MultiDeviceProgram", "Places": "VaryingInputs",
    "Derivative": "BackwardProgram", "Bundle": "UpdateBatch", "Ready": "PreparedRun",
}  # fmt: skip
"""Names of classes, each with what the field calls such a thing."""
NAMES: Final = frozenset({"made", "found", "given", "told", "kept", "brought", "said"})
"""Names of functions, arguments, locals and attributes for which there is always a better one: what it is."""
OPENINGS: Final = frozenset({"What", "How", "Which", "Where", "When", "Who"})
"""First words that make a docstring a question: it opens with a noun, or a verb in the third person."""
TWICE: Final = frozenset({"Node", "Store"})
"""Classes of the core that stand twice, as the field has them.

Nodes of autograd and of graphs are both public; a store is where ranks meet, and ``Load``'s pair in loop IR.
"""
_CLASS: Final = re.compile(rf"^ *class _*({'|'.join(CLASSES)})\b", re.MULTILINE)
_SKIPPED: Final = (
    "CHANGELOG.md",
    "docs/decisions/",
    "docs/glossary.md",
    "scripts/",
    "tests/core/lowering/test_target.py",
)
_FORMER: Final = re.compile(r'^(@former_names\(|    )(\w+="\w+",?\s*)+\)?$')
"""A line of a table of former names, which are still taken."""


def findings() -> list[str]:
    """Return a text for each place that has such a word."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    places = []
    classes: dict[str, str] = {}
    for name in listed.split():
        if not name.endswith((".py", ".md", ".c")) or name.startswith(_SKIPPED):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        places += _in_lines(name, text)
        if name.endswith(".py"):
            places += _in_names(name, text)
        if name.startswith("core/") and name.endswith(".py"):
            places += _twice(name, text, classes)
    return places


def _twice(name: str, text: str, classes: dict[str, str]) -> Iterator[str]:
    """Yield a text for each class of a module whose name another one has; ``classes`` are those before."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in TWICE:
            other = classes.setdefault(node.name, name)
            if other != name:
                yield f"{name}:{node.lineno}: a class {node.name!r}; {other} has one of this name"


def _in_lines(name: str, text: str) -> Iterator[str]:
    words = {pattern: word for pattern, word in WORDS.items() if re.search(pattern, text)}
    for number, line in enumerate(text.splitlines() if words else (), 1):
        if _FORMER.match(line):
            continue
        for pattern, word in words.items():
            match = re.search(pattern, line)
            if match:
                yield f"{name}:{number}: {match[0]!r}; the field says: {word}"


def _in_names(name: str, text: str) -> Iterator[str]:
    tree = ast.parse(text)
    for line, bound in _bound_names(tree):
        yield f"{name}:{line}: a name {bound!r}: it may be a plan, a function, a message, a cache"
    if name.startswith("tests/"):
        return
    for line, word in _questions(tree):
        yield f"{name}:{line}: a docstring opens with {word!r}, not with a noun or a verb"
    if not name.startswith(("core/", "backends/", "plugins/")):
        return
    module = Path(name).stem.lstrip("_")
    if module in MODULES:
        yield f"{name}: a module {module!r}; the field says: {MODULES[module]}"
    for match in _CLASS.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield f"{name}:{line}: a class {match[1]!r}; the field says: {CLASSES[match[1]]}"


def _questions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return where a docstring opens with one of ``OPENINGS``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            word = (ast.get_docstring(node) or "").partition(" ")[0]
            if word in OPENINGS:
                yield node.body[0].lineno, word


def _bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return where one of ``NAMES`` is bound, also with an underscore before."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=bound, ctx=ast.Store()) | ast.Attribute(attr=bound, ctx=ast.Store()):
                pass
            case ast.arg(arg=bound) | ast.FunctionDef(name=bound) | ast.AsyncFunctionDef(name=bound):
                pass
            case _:
                continue
        if bound.lstrip("_") in NAMES:
            yield node.lineno, bound


if __name__ == "__main__":
    lines = findings()
    print(*lines, sep="\n")
    sys.exit(bool(lines))
