"""Numbers, times, positions and tags stay; texts keep their number of lines."""

import re
from collections.abc import Callable

import pytest

Run = Callable[..., str]
SUBTITLES = """1
00:00:01,000 --> 00:00:02,500 X1:10 X2:20 Y1:1 Y2:3
<i>Hello</i> there,
my friend.

7
00:00:00,500 --> 00:00:04,000
- Hi. {\\an8}
- Bye,
<font color="red">all</font>!

8
00:00:05,000 --> 00:00:06,000

9
00:00:07.000 --> 00:00:08.000
1999"""


def test_subtitles_keep_all_but_their_words(run: Run):
    expected = SUBTITLES
    for word in ("Hello", "there", "my friend", "Hi", "Bye", "all"):
        expected = expected.replace(word, word.upper(), 1)
    assert run(".srt", SUBTITLES).split() == expected.split()


def test_a_text_that_does_not_change_keeps_its_line_breaks(run: Run):
    text = SUBTITLES.replace("Hello</i> there,", "Hello </i>  a very long first line,")
    assert run(".srt", text, list) == text


def test_tags_within_one_another_make_no_new_tag(run: Run):
    given = "1\n00:00:01,000 --> 00:00:02,500\n<i>Hello<<b>/i> there\n"
    translation = run(".srt", given)
    assert re.findall("</?[a-z]+>", translation, re.IGNORECASE) == ["<i>", "<b>"]
    assert "HELLO" in translation


def test_a_sentence_in_two_lines_is_translated_as_one_and_broken_anew(run: Run):
    given_texts = []

    def model(texts: list[str]) -> list[str]:
        given_texts.extend(texts)
        return ["a translation that is much longer than its source was"]

    text = "1\n00:00:01,000 --> 00:00:02,000\none\ntwo\n\n"
    translated = "1\n00:00:01,000 --> 00:00:02,000\na translation that is much\nlonger than its source was\n\n"
    assert run(".srt", text, model) == translated
    assert given_texts == ["one two"]


def test_the_dash_before_a_speaker_is_not_translated(run: Run):
    given_texts = []

    def collect(texts: list[str]) -> list[str]:
        given_texts.extend(texts)
        return texts

    text = "1\n00:00:01,000 --> 00:00:02,000\n<i>- Hi.</i>\n– Bye.\n"
    assert run(".srt", text, collect) == text
    assert given_texts == ["Hi.", "Bye."]


def test_windows_line_ends_and_a_byte_order_mark_stay(run: Run):
    text = "\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\none\r\n"
    assert run(".srt", text) == text.replace("one", "ONE")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no subtitle"),
        ("1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n0:1 --> 0:2\nb\n", "line 6 is not as expected"),
        ("1\n00:00:01,000 --> 00:00:02,000\na --> b\n", "line 3 is not as expected"),
    ],
)
def test_a_file_of_another_form_is_refused(run: Run, text: str, message: str):
    with pytest.raises(ValueError, match=rf"in.srt: {message}"):
        run(".srt", text)


def test_text_behind_a_blank_line_in_a_subtitle_is_translated_too(run: Run):
    text = "1\n00:00:01,000 --> 00:00:02,000\none\n\ntwo\nthree\n\n2\n00:00:03,000 --> 00:00:04,000\nfour\n"
    given_texts: list[str] = []

    def collect(texts: list[str]) -> list[str]:
        given_texts.extend(texts)
        return texts

    assert run(".srt", text, collect) == text
    assert given_texts[:3] == ["one", "two three", "four"]


def test_a_subtitle_may_follow_without_a_blank_line(run: Run):
    text = "1\n00:00:01,000 --> 00:00:02,000\none\n2\n00:00:03,000 --> 00:00:04,000\ntwo\n"
    assert run(".srt", text) == text.replace("one", "ONE").replace("two", "TWO")


@pytest.mark.slow
def test_a_very_long_line_is_read_in_linear_time(run: Run):
    text = "1\n00:00:01,000 --> 00:00:02,000\n" + "word " * 60_000 + "\n"
    assert run(".srt", text, list).split() == text.split()
