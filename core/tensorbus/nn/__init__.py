"""Neural networks: modules with PyTorch's names and meaning, written in ops.

``modules`` has the layers, ``functional`` the same as functions, ``attention`` attention by functions of
scores, ``utils`` what PyTorch keeps there. In order: ``parameter``, ``uninitialized_parameter``,
``parameter_container``, ``module``, ``module_to``, ``state_dict``, ``hooks``, ``backward_hooks``,
``lazy_module``, ``init``, ``parametrize``, ``parametrizations``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..system.lazy_import import lazy_exports

if TYPE_CHECKING:
    from . import attention as attention
    from . import functional as functional
    from . import init as init
    from . import parametrizations as parametrizations
    from . import parametrize as parametrize
    from . import utils as utils
    from .functional.linear_cross_entropy import LinearCrossEntropyOptions as LinearCrossEntropyOptions
    from .hooks import register_module_forward_hook as register_module_forward_hook
    from .hooks import register_module_forward_pre_hook as register_module_forward_pre_hook
    from .hooks import register_module_full_backward_hook as register_module_full_backward_hook
    from .hooks import register_module_full_backward_pre_hook as register_module_full_backward_pre_hook
    from .module import Module as Module
    from .modules.activation.piecewise import Hardshrink as Hardshrink
    from .modules.activation.piecewise import Hardsigmoid as Hardsigmoid
    from .modules.activation.piecewise import Hardswish as Hardswish
    from .modules.activation.piecewise import Hardtanh as Hardtanh
    from .modules.activation.piecewise import LeakyReLU as LeakyReLU
    from .modules.activation.piecewise import PReLU as PReLU
    from .modules.activation.piecewise import ReLU as ReLU
    from .modules.activation.piecewise import ReLU6 as ReLU6
    from .modules.activation.piecewise import RReLU as RReLU
    from .modules.activation.piecewise import Softshrink as Softshrink
    from .modules.activation.piecewise import Threshold as Threshold
    from .modules.activation.smooth import CELU as CELU
    from .modules.activation.smooth import ELU as ELU
    from .modules.activation.smooth import GELU as GELU
    from .modules.activation.smooth import GLU as GLU
    from .modules.activation.smooth import SELU as SELU
    from .modules.activation.smooth import LogSigmoid as LogSigmoid
    from .modules.activation.smooth import Mish as Mish
    from .modules.activation.smooth import Sigmoid as Sigmoid
    from .modules.activation.smooth import SiLU as SiLU
    from .modules.activation.smooth import Softplus as Softplus
    from .modules.activation.smooth import Softsign as Softsign
    from .modules.activation.smooth import Tanh as Tanh
    from .modules.activation.smooth import Tanhshrink as Tanhshrink
    from .modules.activation.softmax import LogSoftmax as LogSoftmax
    from .modules.activation.softmax import Softmax as Softmax
    from .modules.activation.softmax import Softmax2d as Softmax2d
    from .modules.activation.softmax import Softmin as Softmin
    from .modules.batch_norm import BatchNorm1d as BatchNorm1d
    from .modules.batch_norm import BatchNorm2d as BatchNorm2d
    from .modules.batch_norm import BatchNorm3d as BatchNorm3d
    from .modules.batch_norm import InstanceNorm1d as InstanceNorm1d
    from .modules.batch_norm import InstanceNorm2d as InstanceNorm2d
    from .modules.batch_norm import InstanceNorm3d as InstanceNorm3d
    from .modules.container import ModuleDict as ModuleDict
    from .modules.container import ModuleList as ModuleList
    from .modules.container import Sequential as Sequential
    from .modules.convolution.conv import Conv1d as Conv1d
    from .modules.convolution.conv import Conv2d as Conv2d
    from .modules.convolution.conv import Conv3d as Conv3d
    from .modules.convolution.conv_transpose import ConvTranspose1d as ConvTranspose1d
    from .modules.convolution.conv_transpose import ConvTranspose2d as ConvTranspose2d
    from .modules.convolution.conv_transpose import ConvTranspose3d as ConvTranspose3d
    from .modules.dropout import AlphaDropout as AlphaDropout
    from .modules.dropout import Dropout as Dropout
    from .modules.dropout import Dropout1d as Dropout1d
    from .modules.dropout import Dropout2d as Dropout2d
    from .modules.dropout import Dropout3d as Dropout3d
    from .modules.dropout import FeatureAlphaDropout as FeatureAlphaDropout
    from .modules.embedding import Embedding as Embedding
    from .modules.embedding import EmbeddingBag as EmbeddingBag
    from .modules.lazy import LazyBatchNorm1d as LazyBatchNorm1d
    from .modules.lazy import LazyBatchNorm2d as LazyBatchNorm2d
    from .modules.lazy import LazyBatchNorm3d as LazyBatchNorm3d
    from .modules.lazy import LazyConv1d as LazyConv1d
    from .modules.lazy import LazyConv2d as LazyConv2d
    from .modules.lazy import LazyConv3d as LazyConv3d
    from .modules.lazy import LazyConvTranspose1d as LazyConvTranspose1d
    from .modules.lazy import LazyConvTranspose2d as LazyConvTranspose2d
    from .modules.lazy import LazyConvTranspose3d as LazyConvTranspose3d
    from .modules.lazy import LazyInstanceNorm1d as LazyInstanceNorm1d
    from .modules.lazy import LazyInstanceNorm2d as LazyInstanceNorm2d
    from .modules.lazy import LazyInstanceNorm3d as LazyInstanceNorm3d
    from .modules.lazy import LazyLinear as LazyLinear
    from .modules.linear import Bilinear as Bilinear
    from .modules.linear import Identity as Identity
    from .modules.linear import Linear as Linear
    from .modules.loss.adaptive_softmax import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
    from .modules.loss.distance import CosineEmbeddingLoss as CosineEmbeddingLoss
    from .modules.loss.distance import CosineSimilarity as CosineSimilarity
    from .modules.loss.distance import HingeEmbeddingLoss as HingeEmbeddingLoss
    from .modules.loss.distance import MarginRankingLoss as MarginRankingLoss
    from .modules.loss.distance import PairwiseDistance as PairwiseDistance
    from .modules.loss.distance import TripletMarginLoss as TripletMarginLoss
    from .modules.loss.distance import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
    from .modules.loss.linear_cross_entropy import LinearCrossEntropyLoss as LinearCrossEntropyLoss
    from .modules.loss.loss import BCELoss as BCELoss
    from .modules.loss.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
    from .modules.loss.loss import CrossEntropyLoss as CrossEntropyLoss
    from .modules.loss.loss import CTCLoss as CTCLoss
    from .modules.loss.loss import GaussianNLLLoss as GaussianNLLLoss
    from .modules.loss.loss import HuberLoss as HuberLoss
    from .modules.loss.loss import KLDivLoss as KLDivLoss
    from .modules.loss.loss import L1Loss as L1Loss
    from .modules.loss.loss import MSELoss as MSELoss
    from .modules.loss.loss import MultiLabelMarginLoss as MultiLabelMarginLoss
    from .modules.loss.loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
    from .modules.loss.loss import MultiMarginLoss as MultiMarginLoss
    from .modules.loss.loss import NLLLoss as NLLLoss
    from .modules.loss.loss import PoissonNLLLoss as PoissonNLLLoss
    from .modules.loss.loss import SmoothL1Loss as SmoothL1Loss
    from .modules.loss.loss import SoftMarginLoss as SoftMarginLoss
    from .modules.normalization import GroupNorm as GroupNorm
    from .modules.normalization import LayerNorm as LayerNorm
    from .modules.normalization import LocalResponseNorm as LocalResponseNorm
    from .modules.normalization import RMSNorm as RMSNorm
    from .modules.padding import CircularPad1d as CircularPad1d
    from .modules.padding import CircularPad2d as CircularPad2d
    from .modules.padding import CircularPad3d as CircularPad3d
    from .modules.padding import ConstantPad1d as ConstantPad1d
    from .modules.padding import ConstantPad2d as ConstantPad2d
    from .modules.padding import ConstantPad3d as ConstantPad3d
    from .modules.padding import ReflectionPad1d as ReflectionPad1d
    from .modules.padding import ReflectionPad2d as ReflectionPad2d
    from .modules.padding import ReflectionPad3d as ReflectionPad3d
    from .modules.padding import ReplicationPad1d as ReplicationPad1d
    from .modules.padding import ReplicationPad2d as ReplicationPad2d
    from .modules.padding import ReplicationPad3d as ReplicationPad3d
    from .modules.padding import ZeroPad1d as ZeroPad1d
    from .modules.padding import ZeroPad2d as ZeroPad2d
    from .modules.padding import ZeroPad3d as ZeroPad3d
    from .modules.pooling.adaptive_pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
    from .modules.pooling.adaptive_pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
    from .modules.pooling.adaptive_pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
    from .modules.pooling.adaptive_pooling import AdaptiveMaxPool1d as AdaptiveMaxPool1d
    from .modules.pooling.adaptive_pooling import AdaptiveMaxPool2d as AdaptiveMaxPool2d
    from .modules.pooling.adaptive_pooling import AdaptiveMaxPool3d as AdaptiveMaxPool3d
    from .modules.pooling.fractional_max_pool import FractionalMaxPool2d as FractionalMaxPool2d
    from .modules.pooling.fractional_max_pool import FractionalMaxPool3d as FractionalMaxPool3d
    from .modules.pooling.pooling import AvgPool1d as AvgPool1d
    from .modules.pooling.pooling import AvgPool2d as AvgPool2d
    from .modules.pooling.pooling import AvgPool3d as AvgPool3d
    from .modules.pooling.pooling import LPPool1d as LPPool1d
    from .modules.pooling.pooling import LPPool2d as LPPool2d
    from .modules.pooling.pooling import LPPool3d as LPPool3d
    from .modules.pooling.pooling import MaxPool1d as MaxPool1d
    from .modules.pooling.pooling import MaxPool2d as MaxPool2d
    from .modules.pooling.pooling import MaxPool3d as MaxPool3d
    from .modules.pooling.pooling import MaxUnpool1d as MaxUnpool1d
    from .modules.pooling.pooling import MaxUnpool2d as MaxUnpool2d
    from .modules.pooling.pooling import MaxUnpool3d as MaxUnpool3d
    from .modules.rearrange import ChannelShuffle as ChannelShuffle
    from .modules.rearrange import Flatten as Flatten
    from .modules.rearrange import Fold as Fold
    from .modules.rearrange import PixelShuffle as PixelShuffle
    from .modules.rearrange import PixelUnshuffle as PixelUnshuffle
    from .modules.rearrange import Unflatten as Unflatten
    from .modules.rearrange import Unfold as Unfold
    from .modules.rearrange import Upsample as Upsample
    from .modules.rearrange import UpsamplingBilinear2d as UpsamplingBilinear2d
    from .modules.rearrange import UpsamplingNearest2d as UpsamplingNearest2d
    from .modules.recurrent.rnn import GRU as GRU
    from .modules.recurrent.rnn import LSTM as LSTM
    from .modules.recurrent.rnn import RNN as RNN
    from .modules.recurrent.rnn_cell import GRUCell as GRUCell
    from .modules.recurrent.rnn_cell import LSTMCell as LSTMCell
    from .modules.recurrent.rnn_cell import RNNCell as RNNCell
    from .modules.transformer.attention import MultiheadAttention as MultiheadAttention
    from .modules.transformer.transformer import Transformer as Transformer
    from .modules.transformer.transformer import TransformerDecoder as TransformerDecoder
    from .modules.transformer.transformer import TransformerEncoder as TransformerEncoder
    from .modules.transformer.transformer_layer import TransformerDecoderLayer as TransformerDecoderLayer
    from .modules.transformer.transformer_layer import TransformerEncoderLayer as TransformerEncoderLayer
    from .parameter import Parameter as Parameter
    from .parameter_container import ParameterDict as ParameterDict
    from .parameter_container import ParameterList as ParameterList
    from .uninitialized_parameter import UninitializedBuffer as UninitializedBuffer
    from .uninitialized_parameter import UninitializedParameter as UninitializedParameter

_PARTS: Final = {
    "functional.linear_cross_entropy": "LinearCrossEntropyOptions",
    "hooks": """register_module_forward_hook register_module_forward_pre_hook
    register_module_full_backward_hook register_module_full_backward_pre_hook""",
    "module": "Module",
    "modules.activation.piecewise": """Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU PReLU ReLU ReLU6
    RReLU Softshrink Threshold""",
    "modules.activation.smooth": """CELU ELU GELU GLU LogSigmoid Mish SELU Sigmoid SiLU Softplus Softsign Tanh
    Tanhshrink""",
    "modules.activation.softmax": "LogSoftmax Softmax Softmax2d Softmin",
    "modules.batch_norm": "BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    "modules.container": "ModuleDict ModuleList Sequential",
    "modules.convolution.conv": "Conv1d Conv2d Conv3d",
    "modules.convolution.conv_transpose": "ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "modules.dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "modules.embedding": "Embedding EmbeddingBag",
    "modules.lazy": """LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d
    LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d
    LazyInstanceNorm3d LazyLinear""",
    "modules.linear": "Bilinear Identity Linear",
    "modules.loss.adaptive_softmax": "AdaptiveLogSoftmaxWithLoss",
    "modules.loss.distance": """CosineEmbeddingLoss CosineSimilarity HingeEmbeddingLoss MarginRankingLoss
    PairwiseDistance TripletMarginLoss TripletMarginWithDistanceLoss""",
    "modules.loss.linear_cross_entropy": "LinearCrossEntropyLoss",
    "modules.loss.loss": """BCELoss BCEWithLogitsLoss CrossEntropyLoss CTCLoss GaussianNLLLoss HuberLoss
    KLDivLoss L1Loss MSELoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss
    PoissonNLLLoss SmoothL1Loss SoftMarginLoss""",
    "modules.normalization": "GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "modules.padding": """CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d
    ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d
    ZeroPad1d ZeroPad2d ZeroPad3d""",
    "modules.pooling.adaptive_pooling": """AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d
    AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d""",
    "modules.pooling.fractional_max_pool": "FractionalMaxPool2d FractionalMaxPool3d",
    "modules.pooling.pooling": """AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d LPPool3d MaxPool1d MaxPool2d
    MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d""",
    "modules.rearrange": """ChannelShuffle Flatten Fold PixelShuffle PixelUnshuffle Unflatten Unfold Upsample
    UpsamplingBilinear2d UpsamplingNearest2d""",
    "modules.recurrent.rnn": "GRU LSTM RNN",
    "modules.recurrent.rnn_cell": "GRUCell LSTMCell RNNCell",
    "modules.transformer.attention": "MultiheadAttention",
    "modules.transformer.transformer": "Transformer TransformerDecoder TransformerEncoder",
    "modules.transformer.transformer_layer": "TransformerDecoderLayer TransformerEncoderLayer",
    "parameter": "Parameter",
    "parameter_container": "ParameterDict ParameterList",
    "uninitialized_parameter": "UninitializedBuffer UninitializedParameter",
}

__getattr__, __dir__, __all__ = lazy_exports(
    __name__, _PARTS, "attention functional init parametrizations parametrize utils"
)
