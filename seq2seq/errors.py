"""The exception for mistakes that a user can make and mend, and what others mean; knows nothing else."""


class UserError(ValueError):
    """A caller's mistake, told in one line: what is wrong, the value found, the way out."""


class UnfinishedError(UserError):
    """A job was broken off by what a second try need not meet: what is done stays, and the same command goes on."""


def in_short(told: object) -> str:
    """Return the text of an error or value from a file in one line, of 200 characters at most."""
    return " ".join(str(told).split())[:200]


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception means that a smaller batch could work."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in message or "defaultcpuallocator" in message
