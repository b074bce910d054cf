"""The functions that users call, one for each op: what ``tensorbus.add`` is.

An op is called the same way; going straight to its function saves a call in programs of many small ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops.call_errors import with_form as _with_form
from ..ops.creation import creation, random
from ..ops.elementwise import (
    activation,
    arithmetic,
    comparison,
    integer_arithmetic,
    special,
    transcendental,
    where_cast,
)
from ..ops.indexing import take_along_axis as along
from ..ops.indexing import torch_gather
from ..ops.movement import movement
from ..ops.movement import windows as _windows  # noqa: F401 - its ops are methods
from ..ops.ordering import sorting
from ..ops.reduction import reduction, scan
from ..ops.reduction import softmax as softmax_ops
from . import call  # noqa: F401 - importing it binds the op table
from .methods import comparison_function
from .rounded_divide import divide as divide

if TYPE_CHECKING:
    from ..dtypes.definition import DType, Scalar
    from ..tensor.tensor import Tensor

logaddexp = activation.logaddexp.function
relu = activation.relu.function
sigmoid = activation.sigmoid.function
silu = activation.silu.function
softplus = activation.softplus.function

hardsigmoid = activation.hardsigmoid.function
hardswish = activation.hardswish.function
logaddexp2 = activation.logaddexp2.function
logsigmoid = activation.logsigmoid.function
mish = activation.mish.function
softsign = activation.softsign.function
tanhshrink = activation.tanhshrink.function

abs = arithmetic.abs.function
add = arithmetic.add.function
ceil = arithmetic.ceil.function
complex = arithmetic.complex.function
copysign = arithmetic.copysign.function
floor = arithmetic.floor.function
floor_divide = arithmetic.floor_divide.function
fmax = arithmetic.fmax.function
fmin = arithmetic.fmin.function
fmod = arithmetic.fmod.function
frac = arithmetic.frac.function
heaviside = arithmetic.heaviside.function
hypot = arithmetic.hypot.function
lerp = arithmetic.lerp.function
maximum = arithmetic.maximum.function
minimum = arithmetic.minimum.function
multiply = arithmetic.multiply.function
negative = arithmetic.negative.function
nextafter = arithmetic.nextafter.function
remainder = arithmetic.remainder.function
round = arithmetic.rounded
sign = arithmetic.sign.function
subtract = arithmetic.subtract.function
trunc = arithmetic.trunc.function

bitwise_and = comparison.bitwise_and.function
bitwise_invert = comparison.bitwise_invert.function
bitwise_left_shift = comparison.bitwise_left_shift.function
bitwise_or = comparison.bitwise_or.function
bitwise_right_shift = comparison.bitwise_right_shift.function
bitwise_xor = comparison.bitwise_xor.function
equal = comparison_function("equal")
greater = comparison_function("greater")
greater_equal = comparison_function("greater_equal")
isfinite = comparison.isfinite.function
isinf = comparison.isinf.function
isnan = comparison.isnan.function
less = comparison_function("less")
less_equal = comparison_function("less_equal")
logical_and = comparison.logical_and.function
logical_not = comparison.logical_not.function
logical_or = comparison.logical_or.function
logical_xor = comparison.logical_xor.function
not_equal = comparison_function("not_equal")
signbit = comparison.signbit.function

iota = creation.iota.function


@_with_form
def full(
    shape: int | tuple[int, ...], fill_value: Scalar, *, dtype: DType | str | None = None,
    device: creation.DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of ``shape`` filled with ``fill_value``, which says the dtype where none is asked for.

    Raises ``ShapeError`` for what is no shape, ``DtypeError`` for a number that the dtype does not hold.

    >>> import tensorbus as tb
    >>> tb.full((2,), 7).tolist()
    [7, 7]
    """
    return creation.asked(creation.full(shape, fill_value, dtype=dtype, device=device), requires_grad)


gather = torch_gather.gather
scatter_along_axis = along.scatter_along_axis.function
scatter = torch_gather.scatter
take_along_axis = along.take_along_axis.function

bitwise_count = integer_arithmetic.bitwise_count.function
gcd = integer_arithmetic.gcd.function
lcm = integer_arithmetic.lcm.function

broadcast_to = movement.broadcast_to.function
concat = movement.concat.function
flip = movement.flip.function
permute_dims = movement.permute_dims.function
reshape = movement.reshape.function

random_bits = random.random_bits.function

all = reduction.all.function
any = reduction.any.function
argmax = reduction.argmax.function
argmin = reduction.argmin.function
max = reduction.max.function
mean = reduction.mean.function
min = reduction.min.function
prod = reduction.prod.function
sum = reduction.sum.function

logcumsumexp = scan.logcumsumexp.function

argsort = sorting.argsort.function
sort = sorting.sort.function

cast = where_cast.cast.function
where = where_cast.where.function

log_softmax = softmax_ops.log_softmax.function
logsumexp = softmax_ops.logsumexp
softmax = softmax_ops.softmax.function

digamma = special.digamma.function
entr = special.entr.function
erfc = special.erfc.function
erfinv = special.erfinv.function
lgamma = special.lgamma.function
sinc = special.sinc.function
xlogy = special.xlogy.function

acos = transcendental.acos.function
acosh = transcendental.acosh.function
asin = transcendental.asin.function
asinh = transcendental.asinh.function
atan = transcendental.atan.function
atan2 = transcendental.atan2.function
atanh = transcendental.atanh.function
cbrt = transcendental.cbrt.function
cos = transcendental.cos.function
cosh = transcendental.cosh.function
deg2rad = transcendental.deg2rad.function
erf = transcendental.erf.function
exp = transcendental.exp.function
exp2 = transcendental.exp2.function
expm1 = transcendental.expm1.function
log = transcendental.log.function
log10 = transcendental.log10.function
log1p = transcendental.log1p.function
log2 = transcendental.log2.function
power = transcendental.power.function
rad2deg = transcendental.rad2deg.function
reciprocal = transcendental.reciprocal.function
rsqrt = transcendental.rsqrt.function
sin = transcendental.sin.function
sinh = transcendental.sinh.function
sqrt = transcendental.sqrt.function
square = transcendental.square.function
tan = transcendental.tan.function
tanh = transcendental.tanh.function
