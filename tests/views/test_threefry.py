"""Threefry against the known answers of its authors."""

import pytest
import tensorflow as tf

from tff_ssl.views.threefry import threefry


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # Random123 1.14, tests/kat_vectors, "threefry2x64 20"
        ((0, 0), (0, 0), (0xC2B6E3A8C2C69865, 0x6F81ED42F350084D)),
        ((2**64 - 1,) * 2, (2**64 - 1,) * 2, (0xE02CB7C4D95D277A, 0xD06633D0893B8B68)),
        (
            (0x243F6A8885A308D3, 0x13198A2E03707344),
            (0xA4093822299F31D0, 0x082EFA98EC4E6C89),
            (0x263C7D30BB0F0AF1, 0x56BE8361D3311526),
        ),
    ],
)
def test_threefry_known_answers(counter, key, expected):
    pairs = [tuple(tf.constant(word, tf.uint64) for word in pair) for pair in (key, counter)]
    assert tuple(int(word) for word in threefry(*pairs)) == expected
