"""Backends of ``scaled_dot_product_attention``: what each is, which may be used, and which serves a call.

Names are those of ``torch.nn.attention``. The choice of the user is part of what programs are guarded by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Token
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from ...backend_interface.protocols import Call
from ...devices.device import Device
from ...dispatch import kernel_preference
from ...dispatch.candidates import BackendVerdict, judge
from ...dispatch.kernel_tables import is_served
from ...dispatch.modes import is_value_mode
from ...dispatch.selection import has_observers, notify
from ...dtypes import definition as dt
from ...errors import ArgumentError, UnsupportedOpError
from ...ops.definition import Spec, table
from ...ops.nn.attention_blocks import has_few_queries
from ...ops.nn.attention_scores import NAME
from ...system.context_decorator import decorated

P = ParamSpec("P")
R = TypeVar("R")


class SDPBackend(Enum):
    """A way in which ``scaled_dot_product_attention`` can run.

    ``MATH``: by the formula, with all scores in memory; any call. ``FLASH_ATTENTION``: by tiles of scores
    that are never all in memory, without a mask but a causal one. ``EFFICIENT_ATTENTION``: the same with a
    mask that is a tensor. ``CUDNN_ATTENTION``: cuDNN's kernel. ``OVERRIDEABLE``: the kernel that the package
    of the device, or another one, brings for the op. ``ERROR`` is what PyTorch says where none applies.
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_ORDER: Final = (
    SDPBackend.CUDNN_ATTENTION, SDPBackend.OVERRIDEABLE, SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH,
)  # fmt: skip
"""The order in which backends are asked, unless a user states another."""
_FEWEST_SCORES_BESIDE_KERNELS: Final = 1 << 24
"""The same on a device that has kernels of attention, none of which serves the call, of which operands are
wide: it has products of a library too, by which the formula is faster than tiles."""
_KEY: Final = f"{NAME} backends"
"""Under what the names of the allowed backends stand among the kernels that the user prefers."""
_FEWEST_SCORES: Final = 1 << 18
"""Of fewer scores it takes no memory to speak of to have all of them."""


class sdpa_kernel:  # noqa: N801 - a function to its users
    """Allow only some backends of ``scaled_dot_product_attention``, in a ``with`` block or a function.

    ``backends`` is an ``SDPBackend``, or several. Of those that serve a call the first of tensorbus's own
    order runs, with ``set_priority`` the first of ``backends``. A call that none of them serves raises
    ``UnsupportedOpError``, which says why of each. ``tb.explain`` shows what each says of a call. A
    derivative runs as its forward did. Raises ``ArgumentError`` for what is no backend.

    >>> import tensorbus as tb
    >>> from tensorbus.nn.attention import SDPBackend, sdpa_kernel
    >>> x = tb.ones((1, 1, 2, 4), device="cpu")
    >>> with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
    ...     tb.nn.functional.scaled_dot_product_attention(x, x, x).shape
    (1, 1, 2, 4)
    >>> with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
    ...     tb.nn.functional.scaled_dot_product_attention(x, x, x)
    Traceback (most recent call last):
        ...
    tensorbus.errors.UnsupportedOpError: scaled_dot_product_attention: none of the backends that sdpa_kernel \
allows serves this call:
      CUDNN_ATTENTION: cpu has no such kernel
    Allow another one; SDPBackend.MATH serves every call.
    """

    def __init__(self, backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> None:
        several = (backends,) if isinstance(backends, SDPBackend) else backends
        if not isinstance(several, (list, tuple, set)) or not several:
            raise ArgumentError(f"sdpa_kernel: backends are one SDPBackend or several, got {backends!r}.")
        for each in several:
            if not isinstance(each, SDPBackend) or each is SDPBackend.ERROR:
                known = ", ".join(f"SDPBackend.{b.name}" for b in _ORDER)
                raise ArgumentError(f"sdpa_kernel: a backend is one of {known}; got {each!r}.")
        self._backends, self._set_priority = tuple(several), set_priority
        allowed = several if set_priority else [b for b in _ORDER if b in several]
        self._names = " ".join(dict.fromkeys(b.name for b in allowed))
        self._tokens: list[Token[dict[str, str]]] = []

    def __enter__(self) -> None:
        self._tokens.append(kernel_preference.push({_KEY: self._names}))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        kernel_preference.pop(self._tokens.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` as it runs inside; of a generator function, each step does."""
        return decorated(partial(sdpa_kernel, self._backends, self._set_priority), function)


class SdpaCall(NamedTuple):
    """A call of ``scaled_dot_product_attention``, as backends are asked about it.

    ``specs`` are those of query, key, value and of a mask that is a tensor, ``out`` that of the result.
    """

    specs: tuple[Spec, ...]
    out: Spec
    device: Device
    attrs: dict[str, Any]
    dropout: bool
    learns_mask: bool
    causal_bias: bool

    @property
    def scores(self) -> int:
        """The number of scores; of open lengths, the number at the capture."""
        return _count(self.out.shape, self.specs[1].shape)


def _count(query: Sequence[Any], key: Sequence[Any]) -> int:
    count = 1
    for n in (*query[:-1], key[-2]):
        count *= getattr(n, "hint", n)
    return count


def has_many_scores(query: Sequence[Any], key: Sequence[Any]) -> bool:
    """Return whether it is worth knowing which scores are not needed, of operands of these shapes."""
    return _count(query, key) >= _FEWEST_SCORES and not has_few_queries(query)


def choose_backend(call: SdpaCall) -> SDPBackend:
    """Return the backend that runs a call. Raises ``UnsupportedOpError`` where the user allows none of them.

    Where the user says nothing, the device's own kernels come first; scores that are few, or those of few
    queries, are all made at once.
    """
    names = kernel_preference.preferred(_KEY)
    if names is None:
        fewest = _FEWEST_SCORES
        if is_served(call.device.type, NAME) and not call.dropout:
            if _serves_itself(call):
                return SDPBackend.OVERRIDEABLE
            if call.out.dtype not in dt.NARROW:
                fewest = _FEWEST_SCORES_BESIDE_KERNELS
        if (
            call.scores < fewest
            or has_few_queries(call.specs[0].shape)
            or call.learns_mask
            or _tile_refusal(call) is not None
        ):
            return SDPBackend.MATH
        return SDPBackend.FLASH_ATTENTION if len(call.specs) == 3 else SDPBackend.EFFICIENT_ATTENTION
    verdicts = [verdict_of(SDPBackend[name], call) for name in names.split()]
    serving = next((v for v in verdicts if v.reason is None), None)
    if serving is not None:
        return SDPBackend[serving.name]
    reasons = "".join(f"\n  {v.name}: {v.reason}" for v in verdicts)
    raise UnsupportedOpError(
        f"{NAME}: none of the backends that sdpa_kernel allows serves this call:{reasons}\nAllow another one;"
        " SDPBackend.MATH serves every call."
    )


def is_restricted() -> bool:
    """Return whether a user says here which backends are allowed."""
    return kernel_preference.preferred(_KEY) is not None


def notify_backend(call: SdpaCall, taken: SDPBackend) -> None:
    """Tell those who observe dispatch what each backend says of a call, and which one runs it."""
    if not has_observers():
        return
    verdicts = every_verdict(call)
    chosen = next((v for v in verdicts if v.name == taken.name), None)
    request = Call(
        op=NAME, dtypes=tuple([s.dtype for s in call.specs]), shapes=tuple([s.shape for s in call.specs]),
        attrs=call.attrs, out_dtype=call.out.dtype, out_shape=call.out.shape, index=call.device.index,
    )  # fmt: skip
    notify(table[NAME], request, call.device, verdicts, chosen)


def every_verdict(call: SdpaCall) -> list[BackendVerdict]:
    """Return what each backend says of a call, those first that the user allows."""
    allowed = (kernel_preference.preferred(_KEY) or "").split()
    order = [SDPBackend[name] for name in allowed]
    rest = [verdict_of(b, call) for b in _ORDER if b not in order]
    if allowed:
        rest = [v._replace(reason=v.reason or "sdpa_kernel does not allow it") for v in rest]
    return [*(verdict_of(b, call) for b in order), *rest]


def verdict_of(backend: SDPBackend, call: SdpaCall) -> BackendVerdict:
    """Return whether a backend serves a call."""
    if backend is SDPBackend.MATH:
        return BackendVerdict("tensorbus", backend.name, None)
    if backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        reason = _tile_refusal(call)
        if backend is SDPBackend.FLASH_ATTENTION and len(call.specs) > 3:
            reason = "it takes no attn_mask that is a tensor; EFFICIENT_ATTENTION does"
        return BackendVerdict("tensorbus", backend.name, reason)
    return _own_kernel(backend, call)


def _tile_refusal(call: SdpaCall) -> str | None:
    if call.dropout:
        return "it has no dropout"
    if is_value_mode(call.device.type):
        return "the operands are values of a transform, which decomposes the op"
    key, value = (spec.shape for spec in call.specs[1:3])
    if key[:-2] != value[:-2]:
        return f"key and value need the same batch and heads, got {key} and {value}"
    return None


def _serves_itself(call: SdpaCall) -> bool:
    """Return whether a kernel that was registered for the op serves a call; of open lengths, as they were."""
    if is_value_mode(call.device.type):
        return True  # the op is decomposed by the transform
    if call.causal_bias:
        return False
    request = _request(call)
    return any(v.reason is None for v in judge(NAME, request, call.device))


def _request(call: SdpaCall) -> Call:
    def known(spec: Spec) -> tuple[int, ...]:
        return tuple([getattr(n, "hint", n) for n in spec.shape])

    return Call(
        op=NAME, dtypes=tuple([s.dtype for s in call.specs]), shapes=tuple([known(s) for s in call.specs]),
        attrs=call.attrs, out_dtype=call.out.dtype, out_shape=known(call.out), index=call.device.index,
    )  # fmt: skip


def _own_kernel(backend: SDPBackend, call: SdpaCall) -> BackendVerdict:
    """Return whether a kernel that was registered for the op serves a call."""
    device, wanted = call.device, backend is SDPBackend.CUDNN_ATTENTION
    reason: str | None = None
    if call.dropout:
        reason = "it has no dropout"
    elif call.causal_bias:
        reason = "it takes a mask that is a tensor, or is_causal"
    elif is_value_mode(device.type):
        reason = "the operands are values of a transform, which decomposes the op"
    elif not all(type(n) is int for spec in call.specs for n in spec.shape):
        reason = "the lengths are open"
    if reason is not None:
        return BackendVerdict(device.type, backend.name, reason)
    request = _request(call)
    known = is_served(device.type, NAME)
    verdicts = [v for v in (judge(NAME, request, device) if known else ()) if (v.name == "cudnn") is wanted]
    serving = next((v for v in verdicts if v.reason is None), None)
    if serving is not None:
        return BackendVerdict(serving.owner, backend.name, None)
    reasons = "; ".join(f"{v.name} {v.reason}" for v in verdicts) or f"{device.type} has no such kernel"
    return BackendVerdict(device.type, backend.name, reasons)
