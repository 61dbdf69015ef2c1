"""Forms for use outside this project: lowered rounds, and encoders."""
