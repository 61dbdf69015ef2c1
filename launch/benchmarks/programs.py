"""The programs that `benchmark` measures: generators, each `next` of which is a step.

Each runs in its own process (`processes.Child`), which imports TensorFlow only after `quiet`.
"""

import hashlib
import itertools
import os
import pathlib
import shutil
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

_IMAGE_SHAPE = (32, 32, 3)
_ROUNDS = 1000  # Length of the run that an algorithm is built for.
LEARNING_RATE = 0.01  # Of the clients.
_SERVER_IMAGES = 64  # Images that the server shows to heterogeneous clients.


class ModelSettings(NamedTuple):
    """The model that is trained.

    Encoder, widths of the heads' layers, type of the products, and whether XLA compiles it.
    """

    encoder: str
    projector: tuple[int, ...]
    predictor: tuple[int, ...] = ()
    precision: str = "float32"
    xla: bool = False


class Work(NamedTuple):
    """A round, in which all clients take part unless it has a cohort."""

    algorithm: str
    objective: str
    clients: int
    samples: int  # Images of a client.
    steps: int = 1  # Local steps of a client.
    batch_size: int = 0  # Images of a local step; 0 for all of a client's.
    cohort: int = 0  # Clients that take part; 0 for all.

    @property
    def images(self) -> int:
        """Number of images of all clients."""
        return self.clients * self.samples

    @property
    def pooled(self) -> "Work":
        """A centralized step: one client with the images of all, which takes one step on them."""
        return Work(self.algorithm, self.objective, 1, self.images)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Those of the clients that differ from the algorithm's defaults."""
        steps = {"local_steps": self.steps, "batch_size": self.batch_size}
        return steps | {"client_learning_rate": LEARNING_RATE}


def quiet() -> None:
    """Silences the logs of TensorFlow and all warnings in this process."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import warnings

    warnings.filterwarnings("ignore")


def exact_device() -> dict[str, Any]:
    """TensorFlow's GPU, None without one, and whether it multiplies float32 in TF32.

    In this process, TensorFlow then computes without TF32.
    """
    import tensorflow as tf

    from tff_ssl.runtime import devices

    gpu = devices.find_gpu()
    facts = {"gpu": gpu and str(gpu), "tf32": gpu is not None and devices.products(gpu) == "TF32"}
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return facts


def write_reference(
    path: str, loss: Any, gradient: Any, weights: Sequence[np.ndarray], **batch: Any
) -> dict[str, Any]:
    """Writes weights and a batch, and returns what a peer's program must compute from them.

    The `.npz` file has `weight0`, `weight1`, ..., and the arrays of the batch by their names.
    """
    import tensorflow as tf

    np.savez(path, **batch, **{f"weight{i}": weight for i, weight in enumerate(weights)})
    return {
        "parameters": sum(weight.size for weight in weights),
        "loss": float(loss),
        "gradient_norm": float(tf.linalg.global_norm(gradient)),
    }


def images(count: int, seed: int, image_shape: tuple[int, int, int] = _IMAGE_SHAPE) -> np.ndarray:
    """Random images, uint8 [count, h, w, c], by default 32x32x3."""
    return np.random.default_rng(seed).integers(0, 256, (count, *image_shape), np.uint8)


def model_and_views(
    settings: ModelSettings, seed: int, image_shape: tuple[int, int, int] = _IMAGE_SHAPE
):
    """The model for `images`, and the function that makes their two views."""
    from tff_ssl.models.dual_encoder import DualEncoder
    from tff_ssl.views import augmentation

    def two_views(images, example_ids, round_number):
        return augmentation.two_views(
            "byol_no_blur", images, example_ids, seed=seed, round_number=round_number,
            xla=settings.xla,
        )  # fmt: skip

    model = DualEncoder(
        settings.encoder, image_shape, settings.projector, settings.predictor,
        precision=settings.precision, xla=settings.xla,
    )  # fmt: skip
    return model, two_views


def write_clients(
    path: pathlib.Path, work: Work, seed: int, image_shape: tuple[int, int, int] = _IMAGE_SHAPE
) -> None:
    """Stores the clients' `images` at `path`."""
    from datasets import client_store
    from datasets.image_dataset import Split

    ids = np.arange(work.images)
    split = Split(images(work.images, seed, image_shape), np.zeros(work.images, np.int32), ids)
    path.unlink(missing_ok=True)  # Of the same round before.
    client_store.write_store(path, split, list(ids.reshape(work.clients, work.samples)))


def plain_steps(work: Work, settings: ModelSettings, seed: int) -> Generator[None, None, None]:
    """Rounds in plain TensorFlow, one client after the other, each from the same new weights."""
    quiet()
    # `compiling` removes TFF's default context, which complains at exit if it was never used.
    from tff_ssl.runtime import compiling, devices  # noqa: F401
    from tff_ssl.simulation import centralized

    devices.prepare_gpus()  # Other programs need memory of the GPU, too.
    model, two_views = model_and_views(settings, seed)
    order = centralized.shuffled_batches(work.samples, work.batch_size or work.samples, seed)
    run = centralized.Centralized(
        work.objective,
        model,
        two_views,
        images(work.images, seed),
        np.arange(work.images),
        lambda step: first + order(step),
        _ROUNDS,
        centralized.CentralizedHyperparameters(optimizer="sgd", learning_rate=LEARNING_RATE),
    )
    initial = run.initialize(seed)
    while True:
        for client in range(work.clients):
            state, first = initial, client * work.samples  # The client's first image.
            for step in range(work.steps):
                state, _ = run.run_round(state, step)
        yield


def federated_round(
    work: Work,
    hyperparameters: dict[str, Any],
    settings: ModelSettings,
    seed: int,
    scratch: str,
    folds: bool = True,
    digests: int = 0,
) -> Generator[dict[str, Any], None, None]:
    """Rounds of a federated algorithm, as `launch.pretrain` runs them.

    Args:
      hyperparameters: Hyperparameters that differ from the algorithm's defaults.
      folds: Whether clients are folded into one group where the algorithm allows that.
      digests: Number of first rounds that also yield the digest of their state.

    Yields:
      The bytes that each client receives and sends in a round, and the digest, hexadecimal.
    """
    quiet()
    from tff_ssl.algorithms import registry
    from tff_ssl.runtime import start
    from tff_ssl.templates import message_sizes

    name = f"{work.algorithm}_{work.clients}x{work.samples}_{os.getpid()}.sqlite"
    path = pathlib.Path(scratch) / name
    write_clients(path, work, seed)
    built, data = build(path, work, hyperparameters, settings, seed)
    groups = int(registry.ALGORITHMS[work.algorithm].folds and folds)
    run = built.plan_run(run_setting(work, groups, seed))
    simulation = run.simulate(data.group_batch_computation, path.with_suffix(".run"))
    with start(max_concurrent_calls=built.default_concurrent_calls()):
        for number, state in enumerate(states(simulation, seed)):
            simulation.on_checkpoint(state)  # Deletes the clients' old states.
            yield {
                "bytes_down_per_client": message_sizes.total_bytes(built.downloads),
                "bytes_up_per_client": message_sizes.total_bytes(built.uploads),
            } | ({"digest": _digest(state)} if number < digests else {})


def _digest(state: Any) -> str:
    """The SHA-256 of a state's arrays, hexadecimal."""
    from tff_ssl.simulation.packing import pack

    hashed = hashlib.sha256()
    for name, array in sorted(pack(state).items()):
        hashed.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def build(
    path: pathlib.Path, work: Work, hyperparameters: dict[str, Any], settings: ModelSettings,
    seed: int, image_shape: tuple[int, int, int] = _IMAGE_SHAPE,
) -> tuple[Any, Any]:  # fmt: skip
    """Builds the algorithm for the clients stored at `path`, and opens their store."""
    import tensorflow_federated as tff

    from datasets import client_store
    from tff_ssl.algorithms import registry
    from tff_ssl.kinds.protocol import Need
    from tff_ssl.templates.task import Population, Task

    model, two_views = model_and_views(settings, seed, image_shape)
    data = client_store.StoredClientData(path)
    element_type = tff.types.tensorflow_to_type(data.batch_type_structure)
    entry, population = registry.ALGORITHMS[work.algorithm], None
    if Need.POPULATION in entry.kind.needs:  # With one architecture here.
        sizes = tuple(data.client_sizes())
        population = Population((model,), (0,) * len(sizes), sizes, _SERVER_IMAGES)
    task = Task(model, two_views, element_type, _ROUNDS, work.objective, population=population)
    return entry.build(task, entry.hyperparameters(**hyperparameters)), data


def states(simulation: Any, seed: int) -> Iterator[Any]:
    """The state after each of the rounds of a simulation, which never end."""
    state = simulation.initialize(seed)
    for round_number in itertools.count():
        state, _ = simulation.run_round(state, round_number)
        yield state


def run_setting(work: Work, groups: int, seed: int):
    """The `RunSetting` of the clients; in a network, each is linked to all others."""
    from tff_ssl.algorithms import registry
    from tff_ssl.decentralized import topology
    from tff_ssl.decentralized.schedule import ClientNetwork
    from tff_ssl.kinds.protocol import Need, RunSetting
    from tff_ssl.simulation import cohort
    from tff_ssl.simulation.participation import Participation

    needs, sizes = registry.ALGORITHMS[work.algorithm].kind.needs, [work.samples] * work.clients
    if Need.NETWORK in needs:
        network = ClientNetwork(lambda _: topology.complete(work.clients), sizes, seed)
        return RunSetting(sizes, _ROUNDS, network=network)
    size = work.cohort or work.clients
    cohorts = cohort.uniform_cohorts(work.clients, size, seed)
    participation = Participation(cohorts, size, work.clients)
    shown = images(_SERVER_IMAGES, seed) if Need.POPULATION in needs else None
    return RunSetting(sizes, _ROUNDS, participation, server_images=shown, groups=groups)


def hetero_aggregation(
    clients: int, rad_size: int, width: int, scratch: str
) -> Generator[None, None, None]:
    """Hetero-SSFL's aggregation of clients' representations in files; the first step prepares."""
    quiet()
    import tensorflow as tf
    import tensorflow_federated as tff

    from tff_ssl.algorithms import hetero_ssfl
    from tff_ssl.kinds.heterogeneous import simulation
    from tff_ssl.runtime import start
    from tff_ssl.simulation import state_files
    from tff_ssl.templates.task import Population

    model, _ = model_and_views(ModelSettings("tiny", (width,), (width,)), seed=0)
    population = Population((model,), (0,) * clients, (1,) * clients, rad_size)
    first = np.random.default_rng(0).normal(size=(rad_size, width)).astype(np.float32)
    sent = state_files.ClientStates(pathlib.Path(scratch) / "sent", first)
    never = np.full(clients, state_files.NEVER, np.int64)
    to_write = sent.paths_to_write(range(clients), 0)
    for path in to_write:
        shutil.copy(sent.paths_to_read([0], never)[0], path)
    sent.commit(to_write)
    paths = tuple(sent.paths_to_read(range(clients), np.zeros(clients, np.int64)))
    mean_kernel = simulation.mean_kernel_of_files(
        hetero_ssfl.build_aggregate(population, hetero_ssfl.HeteroSSFLHyperparameters()),
        [sent] * clients,
    )

    @tff.tensorflow.computation(mean_kernel.type_signature.parameter)
    def aggregate(paths):
        return tf.linalg.norm(mean_kernel(paths))  # The factor is not read, as in a round.

    with start(max_concurrent_calls=os.cpu_count()):
        yield
        while True:
            aggregate(paths)
            yield
