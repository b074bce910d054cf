"""All schedules of learning rates, by PyTorch's name of the module.

In order: ``base``, ``multiplicative``, ``cyclic``, ``composite``.
"""

from __future__ import annotations

from .base import CosineAnnealingLR as CosineAnnealingLR
from .base import LRScheduler as LRScheduler
from .base import StepLR as StepLR
from .composite import ChainedScheduler as ChainedScheduler
from .composite import ReduceLROnPlateau as ReduceLROnPlateau
from .composite import SequentialLR as SequentialLR
from .cyclic import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from .cyclic import CyclicLR as CyclicLR
from .cyclic import OneCycleLR as OneCycleLR
from .multiplicative import ConstantLR as ConstantLR
from .multiplicative import ExponentialLR as ExponentialLR
from .multiplicative import LambdaLR as LambdaLR
from .multiplicative import LinearLR as LinearLR
from .multiplicative import MultiplicativeLR as MultiplicativeLR
from .multiplicative import MultiStepLR as MultiStepLR
from .multiplicative import PolynomialLR as PolynomialLR
