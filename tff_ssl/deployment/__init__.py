"""Forms that leave this project: lowered rounds, and encoders as SavedModels."""
