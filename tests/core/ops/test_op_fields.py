"""The fields of ops that other packages read, and that these keep no tables of ops instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import tensorbus as tb
from tensorbus import backend_api
from tensorbus.ops.definition import Autocast, Cost, Op, table
from tensorbus.ops.lazy_families import load_all

METHODS: Final = frozenset(vars(tb.Tensor))
"""The methods of a tensor before families are loaded that most programs do not use."""
load_all()
OPS: Final = [op for op in table if table.owner(op.name) == "tensorbus"]
CORE: Final = Path(tb.__file__).parent
ABOUT_KERNELS: Final = frozenset({"graph", "kernels", "lowering", "ops", "testing"})
"""Packages that name ops for what their kernels, rewrites or samples do with each."""
OTHER_NAMES: Final = {
    "__init__.py": "public names",
    "backend_interface/communication.py": "what ranks combine values by",
    "compat/torch_names.py": "PyTorch's names",
    "distributed/collectives/operations.py": "PyTorch's names of what ranks combine values by",
    "distributed/collectives/combination.py": "what ranks combine values by",
    "eager_fusion/fused_function.py": "views and fills, which a program may return as they are",
    "nn/functional/embedding.py": "modes of an embedding bag",
    "nn/modules/embedding.py": "modes of an embedding bag",
    "tracing/sym_int.py": "functions of Python's math",
}  # fmt: skip
"""Files that name ops beside these, and what for."""


def _disagreements(op: Op[...]) -> Iterator[str]:
    """Yield what is wrong with the fields of an op, beside one another."""
    if op.cost not in get_args(Cost) or op.autocast not in (None, *get_args(Autocast)):
        yield f"cost {op.cost!r} or autocast {op.autocast!r} is no such value"
    if not set(op.raises_for) <= set(op.operands):
        yield f"raises_for {op.raises_for} names what is no operand"
    if op.recompute and op.cost == "heavy":
        yield "a heavy op would be computed again in the backward program"
    if op.memoize and (op.operands != ("x",) or op.results or op.family == "elementwise"):
        yield "only calls of one operand x, with attributes, are recognized by their arguments"
    if op.family == "elementwise" and (op.cost == "heavy" or not op.recompute or op.raises_for):
        yield "elementwise ops are light or functions, may be computed again, and raise for no values"
    if not op.doc:
        yield "has no doc"


def test_fields_agree_with_one_another() -> None:
    assert not {op.name: messages for op in OPS if (messages := [*_disagreements(op)])}


def test_an_op_is_a_method_where_its_field_says_so() -> None:
    for op in (op for op in OPS if op.operands):
        method = vars(tb.Tensor).get(op.name) if op.name in METHODS else None
        assert method is not None if op.method else method is not op.function, op.name


def test_plugins_set_the_same_fields() -> None:
    op = backend_api.elementwise(
        "gelu_quick", dtypes=(tb.float32,), cost="function", autocast="wide", method=False
    )
    assert (op.cost, op.autocast, op.method, op.recompute) == ("function", "wide", False, True)


def _texts(node: ast.AST) -> list[str]:
    """Return the strings of a display, or the words of a text that is split."""
    parts: list[Any] = []
    if isinstance(node, (ast.Set, ast.List, ast.Tuple)):
        parts = list(node.elts)
    elif isinstance(node, ast.Dict):
        parts = list(node.keys)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.split()
    return [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]


def _lists_of_ops(source: str) -> Iterator[str]:
    """Yield each list of three or more names in a module's code that are nearly all those of ops."""
    names = set(table.names())
    for node in ast.walk(ast.parse(source)):
        texts = _texts(node)
        known = [t for t in texts if t in names]
        if len(known) >= 3 and 4 * len(known) >= 3 * len(texts):
            yield f"line {getattr(node, 'lineno', 0)}: {' '.join(known)}"


def test_a_list_of_ops_is_seen() -> None:
    assert [*_lists_of_ops('A = {"add", "sum", "exp"}\nB = "add sum exp".split()\n')]
    assert not [*_lists_of_ops('A = {"add", "sum"}\n"""Adds, or gives the sum or mean."""\n')]


def test_no_module_lists_ops_by_what_they_are() -> None:
    """What an op is is said by its fields, so that a new one stands in no table but its own definition."""
    results = {}
    for path in sorted(CORE.rglob("*.py")):
        name = path.relative_to(CORE).as_posix()
        lists = [] if name.split("/")[0] in ABOUT_KERNELS else [*_lists_of_ops(path.read_text())]
        if lists:
            results[name] = lists
    assert not {name: lists for name, lists in results.items() if name not in OTHER_NAMES}
    assert set(OTHER_NAMES) == set(results), "a file named here lists no ops any more"
