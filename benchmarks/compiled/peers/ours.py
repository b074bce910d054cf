"""tensorbus, compiled, on a device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import tensorbus as tb
from tensorbus import nn, optim

from benchmarks.compiled import data, models
from benchmarks.compiled.peers.ten import ten_ops

LIBRARY = models.Library(
    nn=nn, functional=nn.functional, arrays=tb, permute=tb.permute_dims, unbind=tb.unstack
)
Call = Callable[[], object]


class Peer:
    """``variant`` is the device. Calls are made in ``context``: without gradients, where none are needed."""

    def __init__(self, variant: str) -> None:
        self.device = tb.device(variant)
        tb.set_default_device(self.device)
        self.context: Callable[[], Any] = nullcontext

    def chain(self) -> Call:
        x, c = (tb.asarray(data.floats(data.CHAIN, seed=k)) for k in range(2))

        @tb.compile
        def run(x: Any, c: Any) -> Any:
            return nn.functional.gelu(x * data.A + data.B) * tb.tanh(c) - x

        return self._done(run, x, c)

    def softmax(self) -> Call:
        x = tb.asarray(data.floats(8192, 4096))
        return self._done(tb.compile(lambda x: tb.softmax(x, 1)), x)

    def layer_norm(self) -> Call:
        x, norm = tb.asarray(data.floats(8192, 1024)), nn.LayerNorm(1024)
        return self._quiet(tb.compile(norm), x)

    def halves(self, what: str) -> Call:
        if what == "softmax":
            x = tb.asarray(data.floats(8192, 4096)).to(tb.bfloat16)
            return self._done(tb.compile(lambda x: tb.softmax(x, 1)), x)
        x, c = (tb.asarray(data.floats(data.CHAIN, seed=k)).to(tb.bfloat16) for k in range(2))
        run = tb.compile(lambda x, c: nn.functional.gelu(x * data.A + data.B) * tb.tanh(c) - x)
        return self._done(run, x, c)

    def cumsum(self) -> Call:
        x = tb.asarray(data.floats(8192, 4096))
        return self._done(tb.compile(lambda x: tb.cumulative_sum(x, axis=1)), x)

    def matmul(self, dtype: str) -> Call:
        x, y = (tb.asarray(v) for v in data.square(dtype))
        if dtype == "bfloat16":
            x, y = x.to(tb.bfloat16), y.to(tb.bfloat16)
        return self._done(tb.compile(lambda x, y: x @ y), x, y)

    def mlp(self) -> Call:
        model = models.mlp(LIBRARY, 784, 1024, 1024, 10)
        x, y = tb.asarray(data.floats(256, 784)), tb.asarray(data.classes(256, 10))
        return self._training(model, lambda out: nn.functional.cross_entropy(out, y), x)

    def gpt_block(self, batch: int, train: bool) -> Call:
        model = models.block_class(LIBRARY)(models.WIDTH, models.HEADS)
        x = tb.asarray(data.floats(batch, models.LENGTH, models.WIDTH))
        if train:
            return self._training(model, lambda out: tb.mean(out * out), x)
        return self._quiet(tb.compile(model), x)

    def residual(self, train: bool) -> Call:
        model, x = models.residual(LIBRARY, 64), tb.asarray(data.floats(8, 64, 56, 56))
        if train:
            return self._training(model, lambda out: tb.mean(out * out), x)
        return self._quiet(tb.compile(model.eval()), x)

    def gpt(self, layers: int, width: int, heads: int, length: int, vocabulary: int) -> Call:
        model = models.gpt(LIBRARY, layers, width, heads, length, vocabulary)
        x = tb.asarray(data.tokens(1, length, vocabulary))
        y = tb.reshape(x, (-1,))

        def loss(out: Any) -> Any:
            return nn.functional.cross_entropy(tb.reshape(out, (-1, vocabulary)), y)

        return self._training(model, loss, x)

    def ten(self) -> Call:
        x, y = (tb.asarray(data.floats(64, 64, seed=k)) for k in range(2))
        return self._done(tb.compile(ten_ops(tb)), x, y)

    def add(self) -> Call:
        x, y = (tb.asarray(data.floats(8, seed=k)) for k in range(2))
        return self._done(tb.compile(lambda x, y: x + y), x, y)

    def small(self, gradient: bool) -> Call:
        model, x = models.mlp(LIBRARY, 64, 64, 64), tb.asarray(data.floats(1, 64))
        if not gradient:
            return self._quiet(tb.compile(model), x)
        parameters = list(model.parameters())
        self.context = nullcontext

        @tb.compile
        def gradients(x: Any) -> Any:
            out = model(x)
            return tb.grad(tb.sum(out * out), parameters)

        return self._done(gradients, x)

    def transform(self, what: str) -> Call:
        self.context = tb.no_grad
        if what == "hessian":
            run = tb.compile(
                tb.func.hessian(lambda x: (tb.sin(x) * tb.sum(x * x)).sum() + tb.exp(x * 0.1).sum())
            )
            return self._done(run, tb.asarray(data.floats(64)))
        if what == "jacobian":
            model = models.mlp(LIBRARY, 256, 256, 256)
            return self._done(tb.compile(tb.func.jacrev(model)), tb.asarray(data.floats(256)))
        model, y = models.mlp(LIBRARY, 64, 256, 10), tb.asarray(data.classes(512, 10))
        p = {name: x.detach() for name, x in model.named_parameters()}

        def loss(p: Any, x: Any, y: Any) -> Any:
            out = tb.func.functional_call(model, p, (x[None],))
            return tb.nn.functional.cross_entropy(out, y[None])

        run = tb.compile(tb.vmap(tb.func.grad(loss), in_dims=(None, 0, 0)))
        return self._done(run, p, tb.asarray(data.floats(512, 64)), y)

    def _training(self, model: Any, loss: Callable[[Any], Any], x: Any) -> Call:
        self.context = nullcontext
        optimizer = optim.Adam(model.parameters(), lr=1e-4)

        @tb.compile
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            result = loss(model(x))
            result.backward()
            optimizer.step()
            return result.detach()

        return self._done(step, x)

    def _quiet(self, run: Callable[..., Any], *args: Any) -> Call:
        self.context = tb.no_grad
        return self._done(run, *args)

    def _done(self, run: Callable[..., Any], *args: Any) -> Call:
        if self.device.type == "cpu":
            return lambda: run(*args)
        wait = self.device.synchronize

        def waiting() -> Any:
            out = run(*args)
            wait()
            return out

        return waiting
