"""All experiments by name, and all claims of the papers."""

from launch.studies import (
    adapting,
    all_methods,
    dcco,
    dcco_beyond,
    dcco_revisited,
    dcco_table2,
    dec_ssl,
    dec_ssl_clients,
    dec_ssl_featarc,
    dec_ssl_skewed,
    denav,
    denav_influence,
    denav_table2,
    denav_table3,
    fedu,
    fedu_ablation,
    hetero_ssfl,
)
from launch.studies.engine import study
from launch.studies.engine.claims import PaperClaim
from launch.studies.engine.study import Study

_MODULES = (
    dcco, dcco_revisited, dcco_table2, dcco_beyond, fedu, fedu_ablation, dec_ssl, dec_ssl_featarc,
    dec_ssl_clients, dec_ssl_skewed, denav_table2, denav_table3, denav, denav_influence,
    hetero_ssfl, adapting, all_methods,
)  # fmt: skip

# Name -> the experiment, and a line that describes it.
EXPERIMENTS: dict[str, tuple[Study, str]] = {
    one.name: (one, one.summary)
    for module in _MODULES
    for one in vars(module).values()
    if isinstance(one, Study)
}
# Experiments that have a scale for one GPU, in the order in which `--scale=gpu` runs them.
OF_GPU = (
    "dcco_table1", "dec_ssl_figure5", "fedu_table1", "dec_ssl_figure2", "dec_ssl_figure6",
    "hetero_table3", "denav_table2", "denav_table4",
)  # fmt: skip
# Each experiment's name and each of its scales.
SCALES = [
    (name, scale)
    for name in EXPERIMENTS
    for scale in study.SCALES
    if scale != "gpu" or name in OF_GPU
]
CLAIMS: list[PaperClaim] = sorted(
    (claim for module in _MODULES for claim in getattr(module, "CLAIMS", ())),
    key=lambda claim: claim.order,
)
