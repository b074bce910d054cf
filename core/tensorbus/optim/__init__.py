"""Optimizers and learning-rate schedules with PyTorch's names, arguments and arithmetic."""

from __future__ import annotations

from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .clipping import clip_grad_norm_ as clip_grad_norm_
from .optimizer import Optimizer as Optimizer
from .schedule import CosineAnnealingLR as CosineAnnealingLR
from .schedule import LRScheduler as LRScheduler
from .schedule import StepLR as StepLR
from .sgd import SGD as SGD
