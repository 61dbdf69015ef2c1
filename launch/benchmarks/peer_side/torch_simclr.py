"""SimCLR on a client in PyTorch: the benchmark's model, views, loss and local steps; needs torch.

The mathematics of `tff_ssl.models`, `tff_ssl.views` (policy `byol_no_blur`) and
`tff_ssl.losses.nt_xent`, written for PyTorch's fused kernels, with the views of a batch at once.
"""

import importlib.metadata
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

_NORM_EPSILON = 1e-5
_WEIGHT_EPSILON = 1e-10


class Views(NamedTuple):
    """Ranges and probabilities of the random steps; the fields are those of `ViewPolicy`."""

    crop_area: Sequence[float]
    crop_aspect: Sequence[float]
    flip: float
    jitter: float
    brightness: float
    contrast: float
    saturation: float
    hue: float
    grayscale: float
    solarize: Sequence[float]


# --- Model ----------------------------------------------------------------------------------------


def _standardized(weight: Tensor) -> Tensor:
    """Weight standardization: mean 0 and deviation 1 for each output unit."""
    flat = weight.flatten(1)
    return functional.layer_norm(flat, flat.shape[1:], eps=_WEIGHT_EPSILON).view_as(weight)


class _Conv(nn.Module):
    """A convolution without bias, with standardized kernel and TensorFlow's "SAME" padding."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, size, size))
        self._size, self._stride = size, stride

    def forward(self, x: Tensor) -> Tensor:
        padding = (self._size - 1) // 2
        if self._stride == 2 and self._size == 3:
            # TensorFlow pads images of even height and width at the right and the bottom only.
            x, padding = functional.pad(x, (0, 1, 0, 1)), 0
        return functional.conv2d(x, _standardized(self.weight), None, self._stride, padding)


class _Linear(nn.Module):
    """A linear layer without bias."""

    def __init__(self, inputs: int, outputs: int, standardize: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self._standardize = standardize

    def forward(self, x: Tensor) -> Tensor:
        weight = _standardized(self.weight) if self._standardize else self.weight
        return functional.linear(x, weight)


class _Block(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, groups: int):
        super().__init__()
        self.main = nn.Sequential(
            _Conv(inputs, width, 3, stride),
            nn.GroupNorm(groups, width, _NORM_EPSILON),
            nn.ReLU(inplace=True),
            _Conv(width, width, 3),
            nn.GroupNorm(groups, width, _NORM_EPSILON),
        )
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != width:
            self.shortcut = nn.Sequential(
                _Conv(inputs, width, 1, stride), nn.GroupNorm(groups, width, _NORM_EPSILON)
            )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.main(x) + self.shortcut(x))


class SimCLR(nn.Module):
    """A residual network for small images with group norm, and a projector: x -> z.

    The parameters are in the order of `tff_ssl`'s weights, with PyTorch's axes.
    """

    def __init__(
        self, blocks: Sequence[int], widths: Sequence[int], groups: int, projector: Sequence[int]
    ):
        super().__init__()
        layers: list[nn.Module] = [
            _Conv(3, widths[0], 3),
            nn.GroupNorm(groups, widths[0], _NORM_EPSILON),
            nn.ReLU(inplace=True),
        ]
        inputs = widths[0]
        for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                layers.append(_Block(inputs, width, stride, groups))
                inputs = width
        self.encoder = nn.Sequential(*layers)
        layers = []
        for width in projector[:-1]:
            layers += [
                _Linear(inputs, width, standardize=True),
                nn.GroupNorm(groups, width, _NORM_EPSILON),
                nn.ReLU(inplace=True),
            ]
            inputs = width
        self.projector = nn.Sequential(*layers, _Linear(inputs, projector[-1], standardize=False))

    def forward(self, x: Tensor) -> Tensor:
        """Float [n, 3, height, width] -> float [n, projector[-1]]."""
        return self.projector(self.encoder(x).mean((2, 3)))

    def load(self, weights: Sequence[np.ndarray]) -> None:
        """Loads weights of `tff_ssl`, in its order and with its axes."""
        axes = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
        with torch.no_grad():
            for parameter, weight in zip(self.parameters(), weights, strict=True):
                transposed = torch.from_numpy(weight.transpose(axes[weight.ndim]).copy())
                if transposed.shape != parameter.shape:
                    raise ValueError(f"weights of {transposed.shape} for {parameter.shape}")
                parameter.copy_(transposed)

    @property
    def parameter_count(self) -> int:
        """Number of weights."""
        return sum(parameter.numel() for parameter in self.parameters())


# --- Views ----------------------------------------------------------------------------------------


def two_views(images: Tensor, policy: Views, generator: torch.Generator) -> Tensor:
    """Two random views of each image: the first views of all images, then the second ones.

    Random numbers are drawn for each image, except for the order of the colour adjustments, which a
    batch shares as in torchvision; `tff_ssl` draws the order for each image too.

    Args:
      images: uint8 [n, height, width, 3].

    Returns:
      float32 [2 n, 3, height, width] in [-1, 1].
    """
    x = images.permute(0, 3, 1, 2).to(torch.float32).mul_(1 / 255).repeat(2, 1, 1, 1)
    draws = torch.rand(12, len(x), 1, 1, 1, generator=generator)
    x = _cropped(x, policy, draws[:5, :, 0, 0, 0])
    jitter = draws[5] < policy.jitter
    # Amounts of 0 leave an image without jitter as it is.
    widths = (policy.brightness, policy.contrast, policy.saturation, policy.hue)
    amounts = [
        torch.where(jitter, (2 * draw - 1) * width, 0.0)
        for draw, width in zip(draws[6:10], widths, strict=True)
    ]
    adjustments = (torch.add, _contrast, _saturation, _hue)
    for index in torch.randperm(4, generator=generator).tolist():
        x = adjustments[index](x, amounts[index]).clamp_(0, 1)
    luma = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    x = torch.where(draws[10] < policy.grayscale, luma, x)
    share = torch.tensor(policy.solarize).repeat_interleave(len(images)).view(-1, 1, 1, 1)
    x = torch.where((draws[11] < share) & (x >= 0.5), 1 - x, x)
    return x * 2 - 1


def _cropped(x: Tensor, policy: Views, draws: Tensor) -> Tensor:
    """A random box of each image, flipped or not, resized to the image's own size."""
    height, width = x.shape[2:]
    area = policy.crop_area[0] + (policy.crop_area[1] - policy.crop_area[0]) * draws[0]
    # The aspect ratio is log-uniform over those of boxes that fit into the image.
    log_area, log_image = area.log(), math.log(width / height)
    low, high = (math.log(ratio) for ratio in policy.crop_aspect)
    high = (log_image - log_area).clamp(max=high)
    low = torch.minimum((log_image + log_area).clamp(min=low), high)
    aspect = (low + (high - low) * draws[1]).exp()
    pixels = area * (height * width)
    box_width = (pixels * aspect).sqrt().clamp(max=width)
    box_height = (pixels / aspect).sqrt().clamp(max=height)
    left, top = draws[2] * (width - box_width), draws[3] * (height - box_height)
    sign = torch.where(draws[4] < policy.flip, -1.0, 1.0)
    zero = torch.zeros_like(area)
    rows = (
        *(sign * box_width / width, zero, (2 * left + box_width) / width - 1),
        *(zero, box_height / height, (2 * top + box_height) / height - 1),
    )
    boxes = torch.stack(rows, 1).view(-1, 2, 3)
    grid = functional.affine_grid(boxes, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, padding_mode="border", align_corners=False)


def _contrast(x: Tensor, amount: Tensor) -> Tensor:
    """Scales the distance from the mean of each channel by 1 + amount."""
    return torch.lerp(x.mean((2, 3), keepdim=True).expand_as(x), x, 1 + amount)


def _saturation(x: Tensor, amount: Tensor) -> Tensor:
    """Scales the saturation of the HSV model by 1 + amount, up to a saturation of 1."""
    value, smallest = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    # A gray pixel has no saturation to scale.
    limit = value / (value - smallest).clamp(min=1e-12)
    return value - (value - x) * torch.minimum(1 + amount, limit)


def _hue(x: Tensor, amount: Tensor) -> Tensor:
    """Adds an amount, in turns, to the hue of the HSV model."""
    value = x.amax(1, keepdim=True)
    chroma = value - x.amin(1, keepdim=True)
    red, green, blue = x.split(1, 1)
    sixths = torch.where(
        value == red,
        green - blue,
        torch.where(value == green, blue - red + 2 * chroma, red - green + 4 * chroma),
    )
    hue = sixths / chroma.clamp(min=1e-12) + 6 * amount
    # A channel is largest at up to 1 sixth of a turn from its own hue, and smallest from 2 on.
    distance = hue - torch.tensor([0.0, 2.0, 4.0]).view(1, 3, 1, 1)
    distance = (distance - 6 * (distance / 6).round()).abs()
    return value - chroma * (distance - 1).clamp(0, 1)


# --- Training -------------------------------------------------------------------------------------


def encode(model: SimCLR, x: Tensor, precision: str) -> Tensor:
    """Encodings, float32 [n, d], with matrix products and convolutions in `precision`."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        z = model(x)
    return z.float()


def nt_xent(z: Tensor, temperature: float) -> Tensor:
    """Mean NT-Xent of z, float [2 n, d]: the first views of n images, then their second views."""
    z = functional.normalize(z)
    similarity = (z @ z.T / temperature).fill_diagonal_(-math.inf)
    return functional.cross_entropy(similarity, torch.arange(len(z)).roll(len(z) // 2))


def load_reference(
    model: SimCLR, settings: dict[str, Any], packages: Sequence[str]
) -> dict[str, Any]:
    """Loads the reference's weights; facts on the model with its views, and packages' versions."""
    with np.load(settings["reference"]) as stored:
        model.load([stored[f"weight{i}"] for i in range(len(list(model.parameters())))])
        x = torch.from_numpy(np.concatenate([stored["x1"], stored["x2"]])).permute(0, 3, 1, 2)
    loss, norm = loss_and_gradient_norm(model, x, settings["temperature"])
    versions = {name: importlib.metadata.version(name) for name in packages}
    facts = {"parameters": model.parameter_count, "loss": loss, "gradient_norm": norm}
    return facts | {"versions": versions}


def loss_and_gradient_norm(model: SimCLR, x: Tensor, temperature: float) -> tuple[float, float]:
    """NT-Xent of views [2 n, 3, height, width], and the norm of its gradient in all weights."""
    loss = nt_xent(model(x), temperature)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), math.sqrt(sum(gradient.square().sum().item() for gradient in gradients))


def local_steps(
    model: SimCLR,
    images: Tensor,
    policy: Views,
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    temperature: float,
    precision: str,
    seed: int,
) -> float:
    """Trains `model` in place with plain SGD on a client's images; returns the mean loss.

    Args:
      images: The client's images, uint8 [n, height, width, 3].
      steps: Number of steps, in passes over the images, each in a new order.
      batch_size: Number of images of a step; 0 for all.
      precision: `float32`, or `bfloat16` for PyTorch's automatic mixed precision.
      seed: Seed of the order of images and of the views.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), learning_rate)
    batches = max(len(images) // batch_size, 1) if batch_size else 1
    total = 0.0
    for step in range(steps):
        if step % batches == 0:
            order = torch.randperm(len(images), generator=generator).tensor_split(batches)
        x = two_views(images[order[step % batches]], policy, generator)
        loss = nt_xent(encode(model, x, precision), temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps
