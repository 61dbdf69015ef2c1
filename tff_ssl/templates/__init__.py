"""What algorithms are made of, and the kinds of algorithms behind one protocol."""
