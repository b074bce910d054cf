"""All schedules of learning rates, by PyTorch's name of the module."""

from __future__ import annotations

from .combined_schedule import ChainedScheduler as ChainedScheduler
from .combined_schedule import ReduceLROnPlateau as ReduceLROnPlateau
from .combined_schedule import SequentialLR as SequentialLR
from .cycle_schedule import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from .cycle_schedule import CyclicLR as CyclicLR
from .cycle_schedule import OneCycleLR as OneCycleLR
from .factor_schedule import ConstantLR as ConstantLR
from .factor_schedule import ExponentialLR as ExponentialLR
from .factor_schedule import LambdaLR as LambdaLR
from .factor_schedule import LinearLR as LinearLR
from .factor_schedule import MultiplicativeLR as MultiplicativeLR
from .factor_schedule import MultiStepLR as MultiStepLR
from .factor_schedule import PolynomialLR as PolynomialLR
from .schedule import CosineAnnealingLR as CosineAnnealingLR
from .schedule import LRScheduler as LRScheduler
from .schedule import StepLR as StepLR
