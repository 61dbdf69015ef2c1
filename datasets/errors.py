"""What a user of `datasets` can get wrong."""


class DatasetError(ValueError):
    """Wrong flags, missing or broken data, an impossible partition.

    The message is one line which names the flag, or the file and row, and says what would be
    right. Launch scripts print it as `error: <message>` and exit with code 1.
    """
