"""The parts of the mathematics that algorithms are made of."""
