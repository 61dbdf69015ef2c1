"""SimCLR in PyTorch: the benchmark's model, views, losses and local steps; needs torch.

The mathematics of `tff_ssl.models`, `tff_ssl.views` (policy `byol_no_blur`) and `tff_ssl.losses`,
written for PyTorch's fused kernels, with the views of a batch at once.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch_program
from torch import Tensor, nn
from torch.nn import functional

_NORM_EPSILON = 1e-5
_WEIGHT_EPSILON = 1e-10
_VARIANCE_EPSILON = 1e-6  # Of CCO.


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


# --- Views ----------------------------------------------------------------------------------------


def two_views(images: Tensor, policy: Views, generator: torch.Generator) -> Tensor:
    """Two random views of each image: the first views of all images, then the second ones.

    Random numbers are drawn for each image, except for the order of the colour adjustments, which a
    batch shares as in torchvision; `tff_ssl` draws the order for each image too. The order is drawn
    on the CPU, since the program would have to wait for it on a GPU.

    Args:
      images: uint8 [n, height, width, 3].
      generator: Source of the other draws, on the images' device.

    Returns:
      float32 [2 n, 3, height, width] in [-1, 1].
    """
    x = images.permute(0, 3, 1, 2).to(torch.float32).mul_(1 / 255).repeat(2, 1, 1, 1)
    draws = torch.rand(12, len(x), 1, 1, 1, generator=generator, device=x.device)
    x = cropped(x, policy, draws[:5, :, 0, 0, 0])
    jitter = draws[5] < policy.jitter
    # Amounts of 0 leave an image without jitter as it is.
    widths = (policy.brightness, policy.contrast, policy.saturation, policy.hue)
    amounts = [
        torch.where(jitter, (2 * draw - 1) * width, 0.0)
        for draw, width in zip(draws[6:10], widths, strict=True)
    ]
    for index in torch.randperm(4).tolist():
        x = adjusted(x, index, amounts[index])
    return finished(x, policy, draws[10:])


def adjusted(x: Tensor, index: int, amount: Tensor) -> Tensor:
    """Images after a colour adjustment: 0 brightness, 1 contrast, 2 saturation, 3 hue."""
    return (torch.add, _contrast, _saturation, _hue)[index](x, amount).clamp(0, 1)


def finished(x: Tensor, policy: Views, draws: Tensor) -> Tensor:
    """Views in [-1, 1], some without colour and some solarized."""
    luma = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    x = torch.where(draws[0] < policy.grayscale, luma, x)
    is_first = (torch.arange(len(x), device=x.device) < len(x) // 2).view(-1, 1, 1, 1)
    share = torch.where(is_first, *policy.solarize)
    x = torch.where((draws[1] < share) & (x >= 0.5), 1 - x, x)
    return x * 2 - 1


def cropped(x: Tensor, policy: Views, draws: Tensor) -> Tensor:
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
    distance = hue - 2.0 * torch.arange(3, device=x.device).view(1, 3, 1, 1)
    distance = (distance - 6 * (distance / 6).round()).abs()
    return value - chroma * (distance - 1).clamp(0, 1)


# --- Training -------------------------------------------------------------------------------------


def encode(model: SimCLR, x: Tensor, precision: str) -> Tensor:
    """Encodings, float32 [n, d], with matrix products and convolutions in `precision`."""
    with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        z = model(x)
    return z.float()


def nt_xent(z: Tensor, temperature: float) -> Tensor:
    """Mean NT-Xent of z, float [2 n, d]: the first views of n images, then their second views."""
    z = functional.normalize(z)
    similarity = (z @ z.T / temperature).fill_diagonal_(-math.inf)
    positives = torch.arange(len(z), device=z.device).roll(len(z) // 2)
    return functional.cross_entropy(similarity, positives)


def cco(z: Tensor, lambda_: float) -> Tensor:
    """CCO (DCCO paper, Eq. 1) of z, float [2 n, d], ordered as in `nt_xent`."""
    f, g = z.chunk(2)
    f, g = f - f.mean(0), g - g.mean(0)
    f, g = (e * (e.square().mean(0) + _VARIANCE_EPSILON).rsqrt() for e in (f, g))
    correlation = f.T @ g / len(f)
    diagonal = correlation.diagonal()
    off_diagonal = (correlation - torch.diag(diagonal)).square().sum() / (len(diagonal) - 1)
    return (1 - diagonal).square().sum() + lambda_ * off_diagonal


def loss_of_views(model: nn.Module, x: Tensor, settings: dict[str, Any]) -> Tensor:
    """The objective of the settings on views, float [2 n, 3, height, width]."""
    z = encode(model, x, settings["precision"])
    if settings["objective"] == "cco":
        return cco(z, settings["lambda_"])
    return nt_xent(z, settings["temperature"])


def load_reference(
    model: SimCLR, settings: dict[str, Any], packages: Sequence[str]
) -> dict[str, Any]:
    """Loads the reference's weights; see `torch_program.load_reference`."""
    in_float32 = settings | {"precision": "float32"}

    def loss(batch: dict[str, Tensor]) -> Tensor:
        x = torch.cat([batch["x1"], batch["x2"]]).permute(0, 3, 1, 2)
        return loss_of_views(model, x, in_float32)

    return torch_program.load_reference(model, loss, settings, packages)


def local_steps(
    model: SimCLR, images: Tensor, policy: Views, settings: dict[str, Any], seed: int
) -> float:
    """Trains `model` in place with plain SGD on a client's images; returns the mean loss.

    Args:
      images: The client's images on the model's device, uint8 [n, height, width, 3].
      settings: `steps`, in passes over the images, each in a new order; `batch_size`, the number of
        images of a step, 0 for all; `learning_rate`; and those of `loss_of_views`.
      seed: Seed of the order of images and of the views.
    """
    generator = torch.Generator(images.device).manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), settings["learning_rate"])
    steps, batch_size = settings["steps"], settings["batch_size"]
    batches = max(len(images) // batch_size, 1) if batch_size else 1
    total = torch.zeros((), device=images.device)
    for step in range(steps):
        if step % batches == 0:
            order = torch.randperm(len(images), generator=generator, device=images.device)
        batch = images[order.tensor_split(batches)[step % batches]]
        loss = loss_of_views(model, two_views(batch, policy, generator), settings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / steps
