"""All experiments by name."""

from collections.abc import Callable

from launch.experiments import (
    all_methods,
    dcco,
    dcco_appendix_c,
    dcco_extensions,
    dcco_few_cases,
    dcco_revisited,
    dcco_table2,
    dec_ssl,
    dec_ssl_clients,
    dec_ssl_epochs,
    dec_ssl_features,
    dec_ssl_mae,
    dec_ssl_networks,
    dec_ssl_robustness,
    dec_ssl_shifts,
    dec_ssl_transfer,
    denav,
    denav_influence,
    denav_table2,
    digits_defaults,
    fedu,
    fedu_ablation,
    fedu_transfer,
    hetero_influence,
    hetero_ssfl,
    production,
)
from tff_ssl.reporting.experiment import Experiment

Build = Callable[[str, str | None, int | None], Experiment]

# Name -> (function that builds the experiment, a line that describes it). The function takes the
# scale (`cpu` or `paper`), and a data set and a number of rounds, None for the experiment's own.
EXPERIMENTS: dict[str, tuple[Build, str]] = {
    **dcco.EXPERIMENTS,
    **dcco_revisited.EXPERIMENTS,
    **dcco_appendix_c.EXPERIMENTS,
    **dcco_table2.EXPERIMENTS,
    **dcco_few_cases.EXPERIMENTS,
    **dcco_extensions.EXPERIMENTS,
    **fedu.EXPERIMENTS,
    **fedu_ablation.EXPERIMENTS,
    **fedu_transfer.EXPERIMENTS,
    **dec_ssl.EXPERIMENTS,
    **dec_ssl_clients.EXPERIMENTS,
    **dec_ssl_epochs.EXPERIMENTS,
    **dec_ssl_features.EXPERIMENTS,
    **dec_ssl_mae.EXPERIMENTS,
    **dec_ssl_networks.EXPERIMENTS,
    **dec_ssl_robustness.EXPERIMENTS,
    **dec_ssl_shifts.EXPERIMENTS,
    **dec_ssl_transfer.EXPERIMENTS,
    **denav_table2.EXPERIMENTS,
    **denav.EXPERIMENTS,
    **denav_influence.EXPERIMENTS,
    **hetero_ssfl.EXPERIMENTS,
    **hetero_influence.EXPERIMENTS,
    **production.EXPERIMENTS,
    **digits_defaults.EXPERIMENTS,
    **all_methods.EXPERIMENTS,
}
