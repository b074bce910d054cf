"""``tb.compile``: runs a function once on lazy values, and calls the program from then on.

A Python function and its arguments come in; a replay leaves, which checks guards, runs the program and
applies mutations. Stages in order: ``state``, ``capture``, ``guards``, ``programs``, ``aot_autograd``,
``replay``; ``dynamic`` retraces with symbols, ``segments`` divides what breaks, ``debug`` shows. In order:
``api``, ``compiled_function``, ``eager_choice``, ``divided_comparison``, ``recompile_warning``,
``compiled_module``, ``explain``.
"""

from __future__ import annotations

from .api import compile as compile
from .compiled_function import CompiledFunction
from .compiled_module import CompiledModule as CompiledModule
from .dynamic.mark_dynamic import mark_dynamic as mark_dynamic
from .dynamic.mark_dynamic import mark_static as mark_static
from .eager_choice import SlowerThanEagerWarning as SlowerThanEagerWarning
from .explain import CompileExplanation as CompileExplanation
from .explain import explain as _explain
from .recompile_warning import RecompileWarning as RecompileWarning

Compiled = CompiledFunction
compile.explain = _explain  # type: ignore[attr-defined]
