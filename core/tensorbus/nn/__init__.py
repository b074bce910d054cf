"""Neural networks: modules with PyTorch's names and meaning, written in ops: they run on every device."""

from __future__ import annotations

from . import functional as functional
from . import init as init
from .activation import GELU as GELU
from .activation import ReLU as ReLU
from .activation import Sigmoid as Sigmoid
from .activation import SiLU as SiLU
from .activation import Softmax as Softmax
from .activation import Tanh as Tanh
from .container import ModuleDict as ModuleDict
from .container import ModuleList as ModuleList
from .container import Sequential as Sequential
from .conv import Conv1d as Conv1d
from .conv import Conv2d as Conv2d
from .conv import Conv3d as Conv3d
from .dropout import Dropout as Dropout
from .linear import Flatten as Flatten
from .linear import Identity as Identity
from .linear import Linear as Linear
from .loss import CrossEntropyLoss as CrossEntropyLoss
from .loss import MSELoss as MSELoss
from .module import Module as Module
from .normalization import BatchNorm1d as BatchNorm1d
from .normalization import BatchNorm2d as BatchNorm2d
from .normalization import LayerNorm as LayerNorm
from .parameter import Parameter as Parameter
from .pooling import AvgPool2d as AvgPool2d
from .pooling import MaxPool2d as MaxPool2d
