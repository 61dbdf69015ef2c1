"""Where TFF computations run: this process, the private local worker, and nodes of Ray."""

# Environment variable that --require_private_worker sets for this process and its children: with
# the value 1, workers end with an error instead of listening on an open port.
REQUIRE_PRIVATE_WORKER = "TFF_SSL_REQUIRE_PRIVATE_WORKER"
