"""Special functions under SciPy's names: it asks a namespace for them, and then computes them on the device.

Imported when it is first named. All take real tensors, and numbers beside one, and have derivatives.
"""

from __future__ import annotations

from ..functions import cbrt as cbrt
from ..functions import digamma as digamma
from ..functions import entr as entr
from ..functions import erf as erf
from ..functions import erfc as erfc
from ..functions import erfinv as erfinv
from ..functions import exp2 as exp2
from ..functions import lgamma, sigmoid
from ..functions import sinc as sinc
from ..ops.special import logit as logit
from .bessel import i0 as i0
from .bessel import i0e as i0e
from .bessel import i1 as i1
from .bessel import i1e as i1e
from .chance import chdtr as chdtr
from .chance import chdtrc as chdtrc
from .chance import stdtr as stdtr
from .entropy import kl_div as kl_div
from .entropy import rel_entr as rel_entr
from .entropy import xlog1py as xlog1py
from .entropy import xlogy as xlogy
from .incomplete import betainc as betainc
from .incomplete import gammainc as gammainc
from .incomplete import gammaincc as gammaincc
from .normal import log_ndtr as log_ndtr
from .normal import ndtr as ndtr
from .normal import ndtri as ndtri
from .zeta import polygamma as polygamma
from .zeta import zeta as zeta

psi, gammaln, expit = digamma, lgamma, sigmoid
"""SciPy's names for them."""
