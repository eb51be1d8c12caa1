"""Numbers, times, positions and tags stay; texts keep their number of lines."""

import re
from collections.abc import Callable
from unittest.mock import Mock

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
    model = Mock(return_value=["a translation that is much longer than its source was"])
    text = "1\n00:00:01,000 --> 00:00:02,000\none\ntwo\n\n"
    translated = "1\n00:00:01,000 --> 00:00:02,000\na translation that is much\nlonger than its source was\n\n"
    assert run(".srt", text, model) == translated
    model.assert_called_once_with(["one two"])


def test_the_dash_before_a_speaker_is_not_translated(run: Run):
    model = Mock(side_effect=list)
    text = "1\n00:00:01,000 --> 00:00:02,000\n<i>- Hi.</i>\n– Bye.\n"
    assert run(".srt", text, model) == text
    model.assert_called_once_with(["Hi.", "Bye."])


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("- Hi. - Bye.", ["Hi.", "Bye."]),
        ("[door opens]\nWho is it?", ["door opens", "Who is it?"]),
        ("<i>[door opens]</i> Who is it? [bang]", ["door opens", "Who is it?", "bang"]),
        ("(laughs)\nI (really) do (so)", ["laughs", "I (really) do (so)"]),
        ("♪ La la\nla ♪\nHi. ♪♪", ["La la la", "Hi."]),
        ("ANN: Hi,\nthere.\nMR. LEE 2: Note: bye.", ["Hi, there.", "Note: bye."]),
        ("{\\an8}>> ANN: [sighs] Hi.", ["sighs", "Hi."]),
        ("5\u00a0kg\nof it", ["5 kg of it"]),
        ("<v Ann>Hi,\n<c>you</c>.</v>\n<v.loud Bob>Yes <v Ann>no", ["Hi, you.", "Yes", "no"]),
    ],
)
def test_marks_of_speakers_sounds_and_songs_are_not_translated(run: Run, text: str, texts: list[str]):
    model, cue = Mock(side_effect=list), "1\n00:00:01,000-->00:00:02,000\n{}\n"
    assert run(".srt", cue.format(text), model) == cue.format(text)
    model.assert_called_once_with(texts)


@pytest.mark.parametrize(
    ("cues", "translation", "expected"),
    [
        (["I have lived here", "since then."], "Vivo aquí desde entonces.", ["Vivo aquí desde", "entonces."]),
        (
            ["<i>I saw John</i>", "<i>Smith\nand you.</i>"],
            "Vi a John Smith y a ti.",
            ["<i>Vi a John</i>", "<i>Smith y\na ti.</i>"],
        ),
        (["One,", "two", "and three."], "Uno, dos y tres.", ["Uno,", "dos", "y tres."]),
        (["One.", "Two."], "Uno.", ["Uno.", "Uno."]),
        (["TITLE", "One."], "Uno.", ["Uno.", "Uno."]),
        (["One", "- two"], "Uno.", ["Uno.", "- Uno."]),
    ],
)
def test_a_sentence_in_several_cues_is_translated_as_one_and_cut(
    run: Run, cues: list[str], translation: str, expected: list[str]
):
    def write(texts: list[str]) -> str:
        times = ("00:00:01,000 --> 00:00:02,000", "00:00:02,000 --> 00:00:03,000", "00:00:03,000 --> 00:00:04,000")
        return "\n".join(f"{time}\n{text}\n" for time, text in zip(times, texts, strict=False))

    assert run(".srt", write(cues), lambda texts: [translation for _ in texts]) == write(expected)


@pytest.mark.parametrize(
    ("ending", "text", "message"),
    [
        (".srt", "", "it has no subtitle"),
        (".srt", "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n0:1 --> 0:2\nb\n", "line 6 is not as expected"),
        (".srt", "1\n00:00:01,000 --> 00:00:02,000\na --> b\n", "line 3 is not as expected"),
        (".vtt", "1\n00:00:01.000 --> 00:00:02.000\na\n", "it does not begin with WEBVTT"),
        (".vtt", "WEBVTT\n\nNOTE nothing\n", "it has no subtitle"),
        (".vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\na\n\n00:03,000 --> 00:04,000\nb\n", "line 6 is not as expected"),
    ],
)
def test_a_file_of_another_form_is_refused(run: Run, ending: str, text: str, message: str):
    with pytest.raises(ValueError, match=rf"in{ending}: {message}"):
        run(ending, text)


def test_text_behind_a_blank_line_in_a_subtitle_is_translated_too(run: Run):
    text = "1\n00:00:01,000 --> 00:00:02,000\none\n\ntwo\nthree\n\n2\n00:00:03,000 --> 00:00:04,000\nFour\n"
    model = Mock(side_effect=list)
    assert run(".srt", text, model) == text
    model.assert_called_once_with(["one", "two three", "Four"])


def test_a_subtitle_may_follow_without_a_blank_line(run: Run):
    text = "1\n00:00:01,000 --> 00:00:02,000\none\n2\n00:00:03,000 --> 00:00:04,000\ntwo\n"
    assert run(".srt", text) == text.replace("one", "ONE").replace("two", "TWO")


@pytest.mark.slow
def test_a_very_long_line_is_read_in_linear_time(run: Run):
    text = "1\n00:00:01,000 --> 00:00:02,000\n" + "word " * 60_000 + "\n"
    assert run(".srt", text, list).split() == text.split()


VTT = """WEBVTT - Cats

NOTE not a word of this
is said

STYLE
::cue { color: papayawhip }

intro
00:01.000 --> 00:04.000 align:start line:0%
<v Ann>Hello</v> there,
my <i>friend</i>.

00:00:05.000 --> 00:00:06.000
- Hi <00:00:05.500>again
- <c.loud>Bye</c> &amp; thanks

NOTE between cues

1:00:07.000 --> 1:00:08.000
1999"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_webvtt_keeps_its_comments_styles_names_settings_and_tags(run: Run, end: str):
    expected = VTT
    for word in ("Hello", "there", "my", "friend", "Hi", "again", "Bye", "thanks"):
        expected = re.sub(rf"\b{word}\b", word.upper(), expected, count=1)
    translated = run(".vtt", VTT.replace("\n", end))
    assert translated.split() == expected.split()
    assert translated.count(end) == VTT.count("\n")


def test_a_webvtt_cue_also_ends_where_the_next_one_begins(run: Run):
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\none\n00:02.000 --> 00:03.000\ntwo\n"
    assert run(".vtt", text) == text.replace("one", "ONE").replace("two", "TWO")
