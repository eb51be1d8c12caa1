"""Groups' scores are sacreBLEU's of their lines, and the JSON has one form."""

import json
import random

import pytest
import sacrebleu

from seq2seq.apps.explain.analysis import write_analysis_page
from seq2seq.cli.shared import show_parts
from seq2seq.evaluation.error_analysis import Analysis, Focus, Translated, analyse, count_words, in_ranges
from seq2seq.evaluation.faults import FAULTS

FREQUENCIES = {"gato": 3, "ve": 7, "una": 9, "bola": 51, "azul": 60, "y": 70, "la": 80, "leche": 99}  # el: none


def sentences(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(["el", *FREQUENCIES], k=1 + i % 12)) for i in range(60)]


FIRST = Translated("a.es", sentences(1), sentences(2), sentences(3))
SECOND = Translated("b.es", sentences(4), sentences(5), sentences(6))
SOURCES = [*FIRST.sources, *SECOND.sources]


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    focus = [Focus(0.9, 1.0), None, *[Focus(0.1, 1.0)] * 118]
    return analyse([FIRST, SECOND], frequencies=FREQUENCIES, focus=focus, worst=5, known=FREQUENCIES)


def scores(lines: list[int]) -> tuple[int, float, float]:
    hypotheses = [*FIRST.hypotheses, *SECOND.hypotheses]
    references = [*FIRST.references, *SECOND.references]
    texts = [hypotheses[i] for i in lines], [[references[i] for i in lines]]
    return len(lines), sacrebleu.corpus_bleu(*texts).score, sacrebleu.corpus_chrf(*texts, word_order=2).score


def require_groups(analysis: Analysis, by: str, values: list[int], ranges: dict[str, range]) -> None:
    groups = {group.name: (group.num_sentences, group.bleu, group.chrf) for group in analysis.groups[by]}
    assert groups == {name: scores([i for i, n in enumerate(values) if n in span]) for name, span in ranges.items()}


def test_scores_of_groups_are_those_of_their_lines(analysis: Analysis) -> None:
    lengths = [len(source.split()) for source in SOURCES]
    require_groups(analysis, "length", lengths, {"1–5": range(1, 6), "6–10": range(6, 11), "11–15": range(11, 16)})
    rarest = [min(FREQUENCIES.get(word, 0) for word in source.split()) for source in SOURCES]
    ranges = {"unseen": range(1), "1–5": range(1, 6), "6–50": range(6, 51), "51+": range(51, 100)}
    require_groups(analysis, "rarity", rarest, ranges)
    require_groups(analysis, "file", [*range(120)], {"a.es": range(60), "b.es": range(60, 120)})
    assert (analysis.num_sentences, analysis.bleu, analysis.chrf) == scores([*range(120)])


def test_the_worst_lines_are_those_of_lowest_sentence_chrf(analysis: Analysis) -> None:
    lines = {
        (file.name, number): texts
        for file in (FIRST, SECOND)
        for number, texts in enumerate(zip(file.sources, file.hypotheses, file.references, strict=True), 1)
    }
    values = [sacrebleu.sentence_chrf(h, [r], word_order=2).score for _, h, r in lines.values()]
    assert [line.chrf for line in analysis.worst] == sorted(values)[:5]
    for line in analysis.worst:
        assert (line.source, line.hypothesis, line.reference) == lines[line.file, line.number]


def test_attention_is_a_fault_of_the_lines_that_the_model_read(analysis: Analysis) -> None:
    fault = next(fault for fault in analysis.faults if fault.name == "inattention")
    assert (fault.count, fault.share) == (1, 1 / 119)
    assert fault.worst[0].faults["inattention"] == "90% of the source ignored, entropy 1.0 nats"


def test_the_json_has_one_form(analysis: Analysis) -> None:
    plain = json.loads(json.dumps(analysis.to_dict()))
    assert " ".join(plain) == "num_sentences bleu chrf signatures groups faults invented worst left_out"
    assert (list(plain["signatures"]), list(plain["groups"])) == (["bleu", "chrf"], ["length", "rarity", "file"])
    groups = [group for groups in plain["groups"].values() for group in groups]
    assert {" ".join(group) for group in groups} == {"name num_sentences bleu chrf"}
    assert [fault["name"] for fault in plain["faults"]] == list(FAULTS)
    assert {" ".join(fault) for fault in plain["faults"]} == {"name count share worst"}
    for line in (*plain["worst"], *(line for fault in plain["faults"] for line in fault["worst"])):
        assert " ".join(line) == "file number chrf faults source hypothesis reference"
        assert line["faults"].keys() <= FAULTS.keys()
    assert list(analyse([FIRST], "en", "de").to_dict()) == list(plain)


def test_what_was_not_looked_at_is_named() -> None:
    assert analyse([FIRST], "en", "de").left_out == [
        "left out: scores by rarity: no training text is given",
        "left out: inattention: no model is given",
        "left out: numbers and negation: known for en and es, not for de",
        "left out: invented words: the prepared text of the model's run is not here",
    ]
    assert analyse([FIRST], "en", "zh-TW").left_out[-1] == "left out: invented words: zh-TW has no spaces between words"


def test_invented_words_are_counted_beside_those_of_references() -> None:
    hypotheses = ["el gatuno ve", "Un Gatuno perruno", "el gato"]
    test_set = Translated("a", ["a", "b", "perruno"], hypotheses, ["el gato ve", "el gatete", "el gato"])
    analysis = analyse([test_set], known={"el", "gato", "ve", "un"}, worst=1)
    assert analysis.invented is not None
    assert (analysis.invented.share, analysis.invented.of_references) == (3 / 8, 1 / 7)
    assert [(one.word, one.count, one.line.hypothesis) for one in analysis.invented.most_frequent] == [
        ("gatuno", 2, "Un Gatuno perruno")
    ]
    assert (analysis.faults[-1].count, analysis.faults[-1].worst[0].faults["invented_words"]) == (2, "gatuno, perruno")
    text = "invented words: 37.5% of the words, 14.3% of the references' words; most frequent: gatuno (2, line 2)"
    assert text in analysis.report()
    assert text.replace("'", "&#x27;") in write_analysis_page(analysis, ["a"])


def test_the_report_shows_markup_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["[bold]a[/bold] :cat: \\"]
    files = [Translated(name, texts, texts, texts) for name in ("[x]", "[y]")]
    show_parts(analyse(files).report())
    out = capsys.readouterr().out
    assert "\n  [bold]a[/bold] :cat: \\\n" in out
    assert "[x]:1" in out


def test_words_of_the_sources_are_counted_in_the_training_text() -> None:
    counts = count_words(["The cat. The dog's cat!", "A bird"], ["THE Cat?", "a dog"])
    assert counts == {"the": 2, "cat": 2, "dog": 1, "a": 1}


def test_empty_ranges_and_lines_without_a_value_are_left_out() -> None:
    ranges = in_ranges([0, 7, None, 41, 3, 100], (0, 1, 6, 11, 41))
    assert ranges == [("0", [0]), ("1–5", [4]), ("6–10", [1]), ("41+", [3, 5])]
    wordless = analyse([Translated("a", ["", "1"], ["", "1"], ["", "1"])], frequencies={})
    assert wordless.groups["rarity"] == []
    assert [group.name for group in wordless.groups["length"]] == ["0", "1–5"]
