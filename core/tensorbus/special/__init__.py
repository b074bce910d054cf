"""Special functions under SciPy's names, so that SciPy computes them on the device.

Imported when it is first named. All take real tensors, and numbers beside one, and have derivatives. In
order: ``arguments``, ``normal``, ``zeta``, ``bessel``, ``entropy``, ``incomplete_gamma_beta``,
``distribution_functions``.
"""

from __future__ import annotations

from ..eager.functions import cbrt as cbrt
from ..eager.functions import digamma as digamma
from ..eager.functions import entr as entr
from ..eager.functions import erf as erf
from ..eager.functions import erfc as erfc
from ..eager.functions import erfinv as erfinv
from ..eager.functions import exp2 as exp2
from ..eager.functions import lgamma, sigmoid
from ..eager.functions import sinc as sinc
from ..ops.elementwise.special import logit as logit
from .bessel import i0 as i0
from .bessel import i0e as i0e
from .bessel import i1 as i1
from .bessel import i1e as i1e
from .distribution_functions import chdtr as chdtr
from .distribution_functions import chdtrc as chdtrc
from .distribution_functions import stdtr as stdtr
from .entropy import kl_div as kl_div
from .entropy import rel_entr as rel_entr
from .entropy import xlog1py as xlog1py
from .entropy import xlogy as xlogy
from .incomplete_gamma_beta import betainc as betainc
from .incomplete_gamma_beta import gammainc as gammainc
from .incomplete_gamma_beta import gammaincc as gammaincc
from .normal import log_ndtr as log_ndtr
from .normal import ndtr as ndtr
from .normal import ndtri as ndtri
from .zeta import multigammaln as multigammaln
from .zeta import polygamma as polygamma
from .zeta import zeta as zeta

psi, gammaln, expit = digamma, lgamma, sigmoid
"""SciPy's names for them."""
