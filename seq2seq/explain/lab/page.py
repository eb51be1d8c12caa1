"""A page of prose with places that are filled in by commands; knows nothing of what is filled in."""

from pathlib import Path

from seq2seq.errors import UserError


def fill(page: Path, key: str, text: str, *, title: str) -> None:
    """Put text between the page's `<!-- begin KEY -->` and `<!-- end KEY -->`, in place of what was there.

    A page without them gets them at its end, and one that is not there is begun with the title.

    Raises:
        UserError: only one of the two is there, or the page cannot be written.
    """
    begin, end = f"<!-- begin {key} -->", f"<!-- end {key} -->"
    try:
        before = page.read_text(encoding="utf-8") if page.exists() else f"# {title}\n"
        if begin not in before and end not in before:
            before = f"{before.rstrip()}\n\n{begin}\n{end}\n"
        head, found_begin, rest = before.partition(begin)
        _, found_end, tail = rest.partition(end)
        if not found_begin or not found_end:
            raise UserError(f"{page} has only one of {begin} and {end}: put the other one back")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"{head}{begin}\n{text.strip()}\n{end}{tail}", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {page}: {error.strerror or error}") from error
