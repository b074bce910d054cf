"""What programs say: prints, logs, warnings, texts made of shapes and of values."""

from __future__ import annotations

import io
import logging
import pprint
import warnings

import tensorbus as tb

from program import Family, call_of

program = Family(__name__)

logger = logging.getLogger("programs.output")
logger.setLevel(logging.INFO)


@program
def prints_shapes():
    def fn(x, w):
        print("shapes:", x.shape, w.shape, sep=" ", end="!\n")
        y = x @ w
        print(f"{y.ndim=} {y.dtype} {y.device}")
        return y

    return fn, [
        (tb.ones((2, 3)), tb.ones((3, 1))),
        (tb.ones((1, 2)), tb.eye(2)),
        (tb.ones((2, 3)), tb.ones(3)),
    ]


@program(data_dependent=True)
def prints_values():
    def fn(x):
        print(x)
        y = x * 2
        print("doubled", y.sum(), y.tolist())
        return y

    return fn, [(tb.arange(3.0),), (tb.ones((2, 2)),), (tb.arange(3.0) * 4,)]


@program(data_dependent=True)
def formats_values():
    def fn(x):
        mean = x.mean()
        return f"mean {mean:.2f}, max {x.max().item():g}, {int(x.sum()):>6}", repr(x)

    return fn, [(tb.arange(4.0),), (tb.asarray([2.0, 4.0]),), (tb.arange(4.0) * 2,)]


@program
def logs_steps():
    def fn(x, step):
        logger.debug("never seen %s", step)
        logger.info("step %d of shape %s", step, x.shape)
        if step > 1:
            logger.warning("late: %d", step)
        return x - step

    return fn, [(tb.ones(2), 0), (tb.ones(2), 1), (tb.ones(2), 2), (tb.ones(3), 2)]


@program(data_dependent=True)
def logs_values():
    def fn(x):
        loss = tb.square(x).sum()
        logger.info("loss %.1f", loss.item())
        return loss

    return fn, [(tb.ones(2),), (tb.arange(3.0),), (tb.ones(2) * 2,)]


@program
def deprecated_argument():
    def fn(x, dim=None, axis=None):
        if dim is not None:
            warnings.warn("dim is called axis", DeprecationWarning, stacklevel=2)
            axis = dim
        return x.sum(axis=axis)

    x = tb.reshape(tb.arange(6.0), (2, 3))
    return fn, [(x, None, 0), (x, 0), (x, 1), (x, None, 1)]


@program
def table_of_parameters():
    model = tb.nn.Sequential(tb.nn.Linear(2, 3), tb.nn.ReLU(), tb.nn.Linear(3, 1))

    def fn(x):
        for name, p in model.named_parameters():
            print(f"{name:<10}{'x'.join(map(str, p.shape)):>6}{p.size:>4}")
        print(sum(p.size for p in model.parameters()), "in all")
        return model(x)

    return fn, [(tb.ones((1, 2)),), (tb.zeros((2, 2)),), (tb.ones((1, 2)) * 2,)]


@program
def writes_to_a_buffer():
    def fn(x, names):
        out = io.StringIO()
        for name, row in zip(names, x, strict=True):
            out.write(f"{name}:{row.shape[0]};")
            print(name, file=out)
        return out.getvalue(), x.sum(axis=1)

    x = tb.reshape(tb.arange(4.0), (2, 2))
    return fn, [(x, "ab"), (x, ["long", "short"]), (x * 2, "ab")]


@program
def pretty_printing_settings():
    def fn(x, **settings):
        pprint.pprint({"shape": x.shape, **settings}, width=40)
        text = "%(kind)s of %(n)d" % {"kind": settings.get("kind", "tensor"), "n": x.size}  # noqa: UP031
        return x, text.upper().center(20, "*"), ", ".join(sorted(settings))

    x = tb.ones(3)
    return fn, [(x,), call_of(x, kind="vector", long=list(range(20))), call_of(x, kind="vector")]


@program
def progress_in_a_loop():
    def fn(x, steps, every=2):
        for step in range(steps):
            x = x * 0.5 + 1
            if step % every == 0:
                print(f"\rstep {step + 1}/{steps}", end="", flush=True)
        print()
        return x

    return fn, [(tb.ones(2), 3), (tb.ones(2), 4), (tb.zeros(2), 3), (tb.ones(2), 3, 1)]
