"""PyTorch, eager or compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from benchmarks.compiled import data, models
from benchmarks.compiled.peers.ten import ten_ops
from benchmarks.compiled.threads import THREADS

LIBRARY = models.Library(
    nn=torch.nn, functional=torch.nn.functional, arrays=torch, permute=torch.permute, unbind=torch.unbind
)
Call = Callable[[], object]


class Peer:
    """``variant`` is ``eager`` or ``compiled``. Calls are made in ``context``."""

    def __init__(self, variant: str) -> None:
        torch.set_num_threads(THREADS)
        self.context: Callable[[], Any] = nullcontext
        self.wrap: Callable[[Any], Any] = torch.compile if variant == "compiled" else lambda f: f

    def chain(self) -> Call:
        x, c = (torch.from_numpy(data.floats(data.CHAIN, seed=k)) for k in range(2))
        gelu = torch.nn.functional.gelu
        return self._quiet(lambda x, c: gelu(x * data.A + data.B) * torch.tanh(c) - x, x, c)

    def softmax(self) -> Call:
        return self._quiet(lambda x: torch.softmax(x, 1), torch.from_numpy(data.floats(8192, 4096)))

    def layer_norm(self) -> Call:
        return self._quiet(torch.nn.LayerNorm(1024), torch.from_numpy(data.floats(8192, 1024)))

    def halves(self, what: str) -> Call:
        if what == "softmax":
            return self._quiet(
                lambda x: torch.softmax(x, 1), torch.from_numpy(data.floats(8192, 4096)).bfloat16()
            )
        x, c = (torch.from_numpy(data.floats(data.CHAIN, seed=k)).bfloat16() for k in range(2))
        gelu = torch.nn.functional.gelu
        return self._quiet(lambda x, c: gelu(x * data.A + data.B) * torch.tanh(c) - x, x, c)

    def cumsum(self) -> Call:
        return self._quiet(lambda x: torch.cumsum(x, 1), torch.from_numpy(data.floats(8192, 4096)))

    def matmul(self, dtype: str) -> Call:
        x, y = (torch.from_numpy(v) for v in data.square(dtype))
        if dtype == "int8":
            return self._quiet(torch._int_mm, x, y)
        if dtype == "bfloat16":
            x, y = x.bfloat16(), y.bfloat16()
        return self._quiet(torch.matmul, x, y)

    def mlp(self) -> Call:
        model = models.mlp(LIBRARY, 784, 1024, 1024, 10)
        x, y = torch.from_numpy(data.floats(256, 784)), torch.from_numpy(data.classes(256, 10))
        return self._training(model, lambda out: torch.nn.functional.cross_entropy(out, y), x)

    def gpt_block(self, batch: int, train: bool) -> Call:
        model = models.block_class(LIBRARY)(models.WIDTH, models.HEADS)
        x = torch.from_numpy(data.floats(batch, models.LENGTH, models.WIDTH))
        if train:
            return self._training(model, lambda out: torch.mean(out * out), x)
        return self._quiet(model, x)

    def residual(self, train: bool) -> Call:
        model, x = models.residual(LIBRARY, 64), torch.from_numpy(data.floats(8, 64, 56, 56))
        if train:
            return self._training(model, lambda out: torch.mean(out * out), x)
        return self._quiet(model.eval(), x)

    def gpt(self, layers: int, width: int, heads: int, length: int, vocabulary: int) -> Call:
        model = models.gpt(LIBRARY, layers, width, heads, length, vocabulary)
        x = torch.from_numpy(data.tokens(1, length, vocabulary))
        y = x.reshape(-1)

        def loss(out: Any) -> Any:
            return torch.nn.functional.cross_entropy(out.reshape(-1, vocabulary), y)

        return self._training(model, loss, x)

    def ten(self) -> Call:
        x, y = (torch.from_numpy(data.floats(64, 64, seed=k)) for k in range(2))
        return self._quiet(ten_ops(torch), x, y)

    def add(self) -> Call:
        x, y = (torch.from_numpy(data.floats(8, seed=k)) for k in range(2))
        return self._quiet(lambda x, y: x + y, x, y)

    def small(self, gradient: bool) -> Call:
        model, x = models.mlp(LIBRARY, 64, 64, 64), torch.from_numpy(data.floats(1, 64))
        if not gradient:
            return self._quiet(model, x)
        parameters = list(model.parameters())
        self.context = nullcontext

        @self.wrap
        def loss(x: Any) -> Any:
            out = model(x)
            return torch.sum(out * out)

        return lambda: torch.autograd.grad(loss(x), parameters)

    def transform(self, what: str) -> Call:
        self.context = nullcontext
        func = torch.func
        if what == "hessian":
            run = self.wrap(
                func.hessian(lambda x: (torch.sin(x) * (x * x).sum()).sum() + torch.exp(x * 0.1).sum())
            )
            x = torch.from_numpy(data.floats(64))
            return lambda: run(x)
        if what == "jacobian":
            model = models.mlp(LIBRARY, 256, 256, 256).requires_grad_(False)
            run, x = self.wrap(func.jacrev(model)), torch.from_numpy(data.floats(256))
            return lambda: run(x)
        model, y = models.mlp(LIBRARY, 64, 256, 10), torch.from_numpy(data.classes(512, 10))
        p = {name: x.detach() for name, x in model.named_parameters()}

        def loss(p: Any, x: Any, y: Any) -> Any:
            return torch.nn.functional.cross_entropy(func.functional_call(model, p, (x[None],)), y[None])

        run, x = (
            self.wrap(func.vmap(func.grad(loss), in_dims=(None, 0, 0))),
            torch.from_numpy(data.floats(512, 64)),
        )
        return lambda: run(p, x, y)

    def _training(self, model: Any, loss: Callable[[Any], Any], x: Any) -> Call:
        self.context = nullcontext
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

        @self.wrap
        def forward(x: Any) -> Any:
            return loss(model(x))

        def step() -> Any:
            optimizer.zero_grad()
            result = forward(x)
            result.backward()
            optimizer.step()
            return result.detach()

        return step

    def _quiet(self, function: Callable[..., Any], *args: Any) -> Call:
        run = self.wrap(function)
        self.context = torch.inference_mode
        return lambda: run(*args)
