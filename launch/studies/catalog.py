"""All experiments by name, and all claims of the papers."""

from collections.abc import Callable
from types import ModuleType

from launch.studies import (
    dec_ssl_clients,
    dec_ssl_epochs,
    dec_ssl_featarc,
    dec_ssl_noniid,
    dec_ssl_robustness,
    dec_ssl_transfer,
    fedu_table1,
    fedu_table3,
    fedu_table4,
)
from launch.studies.engine.claims import Noted, PaperClaim, in_order
from tff_ssl.reporting.experiment import Experiment

Build = Callable[[str, str | None, int | None], Experiment]

_MODULES: tuple[ModuleType, ...] = (
    fedu_table1,
    fedu_table4,
    fedu_table3,
    dec_ssl_noniid,
    dec_ssl_featarc,
    dec_ssl_clients,
    dec_ssl_epochs,
    dec_ssl_robustness,
    dec_ssl_transfer,
)

# Name -> (function that builds the experiment, a line that describes it). The function takes the
# scale (`cpu` or `paper`), and a data set and a number of rounds, None for the experiment's own.
EXPERIMENTS: dict[str, tuple[Build, str]] = {
    one.name: (one, one.summary) for module in _MODULES for one in module.STUDIES
}
CLAIMS: list[PaperClaim] = in_order(
    claim for module in _MODULES for claim in getattr(module, "CLAIMS", ())
)
NOTED: dict[str, Noted] = {
    key: noted for module in _MODULES for key, noted in getattr(module, "NOTED", {}).items()
}
