"""Encoders and heads as pure functions of their weights."""

from tff_ssl.models.functional_encoder import from_tff
from tff_ssl.models.keras_encoder import from_keras

__all__ = ["from_keras", "from_tff"]
