"""The functions that users call, one for each op: what ``tensorbus.add`` is.

An op is called the same way; going straight to its function saves a call in programs of many small ops.
"""

from __future__ import annotations

from . import calls as _calls  # noqa: F401 - importing it binds the op table
from .ops import (
    activation,
    arithmetic,
    comparison,
    creation,
    indexing,
    movement,
    random,
    reduction,
    selection,
    transcendental,
)
from .ops import softmax as softmax_ops

logaddexp = activation.logaddexp.function
relu = activation.relu.function
sigmoid = activation.sigmoid.function
silu = activation.silu.function
softplus = activation.softplus.function

abs = arithmetic.abs.function
add = arithmetic.add.function
ceil = arithmetic.ceil.function
divide = arithmetic.divide.function
floor = arithmetic.floor.function
floor_divide = arithmetic.floor_divide.function
maximum = arithmetic.maximum.function
minimum = arithmetic.minimum.function
multiply = arithmetic.multiply.function
negative = arithmetic.negative.function
remainder = arithmetic.remainder.function
round = arithmetic.round.function
sign = arithmetic.sign.function
subtract = arithmetic.subtract.function
trunc = arithmetic.trunc.function

bitwise_and = comparison.bitwise_and.function
bitwise_invert = comparison.bitwise_invert.function
bitwise_left_shift = comparison.bitwise_left_shift.function
bitwise_or = comparison.bitwise_or.function
bitwise_right_shift = comparison.bitwise_right_shift.function
bitwise_xor = comparison.bitwise_xor.function
equal = comparison.equal.function
greater = comparison.greater.function
greater_equal = comparison.greater_equal.function
isfinite = comparison.isfinite.function
isinf = comparison.isinf.function
isnan = comparison.isnan.function
less = comparison.less.function
less_equal = comparison.less_equal.function
logical_and = comparison.logical_and.function
logical_not = comparison.logical_not.function
logical_or = comparison.logical_or.function
logical_xor = comparison.logical_xor.function
not_equal = comparison.not_equal.function

full = creation.full.function
iota = creation.iota.function

gather = indexing.gather.function
scatter = indexing.scatter.function

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
cumulative_sum = reduction.cumulative_sum.function
max = reduction.max.function
mean = reduction.mean.function
min = reduction.min.function
prod = reduction.prod.function
sum = reduction.sum.function

cast = selection.cast.function
where = selection.where.function

log_softmax = softmax_ops.log_softmax.function
softmax = softmax_ops.softmax.function

acos = transcendental.acos.function
acosh = transcendental.acosh.function
asin = transcendental.asin.function
asinh = transcendental.asinh.function
atan = transcendental.atan.function
atan2 = transcendental.atan2.function
atanh = transcendental.atanh.function
cos = transcendental.cos.function
cosh = transcendental.cosh.function
erf = transcendental.erf.function
exp = transcendental.exp.function
expm1 = transcendental.expm1.function
log = transcendental.log.function
log10 = transcendental.log10.function
log1p = transcendental.log1p.function
log2 = transcendental.log2.function
power = transcendental.power.function
reciprocal = transcendental.reciprocal.function
rsqrt = transcendental.rsqrt.function
sin = transcendental.sin.function
sinh = transcendental.sinh.function
sqrt = transcendental.sqrt.function
square = transcendental.square.function
tan = transcendental.tan.function
tanh = transcendental.tanh.function
