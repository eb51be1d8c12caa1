"""The exception for mistakes that a user can make and mend; knows nothing else."""


class UserError(ValueError):
    """A caller's mistake, told in one line: what is wrong, the value found, the way out."""


class UnfinishedError(UserError):
    """A job was broken off by what a second try need not meet: what is done stays, and the same command goes on."""


def in_short(told: object) -> str:
    """Return the text of an error or value from a file in one line, of 200 characters at most."""
    return " ".join(str(told).split())[:200]
