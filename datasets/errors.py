"""The error for wrong input to `datasets`."""


class DatasetError(ValueError):
    """Wrong flags, missing or broken data, or an impossible partition.

    The message is one line that names the flag, or the file and row, and says what would be right.
    """
