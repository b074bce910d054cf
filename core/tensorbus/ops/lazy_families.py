"""The families of ops that are imported when they are first used, not with the package."""

from __future__ import annotations


def load_all() -> None:
    """Put every op of core into the table. For those who go through all of it, or look a name up."""
    from . import fft as fft
    from .elementwise import complex as complex
    from .linalg import determinant as determinant
    from .linalg import eigen as eigen
    from .linalg import least_squares as least_squares
    from .linalg import lu as lu
    from .linalg import norms as norms
    from .linalg import powers as powers
    from .matmul import matmul_epilogue as matmul_epilogue
    from .matmul import scaled_matmul as scaled_matmul
    from .nn import attention as attention
    from .nn import convolution as convolution
    from .nn import convolution_transpose as convolution_transpose
    from .nn import convolution_weight as convolution_weight
    from .nn import flex_attention as flex_attention
    from .nn import loss as loss
    from .nn import normalization as normalization
    from .nn import pooling as pooling
    from .nn import regression_loss as regression_loss
    from .ordering import search as search
    from .ordering import unique as unique
    from .reduction import segment as segment
