"""DCCO: distributed cross correlation optimization."""
