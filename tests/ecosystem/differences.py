"""Operators that differ in part from PyTorch by intention, each with its row of ``docs/pytorch.md``."""

from __future__ import annotations

from typing import Final

DIFFERENCES: Final = {
    "squeeze": "`x.squeeze(0)`",
    "squeeze_multiple": "`x.squeeze(0)`",
    "cat": "`cat((x, y))`",
    "gather": "`gather(x, dim, index)` of no elements",
    "tensordot": "`tensordot`",
    "nonzero": "`nonzero(x, as_tuple=True)` of no axes",
    "linalg_solve": "`linalg.solve(a, b)`",
    "linalg_svd": "gradient of `linalg.svd(full_matrices=True)`",
    "linalg_pinv_hermitian": "`linalg.pinv(x, hermitian=True)` of what is not Hermitian",
    "cholesky_solve": "gradient of `cholesky_solve` by the factor",
    "nn_functional_batch_norm": "`batch_norm`",
    "nn_functional_batch_norm_without_cudnn": "`batch_norm`",
    "nn_functional_ctc_loss": "gradient of `ctc_loss`",
    "nn_functional_max_unpool1d": "gradient of `max_unpool` where indices repeat",
    "nn_functional_max_unpool2d": "gradient of `max_unpool` where indices repeat",
    "nn_functional_max_unpool3d": "gradient of `max_unpool` where indices repeat",
    "logcumsumexp": "gradient of `logcumsumexp` in float32",
    "cov": "gradient of `cov` by its weights",
}
"""Names as PyTorch's ``op_db`` formats them: the first column of the row."""
