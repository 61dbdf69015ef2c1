"""Where TFF computations run: the private local worker, and nodes of Ray."""
