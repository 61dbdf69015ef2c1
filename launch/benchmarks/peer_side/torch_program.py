"""The device, the weights and the reference of a peer's program in PyTorch; needs torch."""

import importlib.metadata
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def prepare(settings: dict[str, Any]) -> torch.device:
    """The device of the settings, after setting the number of threads.

    Products of float32 are exact until `use_products`.
    """
    torch.set_num_threads(settings["threads"])
    _allow_tf32(False)
    return torch.device(settings["device"])


def use_products(settings: dict[str, Any]) -> None:
    """From now on, float32 is multiplied in TF32 if the settings say so."""
    _allow_tf32(settings["tf32"])


def _allow_tf32(allowed: bool) -> None:
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def place(module: nn.Module, device: torch.device) -> nn.Module:
    """The module on the device, in its fastest layout: PyTorch's group norm on a GPU has one."""
    on_cpu = device.type == "cpu"
    return module.to(
        device, memory_format=torch.channels_last if on_cpu else torch.contiguous_format
    )


def synchronize(device: torch.device) -> None:
    """Waits until the device has computed everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def load_reference(
    module: nn.Module,
    loss: Callable[[dict[str, Tensor]], Tensor],
    settings: dict[str, Any],
    packages: Sequence[str],
) -> dict[str, Any]:
    """Loads the reference's weights; facts on the module with its batch, and packages' versions.

    Args:
      loss: Function of the arrays of the reference's batch, by name, on the device.
    """
    parameters = list(module.parameters())
    with np.load(settings["reference"]) as stored:
        load_weights(module, [stored[f"weight{i}"] for i in range(len(parameters))])
        batch = {
            name: torch.from_numpy(stored[name]).to(parameters[0].device)
            for name in stored
            if not name.startswith("weight")
        }
    value, norm = loss_and_gradient_norm(module, loss(batch))
    use_products(settings)
    return {
        "parameters": sum(parameter.numel() for parameter in parameters),
        "loss": value,
        "gradient_norm": norm,
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def loss_and_gradient_norm(module: nn.Module, loss: Tensor) -> tuple[float, float]:
    """A loss, and the norm of its gradient in all weights."""
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    return loss.item(), math.sqrt(sum(gradient.square().sum().item() for gradient in gradients))


def load_weights(module: nn.Module, weights: Sequence[np.ndarray]) -> None:
    """Loads weights of TensorFlow, in the module's order and with TensorFlow's axes."""
    axes = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            transposed = torch.from_numpy(weight.transpose(axes[weight.ndim]).copy())
            if transposed.shape != parameter.shape:
                raise ValueError(f"weights of {transposed.shape} for {parameter.shape}")
            parameter.copy_(transposed)
