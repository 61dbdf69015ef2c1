"""From flags to what a run is made of."""
