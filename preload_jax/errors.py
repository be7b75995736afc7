"""The errors this library raises on purpose."""


class UserError(ValueError):
    """Something the caller gave is wrong.

    The message is one line that says what was wrong, what was expected and what to do; the command line shows it as
    it is, without a traceback.
    """


class DataError(UserError):
    """A data set, or a file or folder that should hold one, is unknown, damaged or not what was asked for."""


class NotPreparedError(DataError):
    """A data set is known but not in the data directory yet."""
