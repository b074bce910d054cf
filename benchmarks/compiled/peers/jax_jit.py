"""JAX, compiled by ``jit``: the models as functions of a tree of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from benchmarks.compiled import data, models
from benchmarks.compiled.peers.ten import ten_ops

Call = Callable[[], object]


class Peer:
    """JAX knows no variants."""

    def __init__(self, variant: str) -> None:
        self.rng = np.random.default_rng(0)

    def chain(self) -> Call:
        x, c = (jnp.asarray(data.floats(data.CHAIN, seed=k)) for k in range(2))
        return _call(lambda x, c: jax.nn.gelu(x * data.A + data.B, approximate=False) * jnp.tanh(c) - x, x, c)

    def softmax(self) -> Call:
        return _call(lambda x: jax.nn.softmax(x, axis=1), jnp.asarray(data.floats(8192, 4096)))

    def layer_norm(self) -> Call:
        p = {"w": jnp.ones(1024), "b": jnp.zeros(1024)}
        return _call(_norm, jnp.asarray(data.floats(8192, 1024)), p)

    def halves(self, what: str) -> Call:
        if what == "softmax":
            x = jnp.asarray(data.floats(8192, 4096)).astype(jnp.bfloat16)
            return _call(lambda x: jax.nn.softmax(x, axis=1), x)
        x, c = (jnp.asarray(data.floats(data.CHAIN, seed=k)).astype(jnp.bfloat16) for k in range(2))
        return _call(lambda x, c: jax.nn.gelu(x * data.A + data.B, approximate=False) * jnp.tanh(c) - x, x, c)

    def cumsum(self) -> Call:
        return _call(lambda x: jnp.cumsum(x, axis=1), jnp.asarray(data.floats(8192, 4096)))

    def matmul(self, dtype: str) -> Call:
        x, y = (jnp.asarray(v) for v in data.square(dtype))
        if dtype == "int8":
            return _call(lambda x, y: jnp.matmul(x, y, preferred_element_type=jnp.int32), x, y)
        if dtype == "bfloat16":
            x, y = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
        return _call(lambda x, y: x @ y, x, y)

    def mlp(self) -> Call:
        p = [self._linear(a, b) for a, b in ((784, 1024), (1024, 1024), (1024, 10))]
        y = jnp.asarray(data.classes(256, 10))
        return _training(lambda p, x: _cross_entropy(_mlp(p, x), y), p, jnp.asarray(data.floats(256, 784)))

    def gpt_block(self, batch: int, train: bool) -> Call:
        p, x = self._block(models.WIDTH), jnp.asarray(data.floats(batch, models.LENGTH, models.WIDTH))
        if train:
            return _training(lambda p, x: jnp.mean(_block(p, x, models.HEADS) ** 2), p, x)
        return _call(lambda p, x: _block(p, x, models.HEADS), p, x)

    def residual(self, train: bool) -> Call:
        x = jnp.asarray(data.floats(8, 64, 56, 56))
        p = {
            name: {"c": self._drawn(64, 64, 3, 3), "w": jnp.ones(64), "b": jnp.zeros(64)} for name in "ab"
        }  # fmt: skip
        if train:
            return _training(lambda p, x: jnp.mean(_residual(p, x, None) ** 2), p, x)
        retained = (jnp.zeros(64), jnp.ones(64))
        return _call(lambda p, x: _residual(p, x, retained), p, x)

    def gpt(self, layers: int, width: int, heads: int, length: int, vocabulary: int) -> Call:
        p = {
            "words": self._drawn(vocabulary, width), "places": self._drawn(length, width),
            "blocks": [self._block(width) for _ in range(layers)], "last": _norm_weights(width),
        }  # fmt: skip
        x = jnp.asarray(data.tokens(1, length, vocabulary))

        def loss(p: Any, tokens: Any) -> Any:
            x = p["words"][tokens] + p["places"]
            for part in p["blocks"]:
                x = _block(part, x, heads)
            out = _norm(x, p["last"]) @ p["words"].T
            return _cross_entropy(out.reshape(-1, vocabulary), tokens.reshape(-1))

        return _training(loss, p, x)

    def ten(self) -> Call:
        return _call(ten_ops(jnp), *(jnp.asarray(data.floats(64, 64, seed=k)) for k in range(2)))

    def add(self) -> Call:
        return _call(lambda x, y: x + y, *(jnp.asarray(data.floats(8, seed=k)) for k in range(2)))

    def small(self, gradient: bool) -> Call:
        p, x = [self._linear(64, 64) for _ in range(2)], jnp.asarray(data.floats(1, 64))
        if gradient:
            return _call(jax.grad(lambda p, x: jnp.sum(_mlp(p, x) ** 2)), p, x)
        return _call(_mlp, p, x)

    def transform(self, what: str) -> Call:
        if what == "hessian":
            f = jax.hessian(lambda x: jnp.sum(jnp.sin(x) * jnp.sum(x * x)) + jnp.sum(jnp.exp(x * 0.1)))
            return _call(f, jnp.asarray(data.floats(64)))
        if what == "jacobian":
            p = [self._linear(256, 256) for _ in range(2)]
            return _call(jax.jacrev(lambda x: _mlp(p, x)), jnp.asarray(data.floats(256)))
        p, y = [self._linear(64, 256), self._linear(256, 10)], jnp.asarray(data.classes(512, 10))

        def loss(p: Any, x: Any, y: Any) -> Any:
            return _cross_entropy(_mlp(p, x[None]), y[None])

        return _call(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)), p, jnp.asarray(data.floats(512, 64)), y)

    def _drawn(self, *shape: int) -> Any:
        return jnp.asarray(0.02 * self.rng.standard_normal(shape, dtype=np.float32))

    def _linear(self, inner: int, outer: int) -> Any:
        return {"w": self._drawn(outer, inner), "b": jnp.zeros(outer)}

    def _block(self, width: int) -> Any:
        wide = 4 * width
        pairs = {
            "mix": (width, 3 * width),
            "out": (width, width),
            "wide": (width, wide),
            "narrow": (wide, width),
        }
        results = {name: self._linear(*pair) for name, pair in pairs.items()}
        return {**results, "before": _norm_weights(width), "between": _norm_weights(width)}


def _call(function: Callable[..., Any], *args: Any) -> Call:
    run = jax.jit(function)
    return lambda: jax.block_until_ready(run(*args))


def _training(loss: Callable[[Any, Any], Any], p: Any, x: Any) -> Call:
    """Return a step with Adam; parameters and the optimizer's state are given away to the next."""

    def step(state: Any, x: Any) -> Any:
        p, m, v, t = state
        result, g = jax.value_and_grad(loss)(p, x)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        first, second = 1 - 0.9**t, 1 - 0.999**t
        p = jax.tree.map(
            lambda p, m, v: p - 1e-4 * (m / first) / (jnp.sqrt(v / second) + 1e-8), p, m, v
        )  # fmt: skip
        return (p, m, v, t), result

    run = jax.jit(step, donate_argnums=0)
    state = [(p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.zeros(()))]

    def call() -> Any:
        state[0], result = run(state[0], x)
        return jax.block_until_ready((state[0], result))[1]

    return call


def _norm_weights(width: int) -> Any:
    return {"w": jnp.ones(width), "b": jnp.zeros(width)}


def _norm(x: Any, p: Any) -> Any:
    mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["w"] + p["b"]


def _linear(p: Any, x: Any) -> Any:
    return x @ p["w"].T + p["b"]


def _mlp(p: Any, x: Any) -> Any:
    for part in p[:-1]:
        x = jax.nn.relu(_linear(part, x))
    return _linear(p[-1], x)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))


def _block(p: Any, x: Any, heads: int) -> Any:
    batch, length, width = x.shape
    parts = _linear(p["mix"], _norm(x, p["before"])).reshape(batch, length, 3, heads, width // heads)
    q, k, v = (parts[:, :, j] for j in range(3))
    result = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, length, width)
    x = x + _linear(p["out"], result)
    y = jax.nn.gelu(_linear(p["wide"], _norm(x, p["between"])), approximate=False)
    return x + _linear(p["narrow"], y)


def _residual(p: Any, x: Any, state: Any) -> Any:
    def part(p: Any, x: Any) -> Any:
        y = jax.lax.conv_general_dilated(x, p["c"], (1, 1), "SAME")
        mean, variance = (jnp.mean(y, (0, 2, 3)), jnp.var(y, (0, 2, 3))) if state is None else state
        scale = jax.lax.rsqrt(variance + 1e-5) * p["w"]
        return y * scale[:, None, None] + (p["b"] - mean * scale)[:, None, None]

    return jax.nn.relu(part(p["b"], jax.nn.relu(part(p["a"], x))) + x)
