"""Bounds the epsilon of private DCCO from below, by guessing which canaries took part in a run.

    python -m launch.privacy_audit --canaries=200 --rounds=20

Trains DCCO on canaries, clients that a fair coin includes or not, and guesses the coins from what
the run releases ("Privacy Auditing with One (1) Training Run", Steinke et al. 2023). A lower bound
above the announced epsilon would refute it; one below it shows only that this attack does not.
Writes `audit.json`.
"""

import dataclasses

from launch.options import app
from launch.options.run_config import ScriptConfig
from launch.options.settings import flag
from launch.outputs import output_folder, run_folder


@dataclasses.dataclass(frozen=True)
class AuditConfig(ScriptConfig):
    """The run that is audited.

    Attributes:
      canaries: Number of canaries, each a client with one image.
      rounds: Number of rounds.
      sampling_rate: Probability that a canary takes part in a round.
      dp_noise_multiplier: Noise multiplier of the means of statistics and of model deltas.
      dp_adaptive_clipping: Let the clips follow the median norms.
    """

    canaries: int = flag(200, 8, 10_000)
    rounds: int = flag(20, 1, 100_000)
    sampling_rate: float = flag(0.5, 1e-6, 1.0)
    dp_noise_multiplier: float = flag(2.0, 1e-3, 1e6)
    dp_adaptive_clipping: bool = False


_CLIP = 0.01  # Below the norms of all contributions, so that all of them are clipped.
_GUESSED_SHARE = 0.5  # Share of the canaries whose coins are guessed.
_CONFIDENCE = 0.95


def main(config: AuditConfig) -> None:
    from tff_ssl.aggregation import differential_privacy
    from tff_ssl.analysis import privacy_audit
    from tff_ssl.runtime import start

    folder = output_folder.choose(config.output.output_dir, "privacy_audit")
    noise, rate = config.dp_noise_multiplier, config.sampling_rate
    mean = differential_privacy.GaussianMean(noise, _CLIP, config.dp_adaptive_clipping)
    delta = differential_privacy.default_delta(config.canaries)
    announced = differential_privacy.Accountant(rate, (noise, noise), delta).epsilon(config.rounds)
    guesses = 2 * round(_GUESSED_SHARE * config.canaries / 2)
    print(
        f"{config.canaries} canaries, {config.rounds} rounds of DCCO, each canary in a round with "
        f"probability {rate:g}\nannounced: epsilon {announced:.3g} at delta "
        f"{delta:.2g}\nresults go to {folder}/",
        flush=True,
    )
    with start():
        audited = privacy_audit.audit_dcco(config.canaries, config.rounds, rate, mean, config.seed)
    right = privacy_audit.right_guesses(audited, guesses)
    bound = privacy_audit.epsilon_lower_bound(config.canaries, guesses, right, delta, _CONFIDENCE)
    result = {
        "canaries": config.canaries,
        "rounds": config.rounds,
        "sampling_rate": rate,
        "noise_multiplier": noise,
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


SCRIPT = app.Script("privacy_audit", main, AuditConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
