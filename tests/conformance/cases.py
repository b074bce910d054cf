"""Every op's case, by its name."""

from __future__ import annotations

from elementwise_cases import ELEMENTWISE
from linalg_cases import LINALG
from model_cases import MODELS
from movement_cases import MOVEMENT
from ordering_cases import ORDERING
from reduction_cases import REDUCTIONS

CASES = {**ELEMENTWISE, **REDUCTIONS, **MOVEMENT, **ORDERING, **MODELS, **LINALG}
