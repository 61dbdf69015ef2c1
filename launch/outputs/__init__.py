"""Files and pictures that scripts write."""
