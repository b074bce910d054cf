"""Compiling: capture with guards, programs, and what runs them."""

from __future__ import annotations

from .api import CompiledFunction
from .api import RecompileWarning as RecompileWarning
from .api import compile as compile
from .compiled_module import CompiledModule as CompiledModule
from .dynamic.mark_dynamic import mark_dynamic as mark_dynamic
from .dynamic.mark_dynamic import mark_static as mark_static
from .explain import CompileExplanation as CompileExplanation
from .explain import explain as _explain

Compiled = CompiledFunction
compile.explain = _explain  # type: ignore[attr-defined]
