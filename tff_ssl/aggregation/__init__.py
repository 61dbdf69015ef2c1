"""Aggregators beyond the weighted mean: robust, compressed, secure and differentially private."""
