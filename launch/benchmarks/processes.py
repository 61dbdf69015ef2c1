"""Programs measured by `benchmark`, each in a process of its own."""

import datetime
import math
import multiprocessing
import os
import pathlib
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import numpy as np
import psutil

from launch.outputs import run_folder

_IMAGE = (32, 32, 3)
_POLL_SECONDS = 0.02
_MEGABYTE = 1e6


def output_folder(flag: str | None, script: str = "benchmark") -> pathlib.Path:
    """The folder of `--output_dir`, made; or a new one in results/."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = pathlib.Path(flag) if flag else pathlib.Path("results") / f"{script}-{now}"
    run_folder.make(folder)
    return folder


class Program(Protocol):
    """What is measured."""

    def step(self) -> float:
        """Performs a step; its seconds."""


class Child:
    """A process that performs one step whenever it is asked to.

    Attributes:
      facts: What its first step yields.
      first_seconds: From the start of the process to the end of its first step.
      pid: Its own.
    """

    def __init__(self, program: Callable[..., Generator[Any, None, None]], *arguments: Any):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, program, arguments))
        start = time.monotonic()
        self._process.start()
        theirs.close()
        self.pid = self._process.pid or 0
        self._watch = MemoryWatch(self.pid)
        self.facts = self._pipe.recv()
        self.first_seconds = time.monotonic() - start

    def step(self) -> float:
        """Performs a step; its seconds."""
        self._pipe.send("step")
        return self._pipe.recv()

    def peak_rss_mb(self) -> float:
        """Most memory held at once by the process and its children so far."""
        return self._watch.peak / _MEGABYTE

    def rss_mb(self) -> float:
        """Memory held now."""
        return _tree_rss(self.pid) / _MEGABYTE

    def close(self) -> None:
        """Ends the process."""
        self._watch.stop()
        self._pipe.close()
        self._process.join()


def _serve(
    pipe: Connection, program: Callable[..., Generator[Any, None, None]], arguments: tuple
) -> None:
    steps = program(*arguments)
    pipe.send(next(steps))
    try:
        while pipe.recv() == "step":
            start = time.monotonic()
            next(steps)
            pipe.send(time.monotonic() - start)
    except EOFError:
        steps.close()


class MemoryWatch:
    """Samples the resident memory of a process and its children."""

    def __init__(self, pid: int):
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(pid,), daemon=True)
        self._thread.start()

    def _run(self, pid: int) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            self.peak = max(self.peak, _tree_rss(pid))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def held(pid: int) -> dict[str, float]:
    """Memory in MB and open files of a process and its children now."""
    try:
        process = psutil.Process(pid)
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        tree = []
    return {"rss_mb": sum(map(_rss, tree)) / _MEGABYTE, "open_files": sum(map(_open_files, tree))}


def _open_files(process: psutil.Process) -> int:
    try:
        return process.num_fds()
    except psutil.NoSuchProcess:
        return 0


def flatness(
    looks: Sequence[Mapping[str, float]], seconds: Sequence[float], rounds: int
) -> dict[str, float]:
    """Medians over the first and the last tenth of a run, its first twentieth left out.

    Args:
      looks: What was held after `round` rounds; other names are the result's.
      seconds: Of each round.
      rounds: Of the run.

    Returns:
      `<name>_first_tenth` and `<name>_last_tenth` of each of the looks' names and of `seconds`.
    """
    start, tenth = rounds // 20, rounds // 10
    spans = {
        "first_tenth": range(start, start + tenth),
        "last_tenth": range(rounds - tenth, rounds),
    }
    result = {}
    for span, numbers in spans.items():
        result[f"seconds_{span}"] = statistics.median(seconds[i] for i in numbers)
        there = [look for look in looks if look["round"] in numbers]
        for name in looks[0].keys() - {"round"}:
            values = [look[name] for look in there]
            result[f"{name}_{span}"] = statistics.median(values) if values else math.nan
    return result


def _tree_rss(pid: int) -> int:
    try:
        process = psutil.Process(pid)
        tree = [process, *process.children(recursive=True)]
        return sum(_rss(p) for p in tree)
    except psutil.NoSuchProcess:
        return 0


def _rss(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0


def in_turn(programs: Mapping[str, Program], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each program's steps; the programs take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for child in programs.values():
        child.step()  # Memory pools and caches fill.
    for _ in range(repetitions):
        for name, child in programs.items():
            seconds[name].append(child.step())
    return seconds


def steady(child: Child, rounds: int) -> dict[str, Any]:
    """Memory and speed at the beginning and at the end of many rounds."""
    tenth = max(1, rounds // 10)
    seconds, memory = [], []
    for _ in range(rounds):
        seconds.append(child.step())
        memory.append(child.rss_mb())
    return {
        "rounds": rounds,
        "rss_mb_first_tenth": float(np.mean(memory[:tenth])),
        "rss_mb_last_tenth": float(np.mean(memory[-tenth:])),
        "seconds_first_tenth": float(np.median(seconds[:tenth])),
        "seconds_last_tenth": float(np.median(seconds[-tenth:])),
    }


class Network(NamedTuple):
    """What is trained: name of the encoder, widths of projector and predictor."""

    encoder: str
    projector: tuple[int, ...]
    predictor: tuple[int, ...] = ()


def quiet() -> None:
    """No chatter of TensorFlow's in a child."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import warnings

    warnings.filterwarnings("ignore")


def images(count: int, seed: int) -> np.ndarray:
    """Random ones, uint8 [count, 32, 32, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (count, *_IMAGE), np.uint8)


def model_and_views(network: Network, seed: int):
    """The network for `images`, and their two views."""
    from tff_ssl.models.dual_encoder import DualEncoder
    from tff_ssl.views import augmentation

    def two_views(images, example_ids, round_number):
        return augmentation.two_views(
            "byol_no_blur", images, example_ids, seed=seed, round_number=round_number
        )

    model = DualEncoder(network.encoder, _IMAGE, network.projector, network.predictor)
    return model, two_views


def centralized_step(
    samples: int, network: Network, seed: int, objective: str = "cco"
) -> Generator[None, None, None]:
    """The plain TensorFlow step on a whole batch; one step a turn."""
    for step in _plain_steps(samples, samples, network, seed, objective):
        step()
        yield


def plain_local_steps(
    objective: str,
    clients: int,
    samples: int,
    local_steps: int,
    batch_size: int,
    network: Network,
    seed: int,
) -> Generator[None, None, None]:
    """The local steps of all clients of a round in one plain TensorFlow loop; a round a turn."""
    batch_size = batch_size or samples
    steps = _plain_steps(samples, batch_size, network, seed, objective, clients)
    for step in steps:
        for client in range(clients):
            for number in range(local_steps):
                step(client, number)
        yield


def _plain_steps(samples, batch_size, network, seed, objective, clients=1):
    """Yields, for ever, a function (client, step) that does a step; step 0 starts anew."""
    quiet()
    # `execution` takes away TFF's default context, which complains at the exit when never used.
    from tff_ssl.runtime import local_worker  # noqa: F401
    from tff_ssl.simulation import centralized

    model, two_views = model_and_views(network, seed)
    where = {"client": 0}
    order = centralized.shuffled_batches(samples, batch_size, seed)
    run = centralized.Centralized(
        objective,
        model,
        two_views,
        images(clients * samples, seed),
        np.arange(clients * samples),
        lambda step: where["client"] * samples + order(step),
        1000,
        centralized.CentralizedHyperparameters(optimizer="sgd", learning_rate=0.01),
    )
    initial = run.initialize(seed)
    state = initial

    def step(client: int = 0, number: int = 0) -> None:
        nonlocal state
        where["client"] = client
        state, _ = run.run_round(state if number else initial, number)

    while True:
        yield step


def federated_round(
    algorithm: str,
    objective: str,
    hyperparameters: dict[str, Any],
    clients: int,
    samples: int,
    network: Network,
    seed: int,
    scratch: str,
) -> Generator[dict[str, int], None, None]:
    """A round of `clients` clients of `samples` samples, folded into one group where it may be.

    Yields the bytes that each client receives and sends in a round.
    """
    quiet()
    import tensorflow_federated as tff

    from datasets import client_store
    from datasets.image_dataset import Split
    from tff_ssl.algorithms import registry
    from tff_ssl.runtime import local_worker
    from tff_ssl.simulation import cohort, with_server
    from tff_ssl.templates import message_sizes
    from tff_ssl.templates.stateful_clients import StatefulClients
    from tff_ssl.templates.task import Task

    model, two_views = model_and_views(network, seed)
    count = clients * samples
    split = Split(images(count, seed), np.zeros(count, np.int32), np.arange(count))
    store = pathlib.Path(scratch) / f"{algorithm}_{clients}x{samples}_{os.getpid()}.sqlite"
    client_store.write_store(store, split, list(np.arange(count).reshape(clients, samples)))
    data = client_store.StoredClientData(store)
    element_type = tff.types.tensorflow_to_type(data.element_type_structure)
    entry = registry.ALGORITHMS[algorithm]
    computations: Any = entry.build(
        Task(model, two_views, element_type, 1000, objective),
        entry.hyperparameters(**hyperparameters),
    )
    cohorts = cohort.uniform_cohorts(clients, clients, seed)
    run: with_server.Simulation
    if isinstance(computations, StatefulClients):
        folder = store.with_suffix(".run")
        run = with_server.StatefulClientsSimulation(
            computations, data.group_dataset_computation, cohorts, clients, folder
        )
    else:
        run = with_server.StatelessClientsSimulation(
            computations.process,
            data.group_dataset_computation,
            model,
            computations.initial_weights,
            cohorts,
            groups=1,
        )
    remembers = isinstance(computations, StatefulClients)
    with local_worker.start(os.cpu_count() if remembers else None):
        state = run.initialize(seed)
        for round_number in range(1_000_000):
            state, _ = run.run_round(state, round_number)
            run.saved(state)  # Old states of clients are deleted, as after a checkpoint.
            yield {
                "bytes_down_per_client": message_sizes.total_bytes(computations.downloads),
                "bytes_up_per_client": message_sizes.total_bytes(computations.uploads),
            }


def hetero_aggregation(
    clients: int, rad_size: int, width: int, scratch: str
) -> Generator[None, None, None]:
    """Hetero-SSFL's aggregation over all clients' representations, from files; one a turn.

    The first turn only gets ready.
    """
    quiet()
    import tensorflow as tf
    import tensorflow_federated as tff

    from tff_ssl.algorithms import hetero_ssfl
    from tff_ssl.runtime import local_worker
    from tff_ssl.simulation import state_files, with_unlike_clients
    from tff_ssl.templates.task import Population

    model, _ = model_and_views(Network("tiny", (width,), (width,)), seed=0)
    population = Population((model,), (0,) * clients, (1,) * clients, rad_size)
    first = np.random.default_rng(0).normal(size=(rad_size, width)).astype(np.float32)
    sent = state_files.ClientStates(pathlib.Path(scratch) / "sent", first)
    never = np.full(clients, state_files.NEVER, np.int64)
    to_write = sent.paths_to_write(range(clients), 0)
    for path in to_write:
        shutil.copy(sent.paths_to_read([0], never)[0], path)
    sent.commit(to_write)
    paths = tuple(sent.paths_to_read(range(clients), np.zeros(clients, np.int64)))
    mean_kernel = with_unlike_clients.mean_kernel_of_files(
        hetero_ssfl.build_aggregate(population, hetero_ssfl.HeteroSSFLHyperparameters()),
        [sent] * clients,
    )

    @tff.tensorflow.computation(mean_kernel.type_signature.parameter)
    def aggregate(paths):
        return tf.linalg.norm(mean_kernel(paths))  # B itself stays in the worker, as in a round.

    with local_worker.start(os.cpu_count()):
        yield
        while True:
            aggregate(paths)
            yield
