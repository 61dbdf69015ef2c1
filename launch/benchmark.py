"""Times DCCO's round against the centralized TensorFlow step on as many samples, in one run.

Each measured program is a process of its own, so that its memory is its own; they take turns, so
that a noisy machine is noisy for all of them. Data reading and views are part of every step.
"""

import statistics
import tempfile
from typing import Any

from absl import flags

import launch.flags
from launch import app

launch.flags.define_common_flags()
flags.DEFINE_list("splits", ["512x1", "128x4", "32x16"], "CLIENTSxSAMPLES of the rounds measured.")
flags.DEFINE_integer(
    "repetitions", 5, "Timed steps of each program, after one to warm up.", lower_bound=1
)
flags.DEFINE_integer("projection", 512, "Width of the projector's three layers.", lower_bound=8)
flags.DEFINE_integer(
    "steady_rounds",
    0,
    "Also run so many rounds of the first split, and report the growth of memory over them.",
    lower_bound=0,
)
flags.adopt_module_key_flags(launch.flags)


def main() -> None:
    from launch import measure, run_folder

    args = flags.FLAGS
    splits = [_parse_split(text) for text in args.splits]
    folder = measure.output_folder(args.output_dir)
    print(
        f"small ResNet, 32x32x3, projector 3 x {args.projection}, views byol_no_blur; "
        f"{args.repetitions} repetitions, programs in turn"
    )
    with tempfile.TemporaryDirectory(prefix="tff_ssl_benchmark_") as scratch:
        results = _measure(splits, scratch, args)
    run_folder.write_json(folder / "benchmark.json", results)
    _print(results)
    print(f"\nwritten to {folder / 'benchmark.json'}")


def _parse_split(text: str) -> tuple[int, int]:
    from tff_ssl.errors import ConfigurationError

    clients, _, samples = text.partition("x")
    if not (clients.isdecimal() and samples.isdecimal() and int(clients) and int(samples)):
        raise ConfigurationError(f"--splits takes CLIENTSxSAMPLES such as 128x4; got {text!r}")
    return int(clients), int(samples)


def _measure(splits, scratch: str, args: flags.FlagValues) -> dict[str, Any]:
    from launch import measure

    sizes = sorted({clients * samples for clients, samples in splits})
    rounds = []
    centralized = None
    for size in sizes:
        same = [split for split in splits if split[0] * split[1] == size]
        programs = {
            "centralized": measure.Child(measure.centralized_step, size, args.projection, args.seed)
        }
        for clients, samples in same:
            programs[f"{clients}x{samples}"] = measure.Child(
                measure.dcco_round, clients, samples, args.projection, args.seed, scratch
            )
        try:
            seconds = measure.in_turn(programs, args.repetitions)
            peaks = {name: child.peak_rss_mb() for name, child in programs.items()}
            step = statistics.median(seconds["centralized"])
            centralized = centralized or {
                "samples": size, "seconds": step, "peak_rss_mb": peaks["centralized"],
            }  # fmt: skip
            for clients, samples in same:
                name = f"{clients}x{samples}"
                pairs = zip(seconds[name], seconds["centralized"], strict=True)
                rounds.append(
                    {
                        "algorithm": "dcco",
                        "clients": clients,
                        "samples_per_client": samples,
                        "seconds": statistics.median(seconds[name]),
                        # Of each repetition's own pair: the machine's mood is then the same.
                        "ratio": statistics.median(a / b for a, b in pairs),
                        "peak_rss_mb": peaks[name],
                        "first_round_seconds": programs[name].first_seconds,
                    }
                )
                if args.steady_rounds and len(rounds) == 1:
                    rounds[0]["steady"] = measure.steady(programs[name], args.steady_rounds)
        finally:
            for child in programs.values():
                child.close()
    return {"centralized": centralized, "rounds": rounds}


def _print(results: dict[str, Any]) -> None:
    step = results["centralized"]
    print(f"\n{'':24}{'seconds':>10}{'ratio':>8}{'peak MB':>10}")
    print(
        f"{'centralized, ' + str(step['samples']):24}{step['seconds']:10.2f}{1:8.2f}"
        f"{step['peak_rss_mb']:10.0f}"
    )
    for row in results["rounds"]:
        name = f"dcco, {row['clients']} x {row['samples_per_client']}"
        print(f"{name:24}{row['seconds']:10.2f}{row['ratio']:8.2f}{row['peak_rss_mb']:10.0f}")
        if "steady" in row:
            print(f"  {row['steady']}")


if __name__ == "__main__":
    app.run(main)
