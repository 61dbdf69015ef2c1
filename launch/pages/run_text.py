"""The texts of a run page: its summary, its notes, and commands to continue with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from launch.outputs import run_folder
from launch.outputs.commands import module
from launch.pages import charts
from launch.pages.run_files import RunFiles
from launch.probes.result_text import BASELINES, COLLAPSE
from tff_ssl.reporting import over_seeds

# The classifier of each protocol.
_PROTOCOLS = {
    "linear": "A linear classifier on the frozen encoder",
    "linear (lars)": "A linear classifier, trained with LARS, on the frozen encoder",
    "linear (adam)": "A linear classifier, trained with Adam, on the frozen encoder",
    "linear logistic": "Logistic regression on the frozen encoder",
    "knn": "A classifier by nearest neighbours",
    "finetune": "A fine-tuned classifier",
    "semi supervised": "A fine-tuned classifier",
    "scratch": "A classifier without pretraining",
    "supervised": "The model's own classifier",
}
_FINE_TUNED = {"finetune", "semi_supervised", "scratch"}
_WITHOUT_DRAWS = {"supervised", "knn"}  # They use all labels.


def title(run: RunFiles) -> str:
    """Title of a run's page."""
    return f"{method(run)} on {run.flags.get('dataset')}: {run.folder.resolve().name}"


def method(run: RunFiles) -> str:
    """Name of the run's algorithm and objective."""
    algorithm = run.first("algorithm") or run.flags.get("algorithm", "centralized")
    return f"{algorithm} ({objective(run)})" if objective(run) else algorithm


def objective(run: RunFiles) -> str | None:
    """Name of the run's objective, also of a run without results; None if it is not known."""
    return run.first("objective") or run.flags.get("objective")


def summary(run: RunFiles) -> list[str]:
    """The run in a few sentences: its training, its accuracies and its encodings."""
    return [*_training(run), *_accuracies(run), *_encodings(run)]


def _training(run: RunFiles) -> list[str]:
    unit = "steps" if run.flags.get("script") == "centralized" else "rounds"
    done, wanted = run.rounds_done, run.flags.get("rounds")
    lengths = f"{done:,} {unit}" if done == wanted else f"{done:,} of {wanted:,} {unit}"
    images = f"{run.first('train_images'):,} " if run.first("train_images") else ""
    sentences = [
        f"This run trained the encoder {run.flags.get('encoder')} with {method(run)} for {lengths} "
        f"on {images}training images of {run.flags.get('dataset')}."
    ]
    if run.partition:
        sizes = _range(run.partition["client_sizes"], "image", "images")
        sentence = f"They are on {run.partition['clients']:,} clients of {sizes}"
        taking_part = run.column("clients")
        if len(taking_part):
            sentence += f", of which about {np.mean(taking_part):.3g} take part in a round"
        sentences.append(f"{sentence}.")
    down = run.first("bytes_down_per_client_and_round")
    up = run.first("bytes_up_per_client_and_round")
    if down and up:
        sentences.append(
            f"In a round, a client receives {down / 1e6:.2f} MB and sends {up / 1e6:.2f} MB."
        )
    seconds = run.column("seconds")
    if len(seconds):
        sentences.append(f"The {unit} took {_duration(float(np.sum(seconds)))} together.")
    return [" ".join(sentences)]


def _range(spread: Mapping[str, float], one: str, several: str) -> str:
    """The smallest and the largest number, such as `1 to 4 images`."""
    low, high = int(spread["min"]), int(spread["max"])
    numbers = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{numbers} {one if low == high == 1 else several}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _accuracies(run: RunFiles) -> list[str]:
    sentences = []
    for protocol, results in charts.results_by_protocol(run.results).items():
        for result in results:
            others = [
                f"{100 * result['baselines'][key]['accuracy']:.1f} % on {name}"
                for key, name in BASELINES.items()
                if key in result.get("baselines", {})
            ]
            against = f" (against {' and '.join(others)})" if others else ""
            classifier = _PROTOCOLS.get(protocol, protocol.capitalize())
            number = f"{result['test_examples']:,} " if "test_examples" in result else ""
            kind = "cases" if result.get("per_case", run.is_per_case) else "images"
            sentences.append(
                f"{classifier} with {charts.labels_text(result)} gets "
                f"{100 * result['accuracy']:.1f} % of the {number}test {kind} right{against}."
            )
    return sentences


def measurements(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on how the accuracies of a run's results were measured."""
    protocols = {result["protocol"].partition("_personalized")[0] for result in results}
    sentences = []
    if protocols - _FINE_TUNED - {"supervised"}:
        sentences.append(
            "A classifier is fitted to labelled images, on the features of the frozen encoder and "
            "on those of the baselines."
        )
    if protocols & _FINE_TUNED:
        sentences.append(
            "Fine-tuning, or training from scratch, trains the whole network with the labels, also "
            "for the untrained encoder; the other baselines have a linear classifier."
        )
    if "supervised" in protocols:
        sentences.append("The model's own classifier was trained together with the encoder.")
    return [*sentences, *deviations(results)]


def deviations(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on the standard deviations of accuracies; none if there are none."""
    protocols = {result["protocol"] for result in results}
    of_clients = {protocol for protocol in protocols if "_personalized" in protocol}
    over = ["over draws of the labels"] if protocols - of_clients - _WITHOUT_DRAWS else []
    over += ["over clients for their personalized models"] if of_clients else []
    lines = "Lines on the bars show the standard deviation"
    return [f"{lines} {' and '.join(over)}."] if over else []


def _encodings(run: RunFiles) -> list[str]:
    rank, untrained = run.first("effective_rank"), run.first("effective_rank_untrained")
    if not rank or not untrained:
        return []
    return [
        f"The effective rank of the encodings is {rank:.1f}; that of the untrained encoder is "
        f"{untrained:.1f}."
    ]


def notes(run: RunFiles, is_labelled: bool = True) -> list[str]:
    """What a reader should be warned of; the page says itself that there are no labels."""
    found = []
    if not run.is_finished:
        done, rounds = run.rounds_done, run.flags.get("rounds") or run.rounds_done
        unit = "step" if run.flags.get("script") == "centralized" else "round"
        when = f"{unit} {done:,} of {rounds:,}"
        if done >= rounds:
            when = f"its last {unit}, before its end"
        found.append(f"The run has no result yet: it was stopped after {when}.")
    elif is_labelled and not over_seeds.first(run.results):
        found.append("The run has no result, because its data have no test images with labels.")
    rank, untrained = run.first("effective_rank"), run.first("effective_rank_untrained")
    if rank and untrained and rank < COLLAPSE * untrained:
        found.append(
            "The encodings have collapsed, to less than a tenth of the untrained encoder's "
            "effective rank."
        )
    for key, name in BASELINES.items():
        below = [
            one
            for one, result in over_seeds.first(run.results).items()
            if result["accuracy"] < result.get("baselines", {}).get(key, {}).get("accuracy", 0)
        ]
        if below:
            counts = " and ".join(
                dict.fromkeys(
                    f"{one.labels_text()}{f' on {one.dataset}' if one.dataset else ''}"
                    for one in below
                )
            )
            found.append(f"The encoder is below {name} with {counts}.")
    return found


def commands(run: RunFiles) -> list[tuple[str, str]]:
    """Commands that continue the run, evaluate it further or look at it, with explanations."""
    folder, rounds = str(run.folder), run.flags.get("rounds") or run.rounds_done
    shown = []
    if run.rounds_done < rounds or not run.is_finished:
        resume = run_folder.resume_command(run.folder)
        shown.append(("Continue the run where it stopped.", resume))
    elif run.flags.get("dp_epsilon") in (None, "inf"):  # The noise is that of these rounds.
        resume = run_folder.resume_command(run.folder, f"--rounds={2 * rounds}")
        shown.append((f"Continue training, e.g. to {2 * rounds} rounds.", resume))
    texts: dict[str, list[str]] = {}
    if not run_folder.is_stopped(run.folder):
        texts |= {
            "Evaluate the encoder by nearest neighbours; other protocols are linear, finetune, "
            "semi_supervised, scratch and transfer.":
                ["launch.evaluate", f"--run={folder}", "--protocol=knn"],
            "Update this page with the results of such evaluations.":
                ["launch.visualize", f"--run={folder}"],
        }  # fmt: skip
    texts |= {
        "Compare the run with another one.":
            ["launch.visualize", f"--compare={folder},OTHER_RUN"],
        "Convert the encoder for devices; other formats are keras and onnx.":
            ["launch.export", f"--run={folder}", "--format=tflite"],
        "Show its curves, views and encodings in TensorBoard.":
            ["tensorboard.main", f"--logdir={folder}/tensorboard"],
    }  # fmt: skip
    return [*shown, *((explanation, module(*words)) for explanation, words in texts.items())]


def flag_rows(run: RunFiles, names: Sequence[str]) -> list[list[str]]:
    """A table of flags and their values."""
    return [["flag", "value"], *([f"--{name}", value_text(run.flags[name])] for name in names)]


def value_text(value: Any) -> str:
    """A flag's value as text."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def partition_sentences(partition: Mapping[str, Any]) -> list[str]:
    """Sentences on the figures of `partition.json`."""
    classes = partition["classes_per_client"]
    sentences = [
        f"{partition['clients']:,} clients hold {partition['examples']:,} training images; each "
        f"has {_range(partition['client_sizes'], 'image', 'images')}."
    ]
    if partition["emd"] is not None:
        sentences.append(
            f"A client has images of {_range(classes, 'class', 'classes')}. The earth mover's "
            "distance of the clients' classes from those of all clients together is "
            f"{partition['emd']:.2f}, from 0 (the same) to 2 (no class in common). Only supervised "
            "training sees the classes."
        )
    if partition["examples_left_out"]:
        sentences.append(f"{partition['examples_left_out']:,} training images are on no client.")
    return sentences
