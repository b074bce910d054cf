"""The probe: what keeps an Apple GPU from being used here."""

from __future__ import annotations

import importlib.util
import platform


def why_unavailable() -> str:
    """Return the first thing that is missing: macOS, MLX, a Metal GPU, and at last this release's kernels."""
    system = platform.system()
    if system != "Darwin":
        return f"Metal is part of macOS, and this machine runs {system or 'an unknown system'}"
    if importlib.util.find_spec("mlx") is None:
        return "MLX is not installed"
    import mlx.core

    if not mlx.core.metal.is_available():
        return "MLX is installed but finds no Metal GPU"
    return (
        "this release of tensorbus-metal supplies the probe only; kernels follow. MLX finds a Metal GPU,"
        " so nothing is wrong with this machine"
    )
