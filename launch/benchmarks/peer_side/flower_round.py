"""Rounds of FedAvg with SimCLR in Flower's simulation, one at each request of `launch.benchmark`.

Runs in an environment with `flower_requirements.txt`.
"""

import os
import sys
import traceback
from collections.abc import Iterable
from typing import Any

import flower_client
import ray
import torch_program
import torch_simclr
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from step_requests import Requests

_FOREVER = 10**6


def main() -> None:
    requests = Requests()
    requests.listen(at_end=ray.shutdown)
    try:
        _simulate(requests)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # A plain exit would wait for Flower's threads, which wait for clients.


def _simulate(requests: Requests) -> None:
    """Runs the simulation."""
    settings = requests.settings
    torch_program.prepare(settings)
    model = flower_client.build_model(requests.text)
    facts = torch_simclr.load_reference(model, settings, ("flwr", "ray", "torch", "numpy"))
    server = ServerApp()

    def evaluate(server_round: int, arrays: ArrayRecord) -> None:
        """Replies at the end of a round, instead of evaluating the weights.

        Flower calls it before the first round and after each one. A round's seconds thus include
        all of Flower's work between two calls.
        """
        if server_round:
            requests.reply(facts if server_round == 1 else None)

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
            train_config=ConfigRecord({"settings": requests.text}),
            evaluate_fn=evaluate,
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


if __name__ == "__main__":
    main()
