"""Hyperparameters of the losses."""

import dataclasses

from tff_ssl.losses import vicreg


@dataclasses.dataclass(frozen=True)
class ObjectiveHyperparameters:
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

    lambda_: float = 20.0
    temperature: float = 0.1
    invariance_weight: float = 25.0
    variance_weight: float = 25.0
    covariance_weight: float = 1.0
    mask_ratio: float = 0.75
    normalize_patches: bool = True
    byol_direction: str = "both"
    squared_radius: float = 4.0

    def __post_init__(self):
        if self.lambda_ < 0:
            raise ValueError(f"lambda must not be negative; got {self.lambda_}")
        if self.temperature <= 0:
            raise ValueError(f"temperature must be positive; got {self.temperature}")
        if self.squared_radius <= 0:
            raise ValueError(f"squared_radius must be positive; got {self.squared_radius}")
        if min(self.vicreg_weights) < 0:
            raise ValueError(f"VICReg's weights must not be negative; got {self.vicreg_weights}")
        if self.byol_direction not in ("both", "one"):
            raise ValueError(
                f"byol_direction must be one of both, one; got {self.byol_direction!r}"
            )
        if not 0 < self.mask_ratio < 1:
            raise ValueError(f"mask_ratio must be between 0 and 1; got {self.mask_ratio}")

    @property
    def vicreg_weights(self) -> vicreg.VICRegWeights:
        return vicreg.VICRegWeights(
            self.invariance_weight, self.variance_weight, self.covariance_weight
        )
