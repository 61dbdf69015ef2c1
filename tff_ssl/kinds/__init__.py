"""The four kinds of algorithms behind one protocol."""
