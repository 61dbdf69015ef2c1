"""Results as text: tables of probes, and warnings with what usually helps."""

from collections.abc import Mapping, Sequence
from typing import Any

from launch.outputs import tables
from tff_ssl.reporting import over_seeds
from tff_ssl.reporting.over_seeds import Figures, Measured

COLLAPSE = 0.1  # Share of the untrained encoder's effective rank below which a run warns.
_SHOWN_DIFFERENCE = 0.01  # Least difference for which balanced accuracy has a row of its own.
BASELINES = {
    "random_encoder": "the untrained encoder",
    "pretrained_encoder": "the pretrained encoder before training",
    "raw_pixels": "raw pixels",
    "imagenet_encoder": "an encoder trained on ImageNet",
}


def rank_lines(rank: float, untrained: float) -> list[str]:
    """The ranks of a run, and a warning if the encodings have collapsed."""
    lines = [f"effective rank of the encodings: {rank:.1f} (untrained encoder: {untrained:.1f})"]
    if rank < COLLAPSE * untrained:
        lines.append(
            "warning: the encodings have collapsed, to less than a tenth of the untrained "
            "encoder's effective rank; what usually helps: batch norm on the projector's output "
            "(--projector_output_batch_norm) or in the network (--norm=batch), a smaller learning "
            "rate, smaller views (--view_size)"
        )
    return lines


def with_class_names(
    results: Sequence[Mapping[str, Any]], class_names: Sequence[str]
) -> list[dict[str, Any]]:
    """Entries for `result.json`, in which `class_accuracies` has names of classes, not numbers."""

    def named(content: Any) -> Any:
        if not isinstance(content, Mapping):
            return content
        found = {key: named(value) for key, value in content.items()}
        if "class_accuracies" in found:
            accuracies = found["class_accuracies"].items()
            found["class_accuracies"] = {class_names[int(k)]: value for k, value in accuracies}
        return found

    return [named(result) for result in results]


def format_results(results: list[dict[str, Any]]) -> str:
    """A short table for each protocol among the results."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        parts.setdefault(result["protocol"], []).append(result)
    return "\n\n".join(_table(part) for part in parts.values())


def comparison_lines(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning if the encoder is below a baseline, with what usually helps; otherwise no line.

    Balanced accuracies are compared; with classes of one size they are accuracies. The untrained
    encoder comes first: raw pixels are named with it, or if the encoder is below them alone. Of
    several results, the one with the largest difference is named.

    Args:
      results: Entries of `result.json`; those of clients' own models are ignored.
    """
    for first in BASELINES:
        below = [r for r in results if "evaluated_clients" not in r and _gap(r, first) > 0]
        if not below:
            continue
        result = max(below, key=lambda entry: _gap(entry, first))
        others = " and ".join(
            f"that of {text}, {result['baselines'][name]['balanced_accuracy']:.3f}"
            for name, text in BASELINES.items()
            if _gap(result, name) > 0
        )
        start = ", a start from weights of ImageNet (--init_from=efficientnet_lite0)"
        return [
            f"warning: {result['protocol']} with {labels_text(result)}: the encoder's balanced "
            f"accuracy, {result['balanced_accuracy']:.3f}, is below {others}; what usually helps: "
            "more rounds (--rounds), augmentations that leave the content of an image as it is "
            "(--views), more images in a round (--clients_per_round), more training images"
            + (start if _gap(result, "imagenet_encoder") > 0 else "")
        ]
    return []


def format_seeds(seeds: Sequence[int], found: Mapping[Measured, Figures]) -> str:
    """A table of mean and sample standard deviation over seeds, with the gain over no training.

    Args:
      found: Result of `over_seeds.collect`.
    """
    names = {"random_encoder": "untrained", "raw_pixels": "raw pixels"}
    names |= {"imagenet_encoder": "ImageNet"}
    shown = [key for key in names if any(key in f.baselines for f in found.values())]
    title = f"test accuracy, seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"
    rows = [[title, "encoder", *(names[key] for key in shown), "gain over untrained"]]
    for one, figures in found.items():
        scores = [figures.accuracy, *(figures.baselines.get(key, {}) for key in shown)]
        spreads = [over_seeds.spread(by_seed.values()) for by_seed in scores]
        name = f"{one.name()}, {one.labels_text()}"
        note = "" if len(figures.accuracy) == len(seeds) else f" ({len(figures.accuracy)} seeds)"
        cells = [spread.text() if spread.seeds else "-" for spread in spreads]
        gain = figures.gain()
        rows.append([f"{name}{note}", *cells, gain.text(sign="+") if gain else "-"])
    return tables.aligned(rows)


def _gap(result: Mapping[str, Any], baseline: str) -> float:
    """The balanced accuracy of a baseline minus the encoder's; 0 without that baseline."""
    scores = result["baselines"].get(baseline, result)
    return scores["balanced_accuracy"] - result["balanced_accuracy"]


def labels_text(result: Mapping[str, Any]) -> str:
    """The number of labels of a result, such as `5 per class`."""
    per_class = result["labels_per_class"]
    return f"{per_class} per class" if per_class else f"{result['labels']} labels"


def _models_line(result: Mapping[str, Any]) -> str:
    """A line on the clients whose models were evaluated; empty for a global model."""
    if "client" in result:
        return (
            f"the model of client {result['client']}, which trained in "
            f"{result['trained_rounds']} rounds"
        )
    if "evaluated_clients" in result:
        pairs = zip(result["evaluated_clients"], result["trained_rounds_of_clients"], strict=True)
        shift = result.get("own_shift")
        own = f", each on images with its own {shift}" if shift else ""
        clients = ", ".join(f"{client} ({rounds})" for client, rounds in pairs)
        return f"mean over clients (rounds of training){own}: {clients}"
    return ""


def _table(results: list[dict[str, Any]]) -> str:
    title = f"{results[0]['protocol']}, test accuracy"
    if results[0].get("per_case"):
        title += f" on {results[0]['test_examples']:,} cases"
    columns = {"encoder": None, "pretrained": "pretrained_encoder", "untrained": "random_encoder"}
    columns |= {"raw pixels": "raw_pixels", "ImageNet": "imagenet_encoder"}
    shown = [name for name, key in columns.items() if not key or key in results[0]["baselines"]]
    width = max(30, len(title) + 2)
    lines = [_models_line(results[0])] if _models_line(results[0]) else []
    if results[0].get("per_case"):
        lines.append("labels and predictions are per case, from the mean of its images' encodings")
    lines.append(f"{title:{width}}" + "".join(f"{name:>16}" for name in shown))
    for result in results:
        name = labels_text(result)
        cells = [result["baselines"][columns[c]] if columns[c] else result for c in shown]
        for score, note in (("accuracy", ""), ("balanced_accuracy", ", balanced")):
            # Where classes are of one size, accuracy and balanced accuracy are equal.
            difference = abs(result[score] - result["accuracy"])
            if score == "accuracy" or difference > _SHOWN_DIFFERENCE:
                numbers = (f"{c[score]:.3f} ± {c[score + '_std']:.3f}" for c in cells)
                lines.append(f"{name + note:{width}}" + "".join(f"{n:>16}" for n in numbers))
    return "\n".join(lines)
