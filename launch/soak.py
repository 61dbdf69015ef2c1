"""Runs many rounds of a small model, and says whether memory, open files and speed stay flat.

`pretrain` runs as a user would run it, with all that a run writes, in a process of its own; memory
and open files are those of all its processes, looked at every second. The first twentieth of the
rounds is left out: graphs are prepared and pools fill.
"""

import csv
import pathlib
import subprocess
import sys
import tempfile
import time

from absl import flags

import launch.options.flags
from launch.options import app

launch.options.flags.define_common_flags()
flags.DEFINE_integer("rounds", 2000, "Number of rounds.", lower_bound=40)
flags.DEFINE_string("algorithm", "dcco", "The algorithm.")
flags.DEFINE_multi_string(
    "pretrain_flag", [], "A further flag of `pretrain`, such as --fold=0; repeatable."
)
flags.adopt_module_key_flags(launch.options.flags)

_SMALL = (
    "--encoder=tiny",
    "--projector=16",
    "--predictor=16",
    "--clients_per_round=8",
    "--eval_every=0",
    "--baselines=",
    "--label_draws=1",
    "--labels_per_class=5",
    "--checkpoint_every=50",
)
_LOOK_SECONDS = 1.0
_MOST_GROWTH = {"rss_mb": 1.05, "open_files": 1.0, "seconds": 1.10}


def main() -> None:
    from launch.benchmarks import processes
    from launch.outputs import run_folder
    from tff_ssl.errors import TrainingError

    args = flags.FLAGS
    folder = processes.output_folder(args.output_dir, "soak")
    with tempfile.TemporaryDirectory(prefix="tff_ssl_soak_") as scratch:
        run = pathlib.Path(scratch) / "run"
        command = [
            sys.executable, "-m", "launch.pretrain", f"--algorithm={args.algorithm}", *_SMALL,
            f"--rounds={args.rounds}", f"--seed={args.seed}", f"--output_dir={run}",
            *args.pretrain_flag,
        ]  # fmt: skip
        print(f"{' '.join(command[2:])}\nlog: {folder / 'log.txt'}", flush=True)
        with open(folder / "log.txt", "w") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                looks = _watch(process, run / "metrics.csv", args.rounds)
            except BaseException:
                process.terminate()
                process.wait()
                raise
        if process.returncode:
            raise TrainingError(f"the run failed: see {folder / 'log.txt'}")
        with open(run / "metrics.csv", newline="") as file:
            seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
    result = {"algorithm": args.algorithm, "rounds": args.rounds, "looks": len(looks)}
    result |= processes.flatness(looks, seconds, args.rounds)
    run_folder.write_json(folder / "soak.json", result)
    _print(result)
    print(f"\nwritten to {folder / 'soak.json'}")


def _watch(process: subprocess.Popen, metrics: pathlib.Path, rounds: int) -> list[dict[str, float]]:
    """What the run's processes hold, until they end: round, `rss_mb`, `open_files`."""
    from launch.benchmarks import processes

    looks: list[dict[str, float]] = []
    shown = time.monotonic()
    while process.poll() is None:
        time.sleep(_LOOK_SECONDS)
        done = metrics.read_bytes().count(b"\n") - 1 if metrics.exists() else 0
        if 0 < done < rounds:  # After the last round comes the evaluation.
            looks.append({"round": done, **processes.held(process.pid)})
        if time.monotonic() - shown > 10 and looks:
            shown = time.monotonic()
            print(
                f"round {done}/{rounds}  {looks[-1]['rss_mb']:.0f} MB  "
                f"{looks[-1]['open_files']:.0f} open files",
                flush=True,
            )
    return looks


def _print(result: dict) -> None:
    print(f"\n{'':28}{'first tenth':>13}{'last tenth':>13}{'ratio':>8}")
    for name, most in _MOST_GROWTH.items():
        first, last = result[f"{name}_first_tenth"], result[f"{name}_last_tenth"]
        verdict = "" if last <= most * first else f"  grows: at most {most:g} is flat"
        print(f"{name:28}{first:13.3f}{last:13.3f}{last / first:8.3f}{verdict}")


if __name__ == "__main__":
    app.run(main)
