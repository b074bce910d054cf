"""A softmax over many classes of which few are frequent (Grave, Joulin, Cisse, Grangier, Jegou 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....autograd.engine import no_grad
from ....devices.device import Device
from ....dtypes.definition import DType, int64
from ....errors import ArgumentError, IndexingError, ShapeError
from ....ops.creation.creation import iota, zeros
from ....ops.elementwise.where_cast import cast, where
from ....ops.indexing.gather_scatter import gather, scatter
from ....ops.indexing.nonzero import nonzero
from ....ops.movement.movement import concat, reshape
from ....ops.reduction.reduction import argmax, mean
from ....tensor.tensor import Tensor
from ... import functional
from ...module import Module
from ..container import ModuleList, Sequential
from ..linear import Linear


class ASMoutput(NamedTuple):
    """The logarithm of the probability of each target, and the mean of its negative."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of ``n_classes``, sorted from frequent to rare and cut into clusters at ``cutoffs``.

    The classes before the first cutoff and one number for each cluster are scored for every example; a
    cluster's own classes, by a layer that is ``div_value`` times narrower for each further cluster, only for
    examples whose target is there. So results wait for the targets' values.
    Raises ``ArgumentError`` for cutoffs that are not increasing integers from 1 to ``n_classes - 1``.

    >>> import tensorbus as tb
    >>> layer = tb.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[4, 10], div_value=2.0)
    >>> x, target = tb.ones((5, 8)), tb.asarray([0, 3, 7, 12, 19])
    >>> layer(x, target).output.shape, layer.log_prob(x).shape, layer.predict(x).shape
    ((5,), (5, 20), (5,))
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        ends = list(cutoffs)
        plain = all(isinstance(c, int) and not isinstance(c, bool) for c in ends)
        if not ends or not plain or ends != sorted(set(ends)) or not 1 <= ends[0] <= ends[-1] < n_classes:
            raise ArgumentError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must be increasing integers from 1 to n_classes - 1 ="
                f" {n_classes - 1}, got {cutoffs!r}."
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*ends, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = ends[0]
        self.n_clusters = len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for k in range(self.n_clusters):
            width = int(in_features // div_value ** (k + 1))
            count = self.cutoffs[k + 1] - self.cutoffs[k]
            narrow = Linear(in_features, width, False, device, dtype)
            self.tail.append(Sequential(narrow, Linear(width, count, False, device, dtype)))

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> ASMoutput:
        """Return the log-probability of each target and the loss, of a batch or of one example.

        Raises ``ShapeError`` where the shapes do not fit, ``IndexingError`` for a target that is no class.
        """
        if input_.ndim != target_.ndim + 1 or target_.ndim > 1 or input_.shape[:-1] != target_.shape:
            raise ShapeError(
                "AdaptiveLogSoftmaxWithLoss: an input of shape (batch, in_features) and targets of shape"
                f" (batch,) are needed, or one example, got {input_.shape} and {target_.shape}."
            )
        x, target = reshape(input_, (-1, input_.shape[-1])), reshape(target_, (-1,))
        head = functional.log_softmax(self.head(x), dim=1)
        column, within = target, zeros((x.shape[0],), dtype=head.dtype, device=x.device)
        known = target < self.shortlist_size
        for k, tail in enumerate(self.tail):
            low, high = self.cutoffs[k : k + 2]
            inside = (target >= low) & (target < high)
            known = known | inside
            column = where(inside, self.shortlist_size + k, column)
            (rows,) = nonzero(inside)
            if rows.shape[0]:
                own = functional.log_softmax(tail(x[rows]), dim=1)
                within = scatter(within, _pick(own, target[rows] - low), rows, mode="add")
        if not (known & (target >= 0)).all():
            raise IndexingError(
                f"AdaptiveLogSoftmaxWithLoss: targets must be from 0 to {self.n_classes - 1}, got some that"
                " are not."
            )
        output = _pick(head, column) + within
        return ASMoutput(reshape(output, target_.shape), -mean(output))

    def log_prob(self, input: Tensor) -> Tensor:
        """Return the log-probabilities of all classes: ``(batch, n_classes)``."""
        return self._all(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """Return the most probable class of each example: ``(batch,)``, or one of one example."""
        x = reshape(input, (-1, input.shape[-1]))
        with no_grad():
            head = self.head(x)
            classes = argmax(head, axis=1)
            (rows,) = nonzero(classes >= self.shortlist_size)
            if rows.shape[0]:
                classes = scatter(classes, argmax(self._all(x[rows], head[rows]), axis=1), rows)
        return reshape(classes, input.shape[:-1])

    def _all(self, x: Tensor, head: Tensor) -> Tensor:
        scores = functional.log_softmax(head, dim=-1)
        parts = [scores[..., : self.shortlist_size]]
        for k, tail in enumerate(self.tail):
            at = self.shortlist_size + k
            parts.append(functional.log_softmax(tail(x), dim=-1) + scores[..., at : at + 1])
        return concat(parts, axis=-1)


def _pick(scores: Tensor, column: Tensor) -> Tensor:
    """Return the score of each row in a column."""
    return gather(scores, iota(scores.shape[0], device=scores.device), cast(column, int64))
