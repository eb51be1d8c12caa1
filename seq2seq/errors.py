"""The one exception for mistakes that a user can make and mend; knows nothing else."""


class UserError(ValueError):
    """A caller's mistake, told in one line: what is wrong, the value found, the way out."""
