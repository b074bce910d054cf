"""A new op: ``softcap(x)``, 30 tanh(x / 30). Its family gives it shapes, batching and samples."""

import tensorbus as tb
from tensorbus.backend_api import dtypes, elementwise, hookimpl

softcap = elementwise(
    "softcap", dtypes=dtypes.FLOATING,
    decompose=lambda x: tb.tanh(x / 30) * 30,
    vjp=lambda g, out: (g * (1 - (out / 30) * (out / 30)),),
    doc="``x``, bent smoothly into (-30, 30).",
)  # fmt: skip


@hookimpl
def tensorbus_ops():
    return [softcap]
