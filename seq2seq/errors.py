"""The exceptions for mistakes that a user can correct, and the meaning of other exceptions; knows nothing else."""


class UserError(ValueError):
    """A caller's mistake, described in one line: what is wrong, the value found, and how to correct it."""


class UnfinishedError(UserError):
    """A job was interrupted, and a second try may succeed: finished work is kept, and the same command resumes."""


def in_short(told: object) -> str:
    """Return the text of an error or value in one line of at most 200 characters."""
    return " ".join(str(told).split())[:200]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out, so that a smaller batch could work."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in message or "defaultcpuallocator" in message
