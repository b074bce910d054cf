"""Neural networks: modules with PyTorch's names and meaning, written in ops: they run on every device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..later import later

if TYPE_CHECKING:
    from . import functional as functional
    from . import init as init
    from . import parametrizations as parametrizations
    from . import parametrize as parametrize
    from . import utils as utils
    from .activation import GELU as GELU
    from .activation import ReLU as ReLU
    from .activation import Sigmoid as Sigmoid
    from .activation import SiLU as SiLU
    from .activation import Softmax as Softmax
    from .activation import Softmax2d as Softmax2d
    from .activation import Softmin as Softmin
    from .activation import Tanh as Tanh
    from .adaptive_pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
    from .adaptive_pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
    from .adaptive_pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
    from .adaptive_pooling import AdaptiveMaxPool1d as AdaptiveMaxPool1d
    from .adaptive_pooling import AdaptiveMaxPool2d as AdaptiveMaxPool2d
    from .adaptive_pooling import AdaptiveMaxPool3d as AdaptiveMaxPool3d
    from .adaptive_softmax import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
    from .attention import MultiheadAttention as MultiheadAttention
    from .batch_norm import BatchNorm1d as BatchNorm1d
    from .batch_norm import BatchNorm2d as BatchNorm2d
    from .batch_norm import BatchNorm3d as BatchNorm3d
    from .batch_norm import InstanceNorm1d as InstanceNorm1d
    from .batch_norm import InstanceNorm2d as InstanceNorm2d
    from .batch_norm import InstanceNorm3d as InstanceNorm3d
    from .container import ModuleDict as ModuleDict
    from .container import ModuleList as ModuleList
    from .container import Sequential as Sequential
    from .conv import Conv1d as Conv1d
    from .conv import Conv2d as Conv2d
    from .conv import Conv3d as Conv3d
    from .conv_transpose import ConvTranspose1d as ConvTranspose1d
    from .conv_transpose import ConvTranspose2d as ConvTranspose2d
    from .conv_transpose import ConvTranspose3d as ConvTranspose3d
    from .distance import CosineEmbeddingLoss as CosineEmbeddingLoss
    from .distance import CosineSimilarity as CosineSimilarity
    from .distance import HingeEmbeddingLoss as HingeEmbeddingLoss
    from .distance import MarginRankingLoss as MarginRankingLoss
    from .distance import PairwiseDistance as PairwiseDistance
    from .distance import TripletMarginLoss as TripletMarginLoss
    from .distance import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
    from .dropout import AlphaDropout as AlphaDropout
    from .dropout import Dropout as Dropout
    from .dropout import Dropout1d as Dropout1d
    from .dropout import Dropout2d as Dropout2d
    from .dropout import Dropout3d as Dropout3d
    from .dropout import FeatureAlphaDropout as FeatureAlphaDropout
    from .embedding import Embedding as Embedding
    from .embedding import EmbeddingBag as EmbeddingBag
    from .fractional_pooling import FractionalMaxPool2d as FractionalMaxPool2d
    from .fractional_pooling import FractionalMaxPool3d as FractionalMaxPool3d
    from .hooks import register_module_forward_hook as register_module_forward_hook
    from .hooks import register_module_forward_pre_hook as register_module_forward_pre_hook
    from .hooks import register_module_full_backward_hook as register_module_full_backward_hook
    from .hooks import register_module_full_backward_pre_hook as register_module_full_backward_pre_hook
    from .lazy_layers import LazyBatchNorm1d as LazyBatchNorm1d
    from .lazy_layers import LazyBatchNorm2d as LazyBatchNorm2d
    from .lazy_layers import LazyBatchNorm3d as LazyBatchNorm3d
    from .lazy_layers import LazyConv1d as LazyConv1d
    from .lazy_layers import LazyConv2d as LazyConv2d
    from .lazy_layers import LazyConv3d as LazyConv3d
    from .lazy_layers import LazyConvTranspose1d as LazyConvTranspose1d
    from .lazy_layers import LazyConvTranspose2d as LazyConvTranspose2d
    from .lazy_layers import LazyConvTranspose3d as LazyConvTranspose3d
    from .lazy_layers import LazyInstanceNorm1d as LazyInstanceNorm1d
    from .lazy_layers import LazyInstanceNorm2d as LazyInstanceNorm2d
    from .lazy_layers import LazyInstanceNorm3d as LazyInstanceNorm3d
    from .lazy_layers import LazyLinear as LazyLinear
    from .linear import Bilinear as Bilinear
    from .linear import Identity as Identity
    from .linear import Linear as Linear
    from .loss import BCELoss as BCELoss
    from .loss import BCEWithLogitsLoss as BCEWithLogitsLoss
    from .loss import CrossEntropyLoss as CrossEntropyLoss
    from .loss import CTCLoss as CTCLoss
    from .loss import GaussianNLLLoss as GaussianNLLLoss
    from .loss import HuberLoss as HuberLoss
    from .loss import KLDivLoss as KLDivLoss
    from .loss import L1Loss as L1Loss
    from .loss import MSELoss as MSELoss
    from .loss import MultiLabelMarginLoss as MultiLabelMarginLoss
    from .loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
    from .loss import MultiMarginLoss as MultiMarginLoss
    from .loss import NLLLoss as NLLLoss
    from .loss import PoissonNLLLoss as PoissonNLLLoss
    from .loss import SmoothL1Loss as SmoothL1Loss
    from .loss import SoftMarginLoss as SoftMarginLoss
    from .module import Module as Module
    from .normalization import GroupNorm as GroupNorm
    from .normalization import LayerNorm as LayerNorm
    from .normalization import LocalResponseNorm as LocalResponseNorm
    from .normalization import RMSNorm as RMSNorm
    from .padding import CircularPad1d as CircularPad1d
    from .padding import CircularPad2d as CircularPad2d
    from .padding import CircularPad3d as CircularPad3d
    from .padding import ConstantPad1d as ConstantPad1d
    from .padding import ConstantPad2d as ConstantPad2d
    from .padding import ConstantPad3d as ConstantPad3d
    from .padding import ReflectionPad1d as ReflectionPad1d
    from .padding import ReflectionPad2d as ReflectionPad2d
    from .padding import ReflectionPad3d as ReflectionPad3d
    from .padding import ReplicationPad1d as ReplicationPad1d
    from .padding import ReplicationPad2d as ReplicationPad2d
    from .padding import ReplicationPad3d as ReplicationPad3d
    from .padding import ZeroPad1d as ZeroPad1d
    from .padding import ZeroPad2d as ZeroPad2d
    from .padding import ZeroPad3d as ZeroPad3d
    from .parameter import Parameter as Parameter
    from .parameter_container import ParameterDict as ParameterDict
    from .parameter_container import ParameterList as ParameterList
    from .piecewise_activation import Hardshrink as Hardshrink
    from .piecewise_activation import Hardsigmoid as Hardsigmoid
    from .piecewise_activation import Hardswish as Hardswish
    from .piecewise_activation import Hardtanh as Hardtanh
    from .piecewise_activation import LeakyReLU as LeakyReLU
    from .piecewise_activation import PReLU as PReLU
    from .piecewise_activation import ReLU6 as ReLU6
    from .piecewise_activation import RReLU as RReLU
    from .piecewise_activation import Softshrink as Softshrink
    from .piecewise_activation import Threshold as Threshold
    from .pooling import AvgPool1d as AvgPool1d
    from .pooling import AvgPool2d as AvgPool2d
    from .pooling import AvgPool3d as AvgPool3d
    from .pooling import LPPool1d as LPPool1d
    from .pooling import LPPool2d as LPPool2d
    from .pooling import LPPool3d as LPPool3d
    from .pooling import MaxPool1d as MaxPool1d
    from .pooling import MaxPool2d as MaxPool2d
    from .pooling import MaxPool3d as MaxPool3d
    from .pooling import MaxUnpool1d as MaxUnpool1d
    from .pooling import MaxUnpool2d as MaxUnpool2d
    from .pooling import MaxUnpool3d as MaxUnpool3d
    from .rearrange import ChannelShuffle as ChannelShuffle
    from .rearrange import Flatten as Flatten
    from .rearrange import Fold as Fold
    from .rearrange import PixelShuffle as PixelShuffle
    from .rearrange import PixelUnshuffle as PixelUnshuffle
    from .rearrange import Unflatten as Unflatten
    from .rearrange import Unfold as Unfold
    from .rearrange import Upsample as Upsample
    from .rearrange import UpsamplingBilinear2d as UpsamplingBilinear2d
    from .rearrange import UpsamplingNearest2d as UpsamplingNearest2d
    from .rnn import GRU as GRU
    from .rnn import LSTM as LSTM
    from .rnn import RNN as RNN
    from .rnn_cell import GRUCell as GRUCell
    from .rnn_cell import LSTMCell as LSTMCell
    from .rnn_cell import RNNCell as RNNCell
    from .smooth_activation import CELU as CELU
    from .smooth_activation import ELU as ELU
    from .smooth_activation import GLU as GLU
    from .smooth_activation import SELU as SELU
    from .smooth_activation import LogSigmoid as LogSigmoid
    from .smooth_activation import LogSoftmax as LogSoftmax
    from .smooth_activation import Mish as Mish
    from .smooth_activation import Softplus as Softplus
    from .smooth_activation import Softsign as Softsign
    from .smooth_activation import Tanhshrink as Tanhshrink
    from .transformer import Transformer as Transformer
    from .transformer import TransformerDecoder as TransformerDecoder
    from .transformer import TransformerEncoder as TransformerEncoder
    from .transformer_layer import TransformerDecoderLayer as TransformerDecoderLayer
    from .transformer_layer import TransformerEncoderLayer as TransformerEncoderLayer
    from .uninitialized import UninitializedBuffer as UninitializedBuffer
    from .uninitialized import UninitializedParameter as UninitializedParameter

_PARTS: Final = {
    "activation": "GELU ReLU Sigmoid SiLU Softmax Softmax2d Softmin Tanh",
    "adaptive_pooling": """AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d
    AdaptiveMaxPool2d AdaptiveMaxPool3d""",
    "adaptive_softmax": "AdaptiveLogSoftmaxWithLoss",
    "attention": "MultiheadAttention",
    "batch_norm": "BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    "container": "ModuleDict ModuleList Sequential",
    "conv": "Conv1d Conv2d Conv3d",
    "conv_transpose": "ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "distance": """CosineEmbeddingLoss CosineSimilarity HingeEmbeddingLoss MarginRankingLoss
    PairwiseDistance TripletMarginLoss TripletMarginWithDistanceLoss""",
    "dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "embedding": "Embedding EmbeddingBag",
    "fractional_pooling": "FractionalMaxPool2d FractionalMaxPool3d",
    "hooks": """register_module_forward_hook register_module_forward_pre_hook
    register_module_full_backward_hook register_module_full_backward_pre_hook""",
    "lazy_layers": """LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d
    LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d
    LazyInstanceNorm3d LazyLinear""",
    "linear": "Bilinear Identity Linear",
    "loss": """BCELoss BCEWithLogitsLoss CrossEntropyLoss CTCLoss GaussianNLLLoss HuberLoss KLDivLoss L1Loss
    MSELoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss PoissonNLLLoss
    SmoothL1Loss SoftMarginLoss""",
    "module": "Module",
    "normalization": "GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "padding": """CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d
    ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d
    ZeroPad1d ZeroPad2d ZeroPad3d""",
    "parameter": "Parameter",
    "parameter_container": "ParameterDict ParameterList",
    "piecewise_activation": """Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU PReLU ReLU6 RReLU
    Softshrink Threshold""",
    "pooling": """AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d
    MaxUnpool1d MaxUnpool2d MaxUnpool3d""",
    "rearrange": """ChannelShuffle Flatten Fold PixelShuffle PixelUnshuffle Unflatten Unfold Upsample
    UpsamplingBilinear2d UpsamplingNearest2d""",
    "rnn": "GRU LSTM RNN",
    "rnn_cell": "GRUCell LSTMCell RNNCell",
    "smooth_activation": "CELU ELU GLU SELU LogSigmoid LogSoftmax Mish Softplus Softsign Tanhshrink",
    "transformer": "Transformer TransformerDecoder TransformerEncoder",
    "transformer_layer": "TransformerDecoderLayer TransformerEncoderLayer",
    "uninitialized": "UninitializedBuffer UninitializedParameter",
}

__getattr__, __dir__, __all__ = later(__name__, _PARTS, "functional init parametrizations parametrize utils")
