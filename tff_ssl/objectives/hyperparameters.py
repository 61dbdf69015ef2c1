"""Hyperparameters of the losses."""

import dataclasses

from tff_ssl.bounds import Bounded, bounded, one_of
from tff_ssl.losses import vicreg


@dataclasses.dataclass(frozen=True)
class ObjectiveHyperparameters(Bounded):
    """Hyperparameters of the losses, with the DCCO paper's values where it has one.

    Attributes:
      lambda_: Tradeoff parameter lambda of `cco`, in Eq. 1.
      temperature: Temperature tau of `nt_xent`.
      invariance_weight: Weight lambda of `vicreg`, in its Eq. 6.
      variance_weight: Weight mu of `vicreg`.
      covariance_weight: Weight nu of `vicreg`.
      mask_ratio: Fraction of the patches that `mae` hides from the encoder.
      byol_direction: Direction of `byol`'s predictions: `both` for the symmetric loss of BYOL's
        paper; `one` for the prediction of the second view's target from the first view alone, as
        FedU and Hetero-SSFL print the loss.
      squared_radius: Largest squared norm mu of the projections of `spectral`; longer ones are
        shortened.
      normalize_patches: Whether the targets of `mae` are patches with mean 0 and deviation 1.
    """

    lambda_: float = bounded(20.0, at_least=0)
    temperature: float = bounded(0.1, above=0)
    invariance_weight: float = bounded(25.0, at_least=0)
    variance_weight: float = bounded(25.0, at_least=0)
    covariance_weight: float = bounded(1.0, at_least=0)
    mask_ratio: float = bounded(0.75, above=0, below=1)
    normalize_patches: bool = True
    byol_direction: str = one_of("both", ("both", "one"))
    squared_radius: float = bounded(4.0, above=0)

    @property
    def vicreg_weights(self) -> vicreg.VICRegWeights:
        return vicreg.VICRegWeights(
            self.invariance_weight, self.variance_weight, self.covariance_weight
        )
