"""Bounds the epsilon of private DCCO from below, by guessing which canaries took part in a run.

    python -m launch.privacy_audit --canaries=200 --rounds=20

Trains DCCO on canaries, clients that a fair coin includes or not, and guesses the coins from what
the run releases ("Privacy Auditing with One (1) Training Run", Steinke et al. 2023). A lower bound
above the announced epsilon would show that the announcement is wrong. One below it shows nothing
but that this attack does not refute it. Writes `audit.json`.
"""

from absl import flags

import launch.options.flags
from launch.options import app

launch.options.flags.define_common_flags()
flags.DEFINE_integer(
    "canaries", 200, "Number of canaries, each a client with one image.", 8, upper_bound=10_000
)
flags.DEFINE_integer("rounds", 20, "Number of rounds.", lower_bound=1, upper_bound=100_000)
flags.DEFINE_float(
    "sampling_rate", 0.5, "Probability that a canary takes part in a round.", 1e-6, upper_bound=1.0
)
flags.DEFINE_float(
    "dp_noise_multiplier",
    2.0,
    "Noise multiplier of the means of statistics and of model deltas.",
    1e-3,
    upper_bound=1e6,
)
flags.DEFINE_boolean("dp_adaptive_clipping", False, "Let the clips follow the median norms.")
flags.adopt_module_key_flags(launch.options.flags)

_CLIP = 0.01  # Below the norms of all contributions, so that all of them are clipped.
_GUESSED_SHARE = 0.5  # Share of the canaries about which something is guessed.
_CONFIDENCE = 0.95


def main() -> None:
    from launch.outputs import output_folder, run_folder
    from tff_ssl.aggregation import differential_privacy
    from tff_ssl.analysis import privacy_audit
    from tff_ssl.runtime import local_worker

    args = flags.FLAGS
    folder = output_folder.choose(args.output_dir, "privacy_audit")
    mean = differential_privacy.GaussianMean(
        args.dp_noise_multiplier, _CLIP, args.dp_adaptive_clipping
    )
    delta = differential_privacy.default_delta(args.canaries)
    announced = differential_privacy.Accountant(
        args.sampling_rate, (args.dp_noise_multiplier,) * 2, delta
    ).epsilon(args.rounds)
    guesses = 2 * round(_GUESSED_SHARE * args.canaries / 2)
    print(
        f"{args.canaries} canaries, {args.rounds} rounds of DCCO, each canary in a round with "
        f"probability {args.sampling_rate:g}\nannounced: epsilon {announced:.3g} at delta "
        f"{delta:.2g}\nresults go to {folder}/",
        flush=True,
    )
    with local_worker.start():
        audited = privacy_audit.audit_dcco(
            args.canaries, args.rounds, args.sampling_rate, mean, args.seed
        )
    right = privacy_audit.right_guesses(audited, guesses)
    bound = privacy_audit.epsilon_lower_bound(args.canaries, guesses, right, delta, _CONFIDENCE)
    result = {
        "canaries": args.canaries,
        "rounds": args.rounds,
        "sampling_rate": args.sampling_rate,
        "noise_multiplier": args.dp_noise_multiplier,
        "delta": delta,
        "epsilon_announced": announced,
        "epsilon_lower_bound": bound,
        "confidence": _CONFIDENCE,
        "guesses": guesses,
        "right_guesses": right,
    }
    run_folder.make(folder)
    run_folder.write_json(folder / "audit.json", result)
    verdict = "does not refute" if bound <= announced else "REFUTES"
    print(
        f"\n{right} of {guesses} guesses are right: epsilon is at least {bound:.3g} with "
        f"confidence {_CONFIDENCE:g}, which {verdict} the announced {announced:.3g}\n"
        f"written to {folder / 'audit.json'}"
    )


if __name__ == "__main__":
    app.run(main)
