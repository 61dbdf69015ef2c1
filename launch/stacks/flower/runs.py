"""A run on Flower, from its configuration to its results."""

import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from datasets.image_dataset import ImageDataset
from launch.options import adapting, resuming, settings
from launch.options import algorithm as algorithm_options
from launch.options.run_config import RunConfig
from launch.outputs import output_folder, partition_record, run_folder, tables
from launch.probes import probing, result_text
from launch.runs import client_packages, federated, final_evaluation
from launch.runs.federated import Built
from launch.stacks.flower import deployment, environment, run_files
from tff_ssl import client, whole_files
from tff_ssl.deployment import client_package, encoder_weights, saved_model
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.reporting import checked_files

_ROOT = pathlib.Path(__file__).parents[3]
# For a stage without `--round_timeout`: a reply that the SuperLink loses never comes.
_STAGE_SECONDS = 600.0
_LOOK_SECONDS = 0.5  # Between two looks at what the server has written.
_STATUS_SECONDS = 30  # Between two questions to Flower whether the run goes on.
# Flags of the simulation that are not those of the run.
_OWN_FLAGS = {"output_dir", "resume", "runtime", "round_timeout", "fold", "eval_every"}


def run(config: Any) -> None:
    """Trains on Flower, evaluates and compares; `config` is a `FlowerConfig`."""
    if config.secure and config.nodes < 3:
        raise ConfigurationError(
            f"--secure needs at least three nodes, not --nodes={config.nodes}: with two, SecAgg+ "
            "loses the first round"
        )
    if config.participation.dropout:
        raise ConfigurationError(
            f"--dropout={config.participation.dropout:g} simulates clients that drop out, and "
            "those of Flower are not simulated: leave it out"
        )
    environment.make()
    chosen = algorithm_options.choose(settings.replace(config, **federated.ALONE))
    dataset = federated.load(chosen.config)
    chosen = chosen._replace(config=adapting.fit_evaluation(dataset, chosen.config))
    built = client_packages.build(chosen, dataset)
    initial, _ = client_packages.initial_states(built)
    if built.algorithm.encoder_weights(initial) is None:
        raise ConfigurationError(
            f"{config.algorithm.algorithm} trains each client alone here, so that there is no "
            "global encoder to probe"
        )
    num_clients = len(built.clients.indices)
    if config.nodes > num_clients:
        raise ConfigurationError(f"--nodes={config.nodes}: there are {num_clients} clients")
    probing.check_labels(dataset, config.evaluation)
    folder = output_folder.choose(config.output.output_dir, "flower").absolute()
    run_folder.open_run(
        folder, settings.to_json(config), config.given, config.output.resume,
        partition_record.data_digests(dataset, built.clients.indices, None),
    )  # fmt: skip
    clients = _write_files(folder, built, dataset, config.nodes)
    before = len(_rounds(folder))
    status = _train(folder, built, clients, config) if before < config.rounds else None
    progress = run_files.progress(folder)
    assert progress is not None
    trained = client_package.name_values(initial).pack(progress.state)
    weights = built.algorithm.encoder_weights(trained)
    assert weights is not None  # Checked before training.
    final_evaluation.export(
        folder, dataset, built.model, weights, built.chosen.config.model.view_size
    )
    print("evaluating the model", flush=True)
    result = _result(folder, progress, before, status, config)
    result |= _epsilon(built, config)
    result["flower"] = _probe(built, dataset, weights)
    if config.compare:
        result |= _simulate(folder, config)
    run_folder.write_json(folder / "result.json", result)
    print(f"\n{_describe(result)}\n\nwritten to {folder}/: result.json, encoder/, client/")


def _write_files(
    folder: pathlib.Path, built: Built, dataset: ImageDataset, num_nodes: int
) -> list[list[int]]:
    """Writes the client package, unless it is there, and the nodes' images; returns clients."""
    indices = built.clients.indices
    clients = run_files.deal(len(indices), num_nodes)
    manifest = folder / "client" / client.MANIFEST
    rounds = checked_files.read_json(manifest)["rounds"] if manifest.exists() else None
    if rounds != built.chosen.config.rounds:  # Its schedules would end too early.
        with whole_files.replacing_folder(folder / "client") as new:
            client_packages.write(new, built, dataset)
    for node, own in enumerate(clients):
        run_files.write_node(folder / f"node_{node}", built.clients.images, indices, own)
    return clients


def _train(
    folder: pathlib.Path, built: Built, clients: list[list[int]], config: Any
) -> dict[str, Any]:
    """Runs the rounds that are left; returns Flower's status of the run."""
    participation, values = built.setting.participation, built.chosen.config.participation
    assert participation is not None
    cohorts = [participation.cohorts(number).tolist() for number in range(config.rounds)]
    secret = folder / "flower"
    whole_files.remove(secret)  # Another start has other credentials.
    secret.mkdir()
    print(f"{config.nodes} nodes; {participation.describe()} a round", flush=True)
    with deployment.Deployment(secret, config.nodes) as flower:
        at_once = min(config.nodes, os.cpu_count() or 1)
        count = at_once if config.workers is None else config.workers
        sockets = flower.start_workers(folder / "client", count)
        for node in range(config.nodes):
            worker = {"worker": sockets[node % count]} if count else {}
            own = {"folder": str(folder / f"node_{node}"), "package": str(folder / "client")}
            flower.start_node(node, **own, **worker)
        run_files.write_plan(
            folder, flower.node_ids, clients, cohorts, seed=config.seed,
            timeout=values.round_timeout or _STAGE_SECONDS, max_dropped=values.max_dropped,
            node_sums=config.node_sums, secure=config.secure,
        )  # fmt: skip
        return _follow(flower, folder, config.rounds)


def _follow(flower: deployment.Deployment, folder: pathlib.Path, rounds: int) -> dict[str, Any]:
    """Starts the app, and prints its rounds until the last; returns Flower's status of the run.

    Raises:
      TrainingError: If the app ends before.
    """
    shown = len(_rounds(folder))
    run_id, asked = flower.start_run(folder), time.monotonic()
    while True:
        for metrics in _rounds(folder)[shown:]:
            lost, loss = metrics["dropped_clients"], metrics.get("loss", float("nan"))
            dropped = f", {lost:.0f} clients dropped" if lost else ""
            text = f"loss {loss:.4f}, {metrics['seconds']:.1f} s{dropped}"
            print(f"round {metrics['round']}/{rounds}: {text}", flush=True)
            shown = metrics["round"]
        if shown == rounds:
            return flower.status(run_id)
        if time.monotonic() > asked + _STATUS_SECONDS:
            status = flower.status(run_id)["status"]
            if status.startswith("finished") and shown == len(_rounds(folder)):
                errors = [line for line in flower.log(run_id).splitlines() if ": round" in line]
                raise TrainingError(f"Flower's run {status}: {(errors or ['see flower/logs'])[-1]}")
            asked = time.monotonic()
        time.sleep(_LOOK_SECONDS)


def _rounds(folder: pathlib.Path) -> list[dict[str, Any]]:
    progress = run_files.progress(folder)
    return progress.rounds if progress else []


def _probe(built: Built, dataset: ImageDataset, weights: Weights) -> list[dict[str, Any]]:
    """Entries of `result.json` of the encoder by the usual probe."""
    config = built.chosen.config
    images = sum(map(len, built.clients.indices))
    evaluation = final_evaluation.Evaluation(dataset, images, config)
    encode = saved_model.encoder_function(built.model, config.model.view_size)
    baselines = probing.baselines(config.evaluation)
    return evaluation.results(built.model, encode, weights, baselines)


def _result(
    folder: pathlib.Path, progress: run_files.Progress, before: int, status: Any, config: Any
) -> dict[str, Any]:
    """What the rounds took, and what those after the first `before` sent, if there are any."""
    manifest = checked_files.read_json(folder / "client" / "manifest.json")
    plan = checked_files.read_json(folder / "plan.json")
    nodes = [set(node["clients"]) for node in plan["nodes"]]
    cohorts = plan["cohorts"][before:]
    messages = sum(not own.isdisjoint(cohort) for cohort in cohorts for own in nodes)
    replies = messages if plan["node_sums"] else sum(map(len, cohorts))
    bytes_of = {
        way: sum(stage[f"bytes_{way}"] for stage in manifest["stages"]) for way in ("down", "up")
    }
    result = {
        "algorithm": config.algorithm.algorithm,
        "rounds": len(progress.rounds),
        "nodes": config.nodes,
        "seconds_per_round": statistics.median(metrics["seconds"] for metrics in progress.rounds),
        "dropped_clients": sum(metrics["dropped_clients"] for metrics in progress.rounds),
    }
    if status is None:
        return result
    return result | {
        "bytes_down": status["network-traffic"]["outbound-bytes"],
        "bytes_up": status["network-traffic"]["inbound-bytes"],
        "announced_bytes_down": messages * bytes_of["down"],
        "announced_bytes_up": replies * bytes_of["up"],
    }


def _simulate(folder: pathlib.Path, config: RunConfig) -> dict[str, Any]:
    """Trains in a simulation in `simulation/`, and compares."""
    simulation = folder / "simulation"
    names = set(config.given) & settings.settings(RunConfig, "pretrain").keys() - _OWN_FLAGS
    arguments = [*resuming.as_arguments(config, names), f"--output_dir={simulation}"]
    # Each client alone, as on the nodes.
    arguments += ["--runtime=in_process", "--eval_every=0", "--fold=0"]
    arguments += ["--resume"] if (simulation / "config.json").exists() else []
    print(f"the same in a simulation: {simulation}/", flush=True)
    command = [sys.executable, "-m", "launch.pretrain", *arguments]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TrainingError(f"the simulation ended: {done.stderr.strip().splitlines()[-1]}")
    ours, theirs = (encoder_weights.read(run / "encoder").weights for run in (folder, simulation))
    metrics = checked_files.read_metrics(simulation / "metrics.csv")
    return {
        "largest_difference_to_simulation": largest_difference(ours, theirs),
        "simulation_seconds_per_round": statistics.median(m["seconds"] for m in metrics),
        "simulation": checked_files.read_json(simulation / "result.json"),
    }


def largest_difference(weights: Weights, others: Weights) -> float:
    """Largest absolute difference of two models' weights, divided by the others' largest weight."""
    ours, theirs = (
        np.concatenate([np.ravel(weight) for group in each for weight in group], dtype=np.float64)
        for each in (weights, others)
    )
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def _epsilon(built: Built, config: Any) -> dict[str, float]:
    """The epsilon of a private run; prints what that of a resumed run may leave out."""
    if not built.setting.epsilon:
        return {}
    if config.output.resume and len(built.algorithm.plain_stages) > 1:
        print(
            "note: epsilon counts each round once; a round that ended between its stages, and that "
            "--resume repeated, has released its statistics twice"
        )
    return {"epsilon": built.setting.epsilon(config.rounds)}


def _describe(result: dict[str, Any]) -> str:
    """The results as text."""
    rows = [["", "Flower", "simulation"]]
    theirs = result.get("simulation", [{}] * len(result["flower"]))
    for ours, other in zip(result["flower"], theirs, strict=True):
        scores = [f"{one['accuracy']:.3f}" if one else "" for one in (ours, other)]
        rows.append([result_text.labels_text(ours), *scores])
    seconds = result.get("simulation_seconds_per_round")
    of_simulation = "" if seconds is None else f"{seconds:.2f}"
    rows.append(["seconds a round", f"{result['seconds_per_round']:.2f}", of_simulation])
    if "epsilon" in result:
        of_simulation = f"{theirs[0]['privacy']['epsilon']:.2f}" if theirs[0] else ""
        rows.append(["epsilon", f"{result['epsilon']:.2f}", of_simulation])
    for way in ("down", "up") if "bytes_down" in result else ():
        announced = f"{result[f'announced_bytes_{way}']:,} announced"
        rows.append([f"bytes {way}", f"{result[f'bytes_{way}']:,}", announced])
    text, difference = tables.aligned(rows), result.get("largest_difference_to_simulation")
    if difference is not None:
        text += f"\n\nlargest difference of weights: {difference:.2g}"
    return text
