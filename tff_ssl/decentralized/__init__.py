"""Networks of clients without a server: topology, events, mixing, schedules and traffic."""
