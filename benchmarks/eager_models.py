"""Small models that people train, written once for tensorbus and PyTorch: ``t`` is either package."""

from __future__ import annotations

from typing import Any

NANO = {"layers": 4, "heads": 4, "width": 128, "length": 64, "vocabulary": 65}
"""nanoGPT's own configuration for a cpu."""


def perceptron(t: Any) -> Any:
    """Return 6 x (Linear, GELU)."""
    return t.nn.Sequential(*[part for _ in range(6) for part in (t.nn.Linear(256, 256), t.nn.GELU())])


def transformer_block(t: Any, width: int, heads: int, causal: bool) -> Any:
    """Return attention and a feed-forward part, each behind a layer norm, as nanoGPT and ViT have it."""
    nn, functional = t.nn, t.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attend(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = self.c_attn(x).split(width, dim=2)
            k = k.view(batch, length, heads, width // heads).transpose(1, 2)
            q = q.view(batch, length, heads, width // heads).transpose(1, 2)
            v = v.view(batch, length, heads, width // heads).transpose(1, 2)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.ln_1(x))
            return x + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x))))

    return Block()


def nano_gpt(t: Any) -> Any:
    """Return nanoGPT: tokens in, logits out; the embedding is the last layer's weight too."""
    nn, width, length, vocabulary = t.nn, NANO["width"], NANO["length"], NANO["vocabulary"]

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(
                [transformer_block(t, width, NANO["heads"], True) for _ in range(NANO["layers"])]
            )
            self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
            self.wte.weight = self.head.weight

        def forward(self, tokens: Any) -> Any:
            x = self.wte(tokens) + self.wpe(t.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln_f(x)).view(-1, vocabulary)

    return GPT()


def vision_transformer(t: Any, width: int = 192, heads: int = 3, depth: int = 6, patch: int = 4) -> Any:
    """Return a ViT for 32 x 32 images and 10 classes."""
    nn = t.nn

    class ViT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, patch, stride=patch)
            self.token = nn.Parameter(t.zeros((1, 1, width)))
            self.positions = nn.Parameter(t.zeros((1, (32 // patch) ** 2 + 1, width)))
            self.blocks = nn.ModuleList([transformer_block(t, width, heads, False) for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

        def forward(self, images: Any) -> Any:
            x = self.patches(images).flatten(2).transpose(1, 2)
            x = t.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)[:, 0])

    return ViT()


def _convolution(t: Any, inner: int, outer: int, kernel: int = 1, stride: int = 1, **options: Any) -> Any:
    return t.nn.Conv2d(
        inner, outer, kernel, stride=stride, padding=kernel // 2, bias=False, **options
    )  # fmt: skip


def residual_net(t: Any) -> Any:
    """Return ResNet-18 for 32 x 32 images."""
    nn, functional = t.nn, t.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = _convolution(t, inner, outer, 3, stride), nn.BatchNorm2d(outer)
            self.conv2, self.bn2 = _convolution(t, outer, outer, 3), nn.BatchNorm2d(outer)
            self.shortcut = nn.Sequential()
            if stride != 1 or inner != outer:
                self.shortcut = nn.Sequential(
                    _convolution(t, inner, outer, 1, stride), nn.BatchNorm2d(outer)
                )  # fmt: skip

        def forward(self, x: Any) -> Any:
            out = functional.relu(self.bn1(self.conv1(x)))
            return functional.relu(self.bn2(self.conv2(out)) + self.shortcut(x))

    class ResNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = _convolution(t, 3, 64, 3), nn.BatchNorm2d(64)
            blocks, inner = [], 64
            for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                blocks += [Block(inner, outer, stride), Block(outer, outer, 1)]
                inner = outer
            self.layers, self.linear = nn.Sequential(*blocks), nn.Linear(512, 10)

        def forward(self, x: Any) -> Any:
            out = self.layers(functional.relu(self.bn1(self.conv1(x))))
            out = functional.avg_pool2d(out, 4)
            return self.linear(out.view(out.shape[0], -1))

    return ResNet()


def mobile_net(t: Any) -> Any:
    """Return MobileNetV2 for 32 x 32 images: expansion, depthwise convolution, projection."""
    nn, functional = t.nn, t.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inner: int, outer: int, expansion: int, stride: int) -> None:
            super().__init__()
            self.stride, wide = stride, expansion * inner
            self.conv1, self.bn1 = _convolution(t, inner, wide), nn.BatchNorm2d(wide)
            self.conv2 = _convolution(t, wide, wide, 3, stride, groups=wide)
            self.bn2 = nn.BatchNorm2d(wide)
            self.conv3, self.bn3 = _convolution(t, wide, outer), nn.BatchNorm2d(outer)
            self.shortcut = nn.Sequential()
            if stride == 1 and inner != outer:
                self.shortcut = nn.Sequential(_convolution(t, inner, outer), nn.BatchNorm2d(outer))

        def forward(self, x: Any) -> Any:
            out = functional.relu(self.bn1(self.conv1(x)))
            out = functional.relu(self.bn2(self.conv2(out)))
            out = self.bn3(self.conv3(out))
            return out + self.shortcut(x) if self.stride == 1 else out

    class MobileNetV2(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = _convolution(t, 3, 32, 3), nn.BatchNorm2d(32)
            blocks, inner = [], 32
            for expansion, outer, count, stride in (
                (1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2),
                (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
            ):  # fmt: skip
                for k in range(count):
                    blocks.append(Block(inner, outer, expansion, stride if k == 0 else 1))
                    inner = outer
            self.layers = nn.Sequential(*blocks)
            self.conv2, self.bn2 = _convolution(t, 320, 1280), nn.BatchNorm2d(1280)
            self.linear = nn.Linear(1280, 10)

        def forward(self, x: Any) -> Any:
            out = self.layers(functional.relu(self.bn1(self.conv1(x))))
            out = functional.avg_pool2d(functional.relu(self.bn2(self.conv2(out))), 4)
            return self.linear(out.view(out.shape[0], -1))

    return MobileNetV2()


def shuffle_net(t: Any) -> Any:
    """Return ShuffleNetV2 (x0.5) for 32 x 32 images: depthwise convolutions of halves, then a shuffle."""
    nn, functional = t.nn, t.nn.functional

    def shuffled(x: Any) -> Any:
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).permute(0, 2, 1, 3, 4).reshape(n, c, h, w)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int) -> None:
            super().__init__()
            half = channels // 2
            self.conv1, self.bn1 = _convolution(t, half, half), nn.BatchNorm2d(half)
            self.conv2, self.bn2 = _convolution(t, half, half, 3, groups=half), nn.BatchNorm2d(half)
            self.conv3, self.bn3 = _convolution(t, half, half), nn.BatchNorm2d(half)

        def forward(self, x: Any) -> Any:
            half = x.shape[1] // 2
            left, right = x[:, :half], x[:, half:]
            out = functional.relu(self.bn1(self.conv1(right)))
            out = functional.relu(self.bn3(self.conv3(self.bn2(self.conv2(out)))))
            return shuffled(t.cat((left, out), 1))

    class Down(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inner: int, outer: int) -> None:
            super().__init__()
            half = outer // 2
            self.conv1, self.bn1 = _convolution(t, inner, inner, 3, 2, groups=inner), nn.BatchNorm2d(inner)
            self.conv2, self.bn2 = _convolution(t, inner, half), nn.BatchNorm2d(half)
            self.conv3, self.bn3 = _convolution(t, inner, half), nn.BatchNorm2d(half)
            self.conv4, self.bn4 = _convolution(t, half, half, 3, 2, groups=half), nn.BatchNorm2d(half)
            self.conv5, self.bn5 = _convolution(t, half, half), nn.BatchNorm2d(half)

        def forward(self, x: Any) -> Any:
            left = functional.relu(self.bn2(self.conv2(self.bn1(self.conv1(x)))))
            right = self.bn4(self.conv4(functional.relu(self.bn3(self.conv3(x)))))
            right = functional.relu(self.bn5(self.conv5(right)))
            return shuffled(t.cat((left, right), 1))

    class ShuffleNetV2(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = _convolution(t, 3, 24), nn.BatchNorm2d(24)
            layers, inner = [], 24
            for outer, count in ((48, 3), (96, 7), (192, 3)):
                layers += [Down(inner, outer), *[Block(outer) for _ in range(count)]]
                inner = outer
            self.layers = nn.Sequential(*layers)
            self.conv2, self.bn2 = _convolution(t, 192, 1024), nn.BatchNorm2d(1024)
            self.linear = nn.Linear(1024, 10)

        def forward(self, x: Any) -> Any:
            out = self.layers(functional.relu(self.bn1(self.conv1(x))))
            out = functional.avg_pool2d(functional.relu(self.bn2(self.conv2(out))), 4)
            return self.linear(out.view(out.shape[0], -1))

    return ShuffleNetV2()


def google_net(t: Any) -> Any:
    """Return GoogLeNet for 32 x 32 images: four branches side by side in every block."""
    nn = t.nn

    def part(inner: int, outer: int, kernel: int = 1) -> list[Any]:
        return [
            nn.Conv2d(inner, outer, kernel, padding=kernel // 2), nn.BatchNorm2d(outer), nn.ReLU(True)
        ]  # fmt: skip

    class Inception(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inner: int, n1: int, r3: int, n3: int, r5: int, n5: int, pool: int) -> None:
            super().__init__()
            self.b1 = nn.Sequential(*part(inner, n1))
            self.b2 = nn.Sequential(*part(inner, r3), *part(r3, n3, 3))
            self.b3 = nn.Sequential(*part(inner, r5), *part(r5, n5, 3), *part(n5, n5, 3))
            self.b4 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), *part(inner, pool))

        def forward(self, x: Any) -> Any:
            return t.cat([self.b1(x), self.b2(x), self.b3(x), self.b4(x)], 1)

    class GoogLeNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                *part(3, 192, 3),
                Inception(192, 64, 96, 128, 16, 32, 32),
                Inception(256, 128, 128, 192, 32, 96, 64),
                nn.MaxPool2d(3, stride=2, padding=1),
                Inception(480, 192, 96, 208, 16, 48, 64),
                Inception(512, 160, 112, 224, 24, 64, 64),
                Inception(512, 128, 128, 256, 24, 64, 64),
                Inception(512, 112, 144, 288, 32, 64, 64),
                Inception(528, 256, 160, 320, 32, 128, 128),
                nn.MaxPool2d(3, stride=2, padding=1),
                Inception(832, 256, 160, 320, 32, 128, 128),
                Inception(832, 384, 192, 384, 48, 128, 128),
                nn.AvgPool2d(8, stride=1),
            )
            self.linear = nn.Linear(1024, 10)

        def forward(self, x: Any) -> Any:
            out = self.layers(x)
            return self.linear(out.view(out.shape[0], -1))

    return GoogLeNet()
