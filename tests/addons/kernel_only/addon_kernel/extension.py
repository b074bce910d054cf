"""A softmax for the cpu device, whoever supplies that: for rows of up to 64 elements."""

from tensorbus.backend_api import Kernel, hookimpl


def short_rows(call):
    rows = call.attrs["axis"] == len(call.shapes[0]) - 1 and call.shapes[0][-1] <= 64
    return rows or "only rows along the last axis, of up to 64 elements"


def softmax(x, axis):
    powers = (x - x.max(axis, keepdims=True)).astype("float64").__rpow__(2.718281828459045)
    return (powers / powers.sum(axis, keepdims=True)).astype(x.dtype)


@hookimpl
def tensorbus_kernels(device_type):
    return {"softmax": Kernel(name="short", function=softmax, supports=short_rows, before=("*",))}
