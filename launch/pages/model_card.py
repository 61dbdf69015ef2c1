"""The model card of an encoder: data, training, figures, licence, intended use and limits."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from launch.pages import run_text
from launch.pages.run_files import RunFiles
from launch.probes import result_text
from tff_ssl.deployment.encoder_weights import StoredEncoder
from tff_ssl.reporting import over_seeds

FILE_NAME = "MODEL_CARD.md"
# Flags that the card has beside those that the run was given.
_SHOWN = {"dataset", "partition", "algorithm", "objective", "rounds", "seed", "encoder", "views"}
# Flags that do not change the weights, some of which name folders.
_HIDDEN = {
    "data_dir", "output_dir", "resume", "labels", "labels_per_class", "label_draws", "baselines",
    "probe", "also_logistic", "per_case", "eval_every", "checkpoint_every",
}  # fmt: skip


def text(run: RunFiles, stored: StoredEncoder, licence: str, intended_use: str) -> str:
    """The card of a run's encoder: Markdown, with a header for model hubs."""
    flags, config = run.flags, run.config
    left_out = {"evaluated_clients", "pretrained_on"}  # Clients' own models, other data sets.
    kept = over_seeds.first(r for r in run.results if not left_out & r.keys())
    results = list(kept.values())
    is_federated = flags.get("script") != "centralized"
    is_supervised = run_text.objective(run) == "supervised"
    names = sorted((_SHOWN | set(config["given"])) - _HIDDEN)
    if not is_federated and flags.get("batches") != "cohorts":
        names.remove("partition")  # No step of the training has used it.
    shown = {name: flags[name] for name in names if flags.get(name) is not None}
    if run.rounds_done and run.rounds_done < int(flags["rounds"]):
        shown["rounds"] = f"{run.rounds_done} of {flags['rounds']}, where the run was stopped"
    training = [f"{name}: {run_text.value_text(value)}" for name, value in shown.items()]
    counts = {name: run.first(name) for name in ("clients", "train_images")}
    training += [f"{name}: {count}" for name, count in counts.items() if count is not None]
    versions = ", ".join(f"{name} {version}" for name, version in config["versions"].items())
    epsilon = float(flags.get("dp_epsilon") or "inf")
    is_private = math.isfinite(epsilon) or flags.get("dp_noise_multiplier")
    limits = [
        f"The weights are of one run, with seed {flags['seed']}.",
        *["The figures are for the images and labels above, and may not hold for others."]
        * bool(results),
        "Bias, robustness and differences between groups of people have not been examined.",
        *["Clients were simulated: no devices took part."] * is_federated,
        f"Training was {'' if is_private else 'not '}differentially private"
        f"{'' if is_private else ': the weights may reveal training images'}.",
    ]
    tags = ["supervised" if is_supervised else "self-supervised", *["federated"] * is_federated]
    commit = config.get("git_commit")
    parts = [
        f"---\nlicense: {licence}\nlibrary_name: tff_ssl\ntags: [{', '.join(tags)}]\n---",
        f"# {flags['encoder']} encoder, {flags.get('algorithm', 'centralized')} on "
        f"{flags['dataset']}",
        f"An encoder of images {'x'.join(map(str, stored.image_shape))}, with "
        f"{stored.model.features} features.",
        '```python\nencode = tff_ssl.load_encoder("FOLDER_OF_THIS_CARD")\n'
        "features = encode(images)  # uint8 [n, height, width, channels]\n```",
        f"## Intended use\n\n{intended_use}",
        f"## Training\n\n{_list(training)}",
        f"{versions}{f'; commit {commit}' if commit else ''}.",
        f"## Figures\n\n{_figures(results)}",
        *result_text.comparison_lines(results),
        f"## Limits\n\n{_list(limits)}",
        f"## Licence\n\nThe weights: {licence}. The licence of the training images is their own.",
    ]
    return "\n\n".join(parts) + "\n"


def _figures(results: Sequence[Mapping[str, Any]]) -> str:
    """A table of results, with the baselines."""
    if not results:
        return "The encoder has not been evaluated."
    names = [n for n in result_text.BASELINES if any(n in r["baselines"] for r in results)]
    rows = [["test accuracy", "encoder", *(result_text.BASELINES[name] for name in names)]]
    rows.append(["---"] * len(rows[0]))
    for result in results:
        scores = [result, *map(result["baselines"].get, names)]
        cells = [f"{s['accuracy']:.3f} ± {s['accuracy_std']:.3f}" if s else "" for s in scores]
        measured = over_seeds.measured(result)
        rows.append([f"{measured.name()}, {result_text.labels_text(result)}", *cells])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n± is the standard deviation over draws of the labels."


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
