"""Rounds of FedAvg with SimCLR in Flower's simulation, one at each request of `launch.benchmark`.

Runs in an environment with `flower_requirements.txt`. Standard input: a line of settings as JSON
(see `launch.benchmarks.peers`), then a line for each requested round; the simulation ends with the
input. Standard output, lines of JSON: facts after the first round, then {"seconds": ...} after each
requested round.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from typing import Any, TextIO

import flower_client
import ray
import torch_program
import torch_simclr
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

_FOREVER = 10**6


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Flower and Ray print to standard error instead.
    settings = sys.stdin.readline().strip()
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    try:
        _simulate(settings, requests, replies)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # A plain exit would wait for Flower's threads, which wait for clients.


def _listen(requests: queue.Queue) -> None:
    """Passes on requests; ends the process at the end of the input, even during a round."""
    for line in sys.stdin:
        requests.put(line)
    ray.shutdown()
    os._exit(0)  # A plain exit would wait for Flower's threads, which wait for clients.


def _simulate(text: str, requests: queue.Queue, replies: TextIO) -> None:
    """Runs the simulation; `text` is the settings as JSON."""
    settings = json.loads(text)
    torch_program.prepare(settings)
    model = flower_client.build_model(text)
    facts = torch_simclr.load_reference(model, settings, ("flwr", "ray", "torch", "numpy"))
    server = ServerApp()

    @server.main()
    def run_server(grid: Grid, context: Context) -> None:
        clients = settings["clients"]
        strategy = _AllClients(
            fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        strategy.start(
            grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=_FOREVER,
            train_config=ConfigRecord({"settings": text}),
            evaluate_fn=_RoundOnRequest(requests, replies, facts),
        )

    run_simulation(
        server_app=server,
        client_app=flower_client.app,
        num_supernodes=settings["clients"],
        backend_config={
            "client_resources": {
                "num_cpus": settings["threads"],
                "num_gpus": 1 / settings["actors"] if settings["device"] == "cuda" else 0.0,
            },
            "init_args": {
                "num_cpus": settings["actors"] * settings["threads"],
                "_temp_dir": settings["temp_dir"],
                "_node_ip_address": "127.0.0.1",
            },
        },
    )


class _AllClients(FedAvg):
    """FedAvg that fails if a client fails, because a round of fewer clients takes less time."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        replies = list(replies)
        for reply in replies:
            if reply.has_error():
                raise RuntimeError(f"a client failed: {reply.error.reason}")
        if len(replies) < self.min_train_nodes:
            raise RuntimeError(f"{len(replies)} of {self.min_train_nodes} clients have answered")
        return super().aggregate_train(server_round, replies)


class _RoundOnRequest:
    """Replies with the seconds of the last round, and waits for the next request.

    Flower calls it to evaluate the weights, before the first round and after each one. A round's
    seconds thus include all of Flower's work between two calls.
    """

    def __init__(self, requests: queue.Queue, replies: TextIO, facts: dict[str, Any]):
        self._requests, self._replies, self._facts = requests, replies, facts
        self._start = 0.0

    def __call__(self, server_round: int, arrays: ArrayRecord) -> None:
        seconds = time.monotonic() - self._start
        if server_round:
            reply = {"seconds": seconds} if server_round > 1 else self._facts
            print(json.dumps(reply), file=self._replies, flush=True)
            self._requests.get()
        self._start = time.monotonic()


if __name__ == "__main__":
    main()
