"""Every op's case, by its name."""

from __future__ import annotations

from elementwise_cases import ELEMENTWISE
from model_cases import MODELS
from movement_cases import MOVEMENT
from reduction_cases import REDUCTIONS

CASES = {**ELEMENTWISE, **REDUCTIONS, **MOVEMENT, **MODELS}
