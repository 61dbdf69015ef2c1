"""Rounds of FedAvg with SimCLR in pfl's simulation, one at each request of `launch.benchmark`.

Runs in an environment with `pfl_requirements.txt`. Standard input: a line of settings as JSON (see
`launch.benchmarks.peers`), then a line for each requested round; the simulation ends with the
input. Standard output, lines of JSON: facts after the first round, then {"seconds": ...} after each
requested round.

Each of several processes trains its share of the clients, and PyTorch adds up their updates. The
first process starts the others, which run this program too.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any, TextIO

import numpy as np
import torch
import torch_simclr

_FOREVER = 10**6


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # pfl prints to standard error instead.
    text = sys.stdin.readline().strip()
    settings = json.loads(text)
    processes = settings["actors"]
    if processes > 1 and "RANK" not in os.environ:
        os.environ.update(_environment(processes))
        others = [_start_other(rank, text) for rank in range(1, processes)]
        os.environ.update({"RANK": "0", "LOCAL_RANK": "0"})
    else:
        others = []
    requests = _Requests(others)
    threading.Thread(target=requests.listen, daemon=True).start()
    _simulate(settings, requests, replies)


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
    assert other.stdin
    print(text, file=other.stdin, flush=True)
    return other


class _Requests:
    """The requested rounds, which are passed on to the other processes of the group."""

    def __init__(self, others: list[subprocess.Popen]):
        self._others = others
        self._pending = threading.Semaphore(0)

    def listen(self) -> None:
        """Passes on requests; ends the process at the end of the input, even during a round."""
        for _ in sys.stdin:
            for other in self._others:
                assert other.stdin
                print(file=other.stdin, flush=True)
            self._pending.release()
        for other in self._others:
            other.kill()
        os._exit(0)

    def wait(self) -> None:
        """Waits for the next request."""
        self._pending.acquire()


def _simulate(settings: dict[str, Any], requests: _Requests, replies: TextIO) -> None:
    torch.set_num_threads(settings["threads"])
    module = _Module(settings).to(memory_format=torch.channels_last)
    facts = torch_simclr.load_reference(module, settings, ("pfl", "torch", "numpy"))
    _run(module, facts, settings, requests, replies)


def _run(module: "_Module", facts, settings, requests: _Requests, replies: TextIO) -> None:
    """Runs rounds of the module as they are requested; replies with the facts after the first."""
    # pfl joins the group of processes when it is imported.
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    clients, batch_size = _clients(module, settings), settings["batch_size"]
    batches = settings["samples"] // (batch_size or settings["samples"])
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=_FOREVER,
            evaluation_frequency=_FOREVER,
            train_cohort_size=settings["clients"],
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
        callbacks=[_round_on_request(facts, requests, replies)],
    )


def _clients(module: "_Module", settings: dict[str, Any]):
    """The clients and their images, a `FederatedDataset`."""
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler

    images = np.load(settings["images"], mmap_mode="r")
    count = settings["samples"]

    class Shuffled(Dataset):
        """A client's images, which every pass goes through in a new order."""

        def iter(self, batch_size):
            (data,) = self.raw_data
            order = torch.randperm(len(data), generator=module.generator)
            for batch in order.split(batch_size or len(data)):
                yield (data[batch],)

    def dataset(client: int) -> Dataset:
        own = np.array(images[client * count : (client + 1) * count])
        return Shuffled((torch.from_numpy(own),), user_id=str(client))

    sampler = get_user_sampler("minimize_reuse", range(settings["clients"]))
    return FederatedDataset(dataset, sampler)


def _round_on_request(facts: dict[str, Any], requests: _Requests, replies: TextIO):
    """The callback that replies with the seconds of each round, and waits for the next request."""
    from pfl.callback.base import TrainingProcessCallback
    from pfl.metrics import Metrics

    class RoundOnRequest(TrainingProcessCallback):
        def on_train_begin(self, *, model):
            self._start = time.monotonic()
            return Metrics()

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            seconds = time.monotonic() - self._start
            reply = {"seconds": seconds} if central_iteration else facts
            print(json.dumps(reply), file=replies, flush=True)
            requests.wait()
            self._start = time.monotonic()
            return False, Metrics()

    return RoundOnRequest()


class _Module(torch_simclr.SimCLR):
    """The model, with the methods that pfl asks for."""

    def __init__(self, settings: dict[str, Any]):
        super().__init__(**settings["model"])
        self._views = torch_simclr.Views(**settings["views"])
        self._temperature, self._precision = settings["temperature"], settings["precision"]
        self.generator = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))

    def loss(self, images: torch.Tensor) -> torch.Tensor:
        x = torch_simclr.two_views(images, self._views, self.generator)
        z = torch_simclr.encode(self, x, self._precision)
        return torch_simclr.nt_xent(z, self._temperature)

    def metrics(self, images: torch.Tensor) -> dict[str, Any]:
        return {}  # Nothing is evaluated.


if __name__ == "__main__":
    main()
