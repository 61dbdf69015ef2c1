"""Runs many rounds of a small model, and checks that memory, open files and speed stay constant.

`pretrain` runs in a process of its own and writes all of its files, as for a user. Memory and open
files of all its processes are sampled ten times a second. The first twentieth of the rounds is left
out, because graphs are still being built and memory pools filled.
"""

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import time

from launch.options import app
from launch.options.run_config import ScriptConfig
from launch.options.settings import flag
from launch.outputs import output_folder, run_folder
from tff_ssl import whole_files
from tff_ssl.errors import TrainingError


@dataclasses.dataclass(frozen=True)
class SoakConfig(ScriptConfig):
    """The run that is watched.

    Attributes:
      algorithm: Name of the algorithm.
      rounds: Number of rounds.
      pretrain_flag: A further flag of `pretrain`, such as --fold=0; repeatable.
    """

    algorithm: str = "dcco"
    rounds: int = flag(2000, 40)
    pretrain_flag: tuple[str, ...] = flag((), repeated=True)


_SMALL = (
    "--encoder=tiny", "--projector=16", "--predictor=16", "--clients_per_round=8", "--eval_every=0",
    "--baselines=", "--label_draws=1", "--labels_per_class=5", "--checkpoint_every=50",
)  # fmt: skip
_SAMPLING_SECONDS = 0.1
_PRINTING_SECONDS = 10
# Largest ratio of the last tenth to the first that counts as constant.
_MAX_GROWTH = {"rss_mb": 1.05, "open_files": 1.0, "seconds": 1.10}


def main(args: SoakConfig) -> None:
    from launch.benchmarks import processes
    from tff_ssl.reporting import checked_files
    from tff_ssl.runtime import child_process

    folder = output_folder.choose(args.output.output_dir, "soak")
    run_folder.make(folder)
    with tempfile.TemporaryDirectory(prefix="tff_ssl_soak_") as scratch:
        run = pathlib.Path(scratch) / "run"
        command = [
            sys.executable, "-m", "launch.pretrain", f"--algorithm={args.algorithm}", *_SMALL,
            f"--rounds={args.rounds}", f"--seed={args.seed}", f"--output_dir={run}",
            *args.pretrain_flag,
        ]  # fmt: skip
        print(f"{' '.join(command[2:])}\nlog: {folder / 'log.txt'}", flush=True)
        with whole_files.append(folder / "log.txt") as log:
            process = child_process.start(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                observations = _watch(process, run / "metrics.csv", args.rounds)
            except BaseException:
                process.terminate()
                process.wait()
                raise
        if process.returncode:
            raise TrainingError(f"the run failed: see {folder / 'log.txt'}")
        seconds = [row["seconds"] for row in checked_files.read_metrics(run / "metrics.csv")]
    result = {"algorithm": args.algorithm, "rounds": args.rounds, "looks": len(observations)}
    result |= processes.first_and_last_tenth(observations, seconds, args.rounds)
    run_folder.write_json(folder / "soak.json", result)
    _print(result)
    print(f"\nwritten to {folder / 'soak.json'}")


def _watch(process: subprocess.Popen, metrics: pathlib.Path, rounds: int) -> list[dict[str, float]]:
    """Samples `round`, `rss_mb` and `open_files` of the run's processes until they end."""
    from launch.benchmarks import processes

    observations: list[dict[str, float]] = []
    printed = time.monotonic()
    while process.poll() is None:
        time.sleep(_SAMPLING_SECONDS)
        use = processes.resource_use(process.pid)
        done = metrics.read_bytes().count(b"\n") - 1 if metrics.exists() else 0
        # The evaluation, with files of its own, follows the last round.
        if 0 < done < rounds:
            observations.append({"round": done, **use})
        if time.monotonic() - printed > _PRINTING_SECONDS and observations:
            printed = time.monotonic()
            shown = f"{use['rss_mb']:.0f} MB  {use['open_files']:.0f} open files"
            print(f"round {done}/{rounds}  {shown}", flush=True)
    return observations


def _print(result: dict) -> None:
    print(f"\n{'':28}{'first tenth':>13}{'last tenth':>13}{'ratio':>8}")
    for name, most in _MAX_GROWTH.items():
        first, last = result[f"{name}_first_tenth"], result[f"{name}_last_tenth"]
        verdict = "" if last <= most * first else f"  grows: at most {most:g} is flat"
        print(f"{name:28}{first:13.3f}{last:13.3f}{last / first:8.3f}{verdict}")


SCRIPT = app.Script("soak", main, SoakConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
