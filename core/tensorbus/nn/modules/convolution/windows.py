"""The channels, windows and parameters that layers of convolutions and of transposed ones share."""

from __future__ import annotations

from typing import ClassVar

from ....devices.device import Device
from ....dtypes.definition import DType
from ....errors import ArgumentError
from ....ops.creation.creation import empty
from ....ops.nn.convolution import Lengths, spread
from ... import init
from ...module import Module
from ...parameter import Parameter
from ..linear import positive


class WindowLayer(Module):
    """Base of the layers; ``rank`` is the number of spatial axes."""

    rank: ClassVar[int]
    bias: Parameter | None

    def _set_windows(
        self, in_channels: int, out_channels: int, kernel_size: Lengths, stride: Lengths, dilation: Lengths,
        groups: int,
    ) -> None:  # fmt: skip
        """Check and keep these. Raises ``ArgumentError`` where groups do not divide the channels."""
        name, rank = type(self).__name__, self.rank
        positive(name, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{name}: groups must divide in_channels and out_channels, got {groups} for {in_channels} and"
                f" {out_channels}."
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = spread(name, "kernel_size", kernel_size, rank, 1)
        self.stride = spread(name, "stride", stride, rank, 1)
        self.dilation = spread(name, "dilation", dilation, rank, 1)
        self.groups = groups

    def _set_parameters(
        self, rows: int, columns: int, bias: bool, device: Device | str | None, dtype: DType | str | None
    ) -> None:
        """Make a weight of ``rows`` by ``columns`` of each group, and draw its values."""
        shape = (rows, columns // self.groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(empty((self.out_channels,), device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, as PyTorch does: within ``1 / sqrt(fan_in)`` of zero."""
        init.reset_affine(self.weight, self.bias)

    def _settings(self, *names: str) -> list[str]:
        """Return the settings as text, those of ``names`` where they differ from their defaults."""
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        ]
        values = {name: getattr(self, name) for name in names}
        usual = {name: (int(name == "dilation"),) * self.rank for name in names}
        parts += [f"{name}={value}" for name, value in values.items() if value != usual[name]]
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        return parts
