"""The answers of docs/quiz.md name the lines that have the code; `pytest --update-golden` writes moved lines anew."""

import re

import pytest

from tests.documented import REPOSITORY

PAGE = REPOSITORY / "docs/quiz.md"
ANSWER = re.compile(r"^(\d+\. `)([\w/]+\.py):(\d+)(`: `(.+?)`)", re.M)


def with_lines(text: str) -> str:
    """Return the page with the number of the one line that has each answer's code."""

    def locate(answer: re.Match[str]) -> str:
        lines = (REPOSITORY / answer[2]).read_text(encoding="utf-8").splitlines()
        numbers = [number for number, line in enumerate(lines, start=1) if answer[5] in line]
        assert len(numbers) == 1, f"{answer[2]} has `{answer[5]}` in the lines {numbers}"
        return f"{answer[1]}{answer[2]}:{numbers[0]}{answer[4]}"

    return ANSWER.sub(locate, text)


def test_every_question_has_an_answer_by_file_and_line(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    questions, answers = text.split("## Answers")
    assert len(ANSWER.findall(answers)) == len(re.findall(r"^\d+\. ", questions, re.M)) == 10
    if request.config.getoption("--update-golden"):
        PAGE.write_text(with_lines(text), encoding="utf-8")
    else:
        assert with_lines(text) == text, "lines have moved: pytest tests/unit/test_quiz.py --update-golden"
