"""The benchmark's client in Flower; in its own module, so that Ray's processes import it once."""

import functools
import json
from typing import Any

import numpy as np
import torch
import torch_program
import torch_simclr
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Trains on a client's images from the server's weights; replies with weights and loss."""
    config = message.content["config"]
    settings = json.loads(config["settings"])
    device = torch_program.prepare(settings)
    model = build_model(config["settings"])
    torch_program.use_products(settings)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    count, client = settings["samples"], context.node_config["partition-id"]
    images = np.array(_all_images(settings["images"])[client * count : (client + 1) * count])
    loss = torch_simclr.local_steps(
        model,
        torch.from_numpy(images).to(device),
        torch_simclr.Views(**settings["views"]),
        settings,
        seed=config["server-round"] * settings["clients"] + client,
    )
    metrics = MetricRecord({"loss": loss, "num-examples": count})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@functools.cache
def build_model(text: str) -> Any:
    """The model of the settings (JSON) on their device, built once in a process."""
    settings = json.loads(text)
    model = torch_simclr.SimCLR(**settings["model"])
    return torch_program.place(model, torch.device(settings["device"]))


@functools.cache
def _all_images(path: str) -> np.ndarray:
    """All clients' images, uint8 [clients * samples, h, w, 3]; read from the disk when used."""
    return np.load(path, mmap_mode="r")
