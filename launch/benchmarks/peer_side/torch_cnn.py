"""The classifier of pfl-research's CIFAR-10 benchmark in PyTorch; needs torch.

Its `simple_cnn`: two convolutions, pooling, and two dense layers, with dropout.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class CNN(nn.Module):
    """Float [n, 32, 32, 3] -> logits, float [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(14 * 14 * 64, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.permute(0, 3, 1, 2))

    def reference_loss(self, batch: dict[str, Tensor]) -> Tensor:
        """The mean cross entropy of the batch `x`, `y`, without dropout."""
        self.eval()
        return functional.cross_entropy(self(batch["x"]), batch["y"])

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean cross entropy of a batch, with dropout."""
        self.train()
        return functional.cross_entropy(self(x), y)


def pixels(images: Tensor) -> Tensor:
    """Inputs in [-1, 1] of images, uint8."""
    return images.to(torch.float32).div_(127.5).sub_(1)
