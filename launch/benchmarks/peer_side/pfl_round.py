"""Rounds of FedAvg in pfl's simulation, one at each request of `launch.benchmark`.

The clients train SimCLR, or the classifier of pfl-research's own CIFAR-10 benchmark. Runs in an
environment with `pfl_requirements.txt`.

On a CPU, each of several processes trains its share of the clients, and PyTorch adds up their
updates. The first process starts the others, which run this program too.
"""

import os
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import torch
import torch_cnn
import torch_program
import torch_simclr
from step_requests import Requests

_FOREVER = 10**6


def main() -> None:
    requests, others = Requests(), []
    processes = requests.settings["actors"]
    if processes > 1 and "RANK" not in os.environ:
        os.environ.update(_environment(processes))
        others = [_start_other(rank, requests.text) for rank in range(1, processes)]
        os.environ.update({"RANK": "0", "LOCAL_RANK": "0"})

    def pass_on() -> None:
        for other in others:
            print(file=other.stdin, flush=True)

    def end_others() -> None:
        for other in others:
            other.kill()

    requests.listen(pass_on, end_others)
    _simulate(requests)


def _environment(processes: int) -> dict[str, str]:
    """The variables by which PyTorch's launcher describes a group of processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "benchmark",
    }


def _start_other(rank: int, text: str) -> subprocess.Popen:
    """Starts this program as another process of the group."""
    other = subprocess.Popen(
        [sys.executable, *sys.argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
    )
    print(text, file=other.stdin, flush=True)
    return other


def _simulate(requests: Requests) -> None:
    settings = requests.settings
    os.environ["PFL_PYTORCH_DEVICE"] = settings["device"]
    device = torch_program.prepare(settings)
    packages = ("pfl", "torch", "numpy")
    images = np.load(settings["images"], mmap_mode="c")
    data = [torch.from_numpy(images).to(device)]
    if settings["objective"] == "cross_entropy":
        module = torch_cnn.CNN().to(device)
        facts = torch_program.load_reference(module, module.reference_loss, settings, packages)
        labels = np.load(settings["labels"])
        data = [torch_cnn.pixels(data[0]), torch.from_numpy(labels).to(device)]
    else:
        module = torch_program.place(_SimCLR(settings, device), device)
        facts = torch_simclr.load_reference(module, settings, packages)
    module.metrics = lambda *batch: {}  # Nothing is evaluated.
    callback = _round_on_request(facts, requests, device)
    _run(module, _clients(data, settings), settings, callback)


def _run(module: torch.nn.Module, clients, settings: dict[str, Any], callback) -> None:
    """Runs rounds of FedAvg, without end."""
    # pfl joins the group of processes when it is imported.
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    batch_size = settings["batch_size"]
    batches = settings["samples"] // (batch_size or settings["samples"])
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=_FOREVER,
            evaluation_frequency=_FOREVER,
            train_cohort_size=settings["cohort"] or settings["clients"],
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=clients, val_data=clients),
        PyTorchModel(
            module,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
        ),
        NNTrainHyperParams(
            local_num_epochs=settings["steps"] // batches,
            local_learning_rate=settings["learning_rate"],
            local_batch_size=batch_size or None,
        ),
        callbacks=[callback],
    )


def _clients(data: list[torch.Tensor], settings: dict[str, Any]):
    """The clients and their equal shares of the data, a `FederatedDataset`."""
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler

    count = settings["samples"]

    class Shuffled(Dataset):
        """A client's images, which every pass goes through in a new order."""

        def iter(self, batch_size):
            (images,) = self.raw_data
            order = torch.randperm(len(images), device=images.device)
            for batch in order.split(batch_size or len(images)):
                yield (images[batch],)

    def dataset(client: int) -> Dataset:
        own = tuple(values[client * count : (client + 1) * count] for values in data)
        # pfl's own benchmark does not shuffle.
        return (Dataset if len(own) > 1 else Shuffled)(own, user_id=str(client))

    kind = "random" if settings["cohort"] else "minimize_reuse"
    return FederatedDataset(dataset, get_user_sampler(kind, range(settings["clients"])))


def _round_on_request(facts: dict[str, Any], requests: Requests, device: torch.device):
    """The callback that replies at the end of each round, and waits for the next request."""
    from pfl.callback.base import TrainingProcessCallback
    from pfl.metrics import Metrics

    class RoundOnRequest(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            torch_program.synchronize(device)
            requests.reply(None if central_iteration else facts)
            return False, Metrics()

    return RoundOnRequest()


class _SimCLR(torch_simclr.SimCLR):
    """The model, with the loss that pfl asks for."""

    def __init__(self, settings: dict[str, Any], device: torch.device):
        super().__init__(**settings["model"])
        self._views, self._settings = torch_simclr.Views(**settings["views"]), settings
        self._generator = torch.Generator(device).manual_seed(int(os.environ.get("RANK", "0")))

    def loss(self, images: torch.Tensor) -> torch.Tensor:
        x = torch_simclr.two_views(images, self._views, self._generator)
        return torch_simclr.loss_of_views(self, x, self._settings)


if __name__ == "__main__":
    main()
