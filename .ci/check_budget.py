"""Check the lines of every room, and the words of the docs, against .ci/budget; with --lower, lower its numbers."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUDGET = ROOT / ".ci/budget"  # in each line, a number and a room: a folder with all that is in it, or * for its files
CODE = (".py", ".js", ".c", ".css", ".html")


def main() -> None:
    """End with a line for every room that has grown."""
    files = [ROOT / name for name in git("ls-files").splitlines()]
    budget = read(BUDGET.read_text(encoding="utf-8"))
    found = {room: count(room, [file for file in files if file.is_file()]) for room in budget}
    if "--lower" in sys.argv:
        lowered = {room: min(found[room], budget[room]) for room in budget}
        BUDGET.write_text("".join(f"{number:6} {room}\n" for room, number in lowered.items()), encoding="utf-8")
        return
    errors = [f"{room} has {found[room]:,}, more than {most:,}" for room, most in budget.items() if found[room] > most]
    before = read(git("show", "HEAD~1:.ci/budget"))
    for rooms in (("seq2seq",), ("tests",), ("docs",), ("seq2seq", "benchmarks", "examples")):  # others may shift lines
        most, now = (sum(numbers.get(room, 0) for room in rooms) for numbers in (before, budget))
        if before and now > most:
            errors.append(f"the number of {' and '.join(rooms)} rose from {most:,} to {now:,}")
    if errors:
        sys.exit("\n".join(f".ci/budget: {error}: delete first (CONTRIBUTING.md)" for error in errors))


def git(*arguments: str) -> str:
    """Return what git prints; nothing if it fails, as for a file that the last commit lacks."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", check=False).stdout


def read(text: str) -> dict[str, int]:
    """Return the number of each room."""
    return {room: int(number) for number, room in map(str.split, text.splitlines())}


def count(room: str, files: list[Path]) -> int:
    """Return a room's lines of code; of docs, the words of its pages."""
    folder = ROOT / room.removesuffix("/*")
    inside = [file for file in files if (file.parent == folder if room.endswith("*") else folder in file.parents)]
    if room == "docs":
        return sum(len(file.read_text(encoding="utf-8").split()) for file in inside if file.suffix == ".md")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in inside if file.suffix in CODE)


if __name__ == "__main__":
    main()
