import pytest

from seq2seq.errors import UserError
from seq2seq.settings.compose import one_line


def caused(error: Exception, cause: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error from cause
    return caught.value


def test_a_user_error_is_shown_without_its_cause() -> None:
    error = caused(UserError("a.tsv:3 is not UTF-8:\n convert it"), ValueError("'utf-8' codec can't decode"))
    assert one_line(error) == "a.tsv:3 is not UTF-8: convert it"


def test_hydras_errors_are_shown_with_their_cause() -> None:
    error = caused(ValueError("cannot compose\nin this file"), RuntimeError("no such key\nand more"))
    assert one_line(error) == "cannot compose (no such key)"
