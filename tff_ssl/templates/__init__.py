"""The parts of algorithms, and the kinds of algorithms behind one protocol."""
