"""Optimizers and schedules with PyTorch's names, arguments and arithmetic.

Parameters with gradients come in; a step computes all new values, then stores them. In order: ``optimizer``,
``step_hooks``, ``fused_update``, ``sgd``, ``adam``, ``adam_variants``, ``adafactor``, ``muon``, ``rmsprop``,
``adagrad``, ``adadelta``, ``rprop``, ``lbfgs``, ``strong_wolfe``, ``clip_grad``, ``lr_scheduler``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..system.lazy_import import lazy_exports

if TYPE_CHECKING:
    from . import lr_scheduler as lr_scheduler
    from .adadelta import Adadelta as Adadelta
    from .adafactor import Adafactor as Adafactor
    from .adagrad import Adagrad as Adagrad
    from .adam import Adam as Adam
    from .adam import AdamW as AdamW
    from .adam_variants import Adamax as Adamax
    from .adam_variants import NAdam as NAdam
    from .adam_variants import RAdam as RAdam
    from .clip_grad import clip_grad_norm_ as clip_grad_norm_
    from .clip_grad import clip_grad_value_ as clip_grad_value_
    from .lbfgs import LBFGS as LBFGS
    from .lr_scheduler.base import CosineAnnealingLR as CosineAnnealingLR
    from .lr_scheduler.base import LRScheduler as LRScheduler
    from .lr_scheduler.base import StepLR as StepLR
    from .muon import Muon as Muon
    from .optimizer import Optimizer as Optimizer
    from .rmsprop import RMSprop as RMSprop
    from .rprop import ASGD as ASGD
    from .rprop import Rprop as Rprop
    from .sgd import SGD as SGD

_PARTS: Final = {
    "adadelta": "Adadelta",
    "adafactor": "Adafactor",
    "adagrad": "Adagrad",
    "adam": "Adam AdamW",
    "adam_variants": "Adamax NAdam RAdam",
    "clip_grad": "clip_grad_norm_ clip_grad_value_",
    "lbfgs": "LBFGS",
    "muon": "Muon",
    "optimizer": "Optimizer",
    "rmsprop": "RMSprop",
    "rprop": "ASGD Rprop",
    "lr_scheduler.base": "CosineAnnealingLR LRScheduler StepLR",
    "sgd": "SGD",
}

__getattr__, __dir__, __all__ = lazy_exports(__name__, _PARTS, "lr_scheduler")
