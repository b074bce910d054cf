"""The families of ops that are imported when they are first used, not with the package."""

from __future__ import annotations


def load_all() -> None:
    """Put every op of core into the table. For those who go through all of it, or look a name up."""
    from . import affine as affine
    from . import complex as complex
    from . import convolution as convolution
    from . import convolution_transpose as convolution_transpose
    from . import convolution_weight as convolution_weight
    from . import fft as fft
    from . import loss as loss
    from . import normalization as normalization
    from . import pooling as pooling
    from . import regression_loss as regression_loss
    from . import scaled_matmul as scaled_matmul
    from . import search as search
    from . import segment as segment
    from . import sets as sets
    from .linalg import determinant as determinant
    from .linalg import eigen as eigen
    from .linalg import least_squares as least_squares
    from .linalg import lu as lu
    from .linalg import norms as norms
    from .linalg import powers as powers
