"""Centralized steps of SimCLR in PyTorch, one at each request of `launch.benchmark`.

Runs in an environment with `torch_requirements.txt`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch_program
import torch_simclr
from step_requests import Requests

# What is compiled. The random order of the colour adjustments is drawn outside of it.
_COMPILED = ("cropped", "adjusted", "finished", "loss_of_views")


def main() -> None:
    requests = Requests()
    requests.listen()
    settings = requests.settings
    device = torch_program.prepare(settings)
    model = torch_program.place(torch_simclr.SimCLR(**settings["model"]), device)
    facts = torch_simclr.load_reference(model, settings, ("torch", "numpy"))
    step = _step(model, settings, device)
    step()
    requests.reply(facts)
    while True:
        step()
        torch_program.synchronize(device)
        requests.reply()


def _step(
    model: torch.nn.Module, settings: dict[str, Any], device: torch.device
) -> Callable[[], None]:
    """A step of SGD on all images, in a new order and with new views."""
    if settings["compile"]:
        for name in _COMPILED:
            setattr(torch_simclr, name, torch.compile(getattr(torch_simclr, name)))
    images = torch.from_numpy(np.load(settings["images"])).to(device)
    views = torch_simclr.Views(**settings["views"])
    generator = torch.Generator(device).manual_seed(0)
    optimizer = torch.optim.SGD(
        model.parameters(), settings["learning_rate"], settings["momentum"], fused=True
    )

    def step() -> None:
        order = torch.randperm(len(images), generator=generator, device=device)
        x = torch_simclr.two_views(images[order], views, generator)
        optimizer.zero_grad()
        torch_simclr.loss_of_views(model, x, settings).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
