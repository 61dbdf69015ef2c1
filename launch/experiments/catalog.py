"""All experiments by name."""

from collections.abc import Callable

from launch.experiments import (
    all_methods,
    dcco,
    dcco_extensions,
    dcco_table2,
    dec_ssl,
    denav,
    denav_influence,
    denav_table2,
    digits_defaults,
    fedu,
    hetero_ssfl,
    production,
)
from tff_ssl.reporting.experiment import Experiment

Build = Callable[[str, str | None, int | None], Experiment]

# Name -> (function that builds the experiment, a line that describes it). The function takes the
# scale (`cpu` or `paper`), and a data set and a number of rounds, None for the experiment's own.
EXPERIMENTS: dict[str, tuple[Build, str]] = {
    **dcco.EXPERIMENTS,
    **dcco_table2.EXPERIMENTS,
    **dcco_extensions.EXPERIMENTS,
    **fedu.EXPERIMENTS,
    **dec_ssl.EXPERIMENTS,
    **denav_table2.EXPERIMENTS,
    **denav.EXPERIMENTS,
    **denav_influence.EXPERIMENTS,
    **hetero_ssfl.EXPERIMENTS,
    **production.EXPERIMENTS,
    **digits_defaults.EXPERIMENTS,
    **all_methods.EXPERIMENTS,
}
