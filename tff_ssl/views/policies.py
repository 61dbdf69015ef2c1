"""Augmentation policies: the probabilities and ranges of the random steps, by name.

Sources:
  - "BYOL": Grill et al. 2020, arXiv:2006.07733, appendix on image augmentations;
  - "SimCLR": Chen et al. 2020, arXiv:2002.05709, appendices A and B.9 (CIFAR-10);
  - "DCCO": Vemulapalli et al. 2022, appendix B: BYOL's without blur, or with rotation;
  - "MAE": He et al. 2021, arXiv:2111.06377, appendix A.1.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ViewPolicy:
    """Probabilities and ranges of the random steps; the defaults change nothing.

    Amounts are uniform in their ranges; the aspect ratio of a crop is log-uniform. "By view" means
    one probability for even and one for odd view numbers.
    """

    crop_area: tuple[float, float] | None = None  # range, fraction of the image's; None: no crop
    crop_aspect: tuple[float, float] = (3 / 4, 4 / 3)  # range of width / height, in pixels
    flip: float = 0.0  # probability of a left-right flip
    rotation: float = 0.0  # largest angle in degrees, either way, around the image's centre
    shear: float = 0.0  # largest move of x, either way, as a multiple of y
    scale: tuple[float, float] = (1.0, 1.0)  # range of the magnification
    shift: float = 0.0  # largest shift, either way, as a fraction of the width and of the height
    fill: str = "NEAREST"  # pixels outside of the image: NEAREST, REFLECT, WRAP, CONSTANT (black)
    jitter: float = 0.0  # probability of color jitter: brightness to hue, in random order
    brightness: float = 0.0  # largest addend, either way; pixels are in [0, 1]
    brightness_is_factor: bool = False  # whether a factor in 1 +- brightness replaces the addend
    contrast: float = 0.0  # factor in [1 - contrast, 1 + contrast]; at most 1
    saturation: float = 0.0  # factor in [1 - saturation, 1 + saturation]; at most 1
    hue: float = 0.0  # largest addend, either way, in turns of the color wheel; at most 0.5
    grayscale: float = 0.0  # probability
    blur: tuple[float, float] = (0.0, 0.0)  # probability, by view
    blur_sigma: tuple[float, float] = (0.1, 2.0)  # range of the standard deviation, in pixels
    solarize: tuple[float, float] = (0.0, 0.0)  # probability, by view


_SIMCLR = ViewPolicy(
    crop_area=(0.08, 1.0), flip=0.5, jitter=0.8, brightness=0.8, brightness_is_factor=True,
    contrast=0.8, saturation=0.8, hue=0.2, grayscale=0.2, blur=(0.5, 0.5),
)  # fmt: skip
_BYOL = dataclasses.replace(
    _SIMCLR, brightness=0.4, brightness_is_factor=False, contrast=0.4, saturation=0.2, hue=0.1,
    blur=(1.0, 0.1), solarize=(0.0, 0.2),
)  # fmt: skip

POLICIES: dict[str, ViewPolicy] = {
    "byol": _BYOL,
    "byol_no_blur": dataclasses.replace(_BYOL, blur=(0.0, 0.0)),  # DCCO on CIFAR-100
    "skin": dataclasses.replace(  # DCCO on DERM
        _BYOL, solarize=(0.0, 0.0), rotation=180.0, fill="REFLECT"
    ),
    "simclr": _SIMCLR,  # color strength 1
    "simclr_small": dataclasses.replace(  # CIFAR-10: color strength 0.5, no blur
        _SIMCLR, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, blur=(0.0, 0.0)
    ),
    # Digits: a small crop of a digit, or its mirror image, may be another digit.
    "affine": ViewPolicy(rotation=20.0, shear=0.2, scale=(0.8, 1.2), shift=0.1, fill="CONSTANT"),
    "flip": ViewPolicy(flip=0.5),  # the DCCO paper's supervised training
    "crop_flip": ViewPolicy(crop_area=(0.2, 1.0), flip=0.5),  # MAE
    "none": ViewPolicy(),
}


def resolve(policy: str | ViewPolicy) -> ViewPolicy:
    """The policy itself, or the one of that name; a ValueError if there is none."""
    if isinstance(policy, ViewPolicy):
        return policy
    if policy not in POLICIES:
        raise ValueError(f"Unknown view policy {policy!r}; known: {', '.join(POLICIES)}.")
    return POLICIES[policy]
