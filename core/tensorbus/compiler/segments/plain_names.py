"""Names that depend on where a definition stands, written out: ``super()``, private names of a class."""

from __future__ import annotations

import ast
from types import CodeType


def write_out(node: ast.FunctionDef, code: CodeType, class_name: str | None) -> None:
    """Write out the definition of a function, whose defaults are taken from elsewhere, of a class or none."""
    _PlainNames(code, class_name).definition(node)


class _PlainNames(ast.NodeTransformer):
    """Writes out names and calls, by the code of the function and the name of its class."""

    def __init__(self, code: CodeType, class_name: str | None) -> None:
        self._first = code.co_varnames[0] if code.co_argcount else None
        self._class = class_name.lstrip("_") if class_name else None
        self._inside = False

    def definition(self, node: ast.FunctionDef) -> None:
        """Write out the definition of the function itself, whose defaults are taken from elsewhere."""
        node.args.defaults = [ast.copy_location(ast.Constant(None), x) for x in node.args.defaults]
        node.args.kw_defaults = [
            x and ast.copy_location(ast.Constant(None), x) for x in node.args.kw_defaults
        ]
        self.visit(node.args)
        node.body = [self.visit(s) for s in node.body]

    def _name(self, name: str) -> str:
        private = self._class and name.startswith("__") and not name.endswith("__") and "." not in name
        return f"_{self._class}{name}" if private else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self._name(node.attr)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.arg = node.arg and self._name(node.arg)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = self._name(node.arg), None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.copy_location(ast.Constant(None), node.annotation)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer, self._inside = self._inside, True
        node.name = self._name(node.name)
        self.generic_visit(node)
        self._inside = outer
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if (
            isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args
            and self._first and not self._inside
        ):  # fmt: skip
            names = (ast.Name("__class__", ast.Load()), ast.Name(self._first, ast.Load()))
            node.args = [ast.copy_location(n, node) for n in names]
        return self.generic_visit(node)
