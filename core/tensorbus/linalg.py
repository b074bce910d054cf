"""Linear algebra: the extension ``linalg`` of the array API standard 2025.12, and what PyTorch adds to it.

Imported when it is first named. On devices whose manifest lists a factorization under ``host`` it runs on the
host. Matrices are the last two axes of a stack.
"""

from __future__ import annotations

from .errors import LinAlgError as LinAlgError
from .ops.linalg.determinant import det as det
from .ops.linalg.determinant import slogdet as slogdet
from .ops.linalg.eigen import eig as eig
from .ops.linalg.eigen import eigh as eigh
from .ops.linalg.eigen import eigvals as eigvals
from .ops.linalg.eigen import eigvalsh as eigvalsh
from .ops.linalg.least_squares import lstsq as lstsq
from .ops.linalg.least_squares import matrix_rank as matrix_rank
from .ops.linalg.least_squares import pinv as pinv
from .ops.linalg.lu import lu as lu
from .ops.linalg.lu import lu_factor as lu_factor
from .ops.linalg.lu import lu_solve as lu_solve
from .ops.linalg.matrix import cross as cross
from .ops.linalg.matrix import diagonal as diagonal
from .ops.linalg.matrix import outer as outer
from .ops.linalg.matrix import trace as trace
from .ops.linalg.norms import cond as cond
from .ops.linalg.norms import matrix_norm as matrix_norm
from .ops.linalg.norms import norm as norm
from .ops.linalg.norms import vector_norm as vector_norm
from .ops.linalg.orthogonal import qr as qr
from .ops.linalg.orthogonal import svd as svd
from .ops.linalg.orthogonal import svdvals as svdvals
from .ops.linalg.powers import matrix_exp as matrix_exp
from .ops.linalg.powers import matrix_power as matrix_power
from .ops.linalg.powers import multi_dot as multi_dot
from .ops.linalg.solve import cholesky as cholesky
from .ops.linalg.solve import cholesky_solve as cholesky_solve
from .ops.linalg.solve import inv as inv
from .ops.linalg.solve import solve as solve
from .ops.linalg.solve import solve_triangular as solve_triangular
from .ops.matmul.matmul import matmul as matmul
from .ops.matmul.matmul import matrix_transpose as matrix_transpose
from .ops.matmul.matmul import tensordot as tensordot
from .ops.matmul.matmul import vecdot as vecdot
