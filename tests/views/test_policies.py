"""The published parameters of the policies."""

import dataclasses

from tff_ssl.views.policies import POLICIES


def test_policies_have_the_published_parameters():
    byol, simclr = POLICIES["byol"], POLICIES["simclr"]
    assert (byol.crop_area, byol.crop_aspect, byol.flip) == ((0.08, 1.0), (3 / 4, 4 / 3), 0.5)
    jitter = (byol.jitter, byol.brightness, byol.contrast, byol.saturation, byol.hue)
    assert jitter == (0.8, 0.4, 0.4, 0.2, 0.1)
    assert (byol.grayscale, byol.blur, byol.solarize) == (0.2, (1.0, 0.1), (0.0, 0.2))
    assert dataclasses.replace(POLICIES["byol_no_blur"], blur=byol.blur) == byol
    assert (simclr.brightness, simclr.contrast, simclr.saturation, simclr.hue) == (
        0.8,
        0.8,
        0.8,
        0.2,
    )
    assert POLICIES["simclr_small"].hue == 0.1
    assert POLICIES["skin"].solarize == (0.0, 0.0)
    assert POLICIES["skin"].blur == byol.blur
