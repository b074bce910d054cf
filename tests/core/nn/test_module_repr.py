"""``repr`` of modules: the settings that each layer shows."""

from __future__ import annotations

import pytest
from tensorbus import nn


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.MaxPool2d(2), "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)"),
        (nn.AvgPool1d(2), "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"),
        (nn.AvgPool2d(2), "AvgPool2d(kernel_size=2, stride=2, padding=0)"),
        (nn.MaxUnpool1d(2), "MaxUnpool1d(kernel_size=(2,), stride=(2,), padding=(0,))"),
        (nn.MaxUnpool2d(2), "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))"),
        (
            nn.MaxUnpool3d(2, (1, 2, 3), 1),
            "MaxUnpool3d(kernel_size=(2, 2, 2), stride=(1, 2, 3), padding=(1, 1, 1))",
        ),
        (nn.FractionalMaxPool2d(2, 3), "FractionalMaxPool2d()"),
        (nn.LazyLinear(3), "LazyLinear(in_features=0, out_features=3, bias=True)"),
        (nn.LazyConv2d(4, 3), "LazyConv2d(0, 4, kernel_size=(3, 3), stride=(1, 1))"),
        (
            nn.TripletMarginWithDistanceLoss(),
            "TripletMarginWithDistanceLoss(\n  (distance_function): PairwiseDistance()\n)",
        ),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, nn.Module) else "",
)
def test_modules_show_their_settings(module: nn.Module, text: str) -> None:
    assert repr(module) == text
