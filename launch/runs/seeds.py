"""Trains or evaluates once for each seed of `--seeds`, and summarizes the results.

Each seed has a process of its own, so that its folder is that of a single run with `--seed`.
"""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from launch.options import presets, resuming, settings
from launch.options.run_config import RunConfig, ScriptConfig
from launch.options.script_configs import EvaluateConfig, VisualizeConfig
from launch.outputs import commands, output_folder, run_folder, same_run, tables
from launch.probes import result_text
from launch.runs import scripts
from tff_ssl import whole_files
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting import over_seeds, records
from tff_ssl.reporting.over_seeds import Figures, Measured

# Flags in which a run may differ from those of the command that continues it.
_OF_COMMAND = {"seeds", "seed", "output_dir", "resume", "list"}


def train(config: RunConfig) -> None:
    """Trains a run for each seed with the script of the configuration, and summarizes them."""
    seeds = check(config)
    name = f"{config.script}-{config.data.dataset}"
    folder = output_folder.choose(config.output.output_dir, name)
    _check_folder(folder, config.output.resume)
    given = resuming.without_request(sys.argv[1:])
    # A further seed has the flags of the runs there, and no other preset.
    of_runs = [*resuming.as_arguments(config, config.given - _OF_COMMAND), presets.NONE]
    of_new = of_runs if run_folder.seed_runs(folder) else given
    to_continue = commands.module(
        f"launch.{config.script}", *given,
        *([] if config.output.output_dir else [f"--output_dir={folder}"]), "--resume",
    )  # fmt: skip
    is_new = not folder.exists()
    run_folder.make(folder)
    run_folder.lock(folder)
    print(f"{_listed(seeds)}, one after another; results go to {folder}/", flush=True)
    for number, seed in enumerate(seeds, 1):
        run = run_folder.of_seed(folder, seed)
        finished, begun = is_finished(run, config), (run / "config.json").exists()
        state = ": done before" if finished else ": continues" if begun else ""
        print(f"\n[{number}/{len(seeds)}] seed {seed}{state}", flush=True)
        if finished:
            continue
        try:
            code = scripts.show_script(
                [config.script, *_arguments(run, seed, config, given, of_new)]
            )
        except KeyboardInterrupt:
            print(f"{commands.CONTINUE}{to_continue}", flush=True)
            raise
        if code:
            if is_new and not any(folder.iterdir()):
                folder.rmdir()
            _end(seed, code, to_continue if run.exists() else "")
    runs = [run_folder.of_seed(folder, seed) for seed in seeds]
    _summarize({s: _entries(run) for s, run in zip(seeds, runs, strict=True)}, folder)
    print(f"wrote {_compare(runs, folder)} (open it in a browser)")


def evaluate(config: EvaluateConfig) -> None:
    """Evaluates a run with each seed, or the run of each seed, and summarizes the results."""
    from launch.pages import comparison_page, run_files

    seeds = check(config)
    if not config.run:
        raise ConfigurationError("--run is missing: name the folder of a run or of an encoder")
    run = pathlib.Path(config.run)
    runs = run_folder.seed_runs(run)
    if missing := [seed for seed in seeds if runs and seed not in runs]:
        raise ConfigurationError(
            f"--seeds: {run} has no run of seed {missing[0]}; it has {', '.join(map(str, runs))}"
        )
    folder = pathlib.Path(config.output.output_dir or run)
    outputs = {seed: run_folder.of_seed(folder, seed) for seed in seeds}
    for number, (seed, output) in enumerate(outputs.items(), 1):
        print(f"\n[{number}/{len(seeds)}] seed {seed}", flush=True)
        own = [f"--run={runs[seed]}"] if runs else [f"--seed={seed}"]
        given = [*sys.argv[1:], "--seeds=", *own, f"--output_dir={output}"]
        if code := scripts.show_script(["evaluate", *given]):
            _end(seed, code)
    written = {seed: _newest(output, config.protocol) for seed, output in outputs.items()}
    _summarize({s: _entries(path.parent, path.stem) for s, path in written.items()}, folder)
    if runs and all(outputs[seed] == runs[seed] for seed in seeds):
        page = _compare([runs[seed] for seed in seeds], folder)
    else:
        files = {}
        for seed in seeds:
            flags = settings.flat(config) | {"seed": seed}
            evaluated = run_files.of_evaluation(runs.get(seed, run), outputs[seed], flags)
            files[f"seed {seed}"] = evaluated
        page = comparison_page.write(files, folder, dict.fromkeys(files))
    print(f"wrote {page} (open it in a browser)")


def check(config: ScriptConfig) -> tuple[int, ...]:
    """The seeds; a `ConfigurationError` if one is given twice, or `--seed` beside them."""
    seeds = config.output.seeds
    if "seed" in config.given:
        raise ConfigurationError("--seed and --seeds: give one of them")
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise ConfigurationError(f"--seeds={','.join(map(str, seeds))} has {seed} twice")
    return seeds


def is_finished(run: pathlib.Path, config: RunConfig) -> bool:
    """Whether a run has ended, and has the values of all flags that are given."""
    return (run / "result.json").exists() and _has_flags(run, config)


def _has_flags(run: pathlib.Path, config: RunConfig) -> bool:
    flags, values = run_folder.read_flags(run), settings.flat(config)
    given = {name: settings.json_value(values[name]) for name in config.given - _OF_COMMAND}
    return bool(flags) and all(
        same_run.comparable(given, name) == same_run.comparable(flags, name) for name in given
    )


def _check_folder(folder: pathlib.Path, resume: bool) -> None:
    if (folder / "config.json").exists():
        raise ConfigurationError(f"--output_dir={folder} holds a run; --seeds needs another folder")
    done = run_folder.seed_runs(folder)
    if done and not resume:
        raise ConfigurationError(
            f"--output_dir={folder} already holds runs of {_listed(done)}: add --resume to "
            "continue them, or name another folder"
        )


def _listed(seeds: Sequence[int] | Mapping[int, Any]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


def _arguments(
    run: pathlib.Path, seed: int, config: RunConfig, given: Sequence[str], of_new: Sequence[str]
) -> list[str]:
    """The flags of the script for a seed: those of the command, as far as they are needed."""
    if _has_flags(run, config):
        named = resuming.as_arguments(config, config.given & resuming.NOT_FROM_FILES)
        return [*named, "--resume", f"--output_dir={run}"]
    # The last value counts. If a run has other flags, `--resume` refuses them or trains further.
    own = ["--seeds=", f"--seed={seed}", f"--output_dir={run}"]
    return [*given, *own, "--resume"] if (run / "config.json").exists() else [*of_new, *own]


def _end(seed: int, code: int, to_continue: str = "") -> None:
    """Ends this process after a script that failed, which has printed its error."""
    if to_continue:
        print(f"{commands.CONTINUE}{to_continue}", flush=True)
    if code < 0:
        raise TrainingError(f"seed {seed} was {scripts.ended_by(code)}")
    sys.exit(code)


def _newest(folder: pathlib.Path, protocol: str) -> pathlib.Path:
    """The result file that an evaluation has just written; only that knows its whole name."""
    paths = folder.glob(f"result_{protocol}*.json")
    return max(paths, key=lambda path: path.stat().st_mtime_ns)


def _entries(folder: pathlib.Path, name: str | None = None) -> list[Mapping[str, Any]]:
    """The entries of a run's result file of this name without extension, or of all."""
    results = records.read_results(folder)
    return records.entries({name: results[name]} if name else results)


def _summarize(entries: Mapping[int, list[Mapping[str, Any]]], output: pathlib.Path) -> None:
    """Prints mean and deviation of the seeds' results; writes `summary.csv`."""
    found = over_seeds.collect(entries)
    rows = [summary_row(one, figures) for one, figures in found.items()]
    print(f"\n{result_text.format_seeds(list(entries), found)}\n")
    path = whole_files.write(output / "summary.csv", tables.as_csv(rows))
    print(f"wrote {path}", flush=True)


def summary_row(one: Measured, figures: Figures) -> dict[str, Any]:
    """A row of `summary.csv`; the deviation of a single seed is None."""
    row: dict[str, Any] = {
        "protocol": one.protocol,
        "method": one.method or None,
        "dataset": one.dataset or None,
        "labels_per_class": one.labels if one.is_per_class else None,
        "labels": None if one.is_per_class else one.labels,
        "seeds": len(figures.accuracy),
    }
    scores = {"accuracy": over_seeds.spread(figures.accuracy.values())}
    scores |= {name: over_seeds.spread(v.values()) for name, v in figures.baselines.items()}
    if gain := figures.gain():
        scores["gain"] = gain
    for name, spread in scores.items():
        row |= {name: spread.mean, f"{name}_std": spread.deviation}
    return row


def _compare(runs: Sequence[pathlib.Path], output: pathlib.Path) -> pathlib.Path:
    from launch.pages import comparison_page  # Imports TensorFlow, which takes seconds.

    print("drawing compare.html", flush=True)
    return comparison_page.compare(runs, VisualizeConfig(script="visualize"), output)
