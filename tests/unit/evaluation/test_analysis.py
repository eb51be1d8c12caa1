"""Groups' scores are sacreBLEU's of their lines, and the JSON has one form."""

import io
import random

import pytest
import sacrebleu
from jsonschema import Draft202012Validator
from rich.console import Console

from seq2seq.errors import UserError
from seq2seq.evaluation.analysis import Analysis, Focus, Translated, analyse, count_words, in_ranges
from seq2seq.evaluation.faults import FAULTS

NUMBER, TEXT = {"type": "number"}, {"type": "string"}


def thing(**properties: dict) -> dict:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


COUNT = {"type": "integer", "minimum": 0}
LINE = thing(
    file=TEXT,
    number={"type": "integer", "minimum": 1},
    chrf=NUMBER,
    faults={"type": "object", "propertyNames": {"enum": list(FAULTS)}, "additionalProperties": TEXT},
    source=TEXT,
    hypothesis=TEXT,
    reference=TEXT,
)
LINES = {"type": "array", "items": LINE}
GROUP = thing(name=TEXT, num_sentences=COUNT, bleu=NUMBER, chrf=NUMBER)
SCHEMA = thing(
    num_sentences=COUNT,
    bleu=NUMBER,
    chrf=NUMBER,
    signatures=thing(bleu=TEXT, chrf=TEXT),
    groups={
        "type": "object",
        "propertyNames": {"enum": ["length", "rarity", "file"]},
        "additionalProperties": {"type": "array", "items": GROUP},
    },
    faults={
        "type": "array",
        "items": thing(
            name={"enum": list(FAULTS)}, count=COUNT, share={"type": "number", "minimum": 0, "maximum": 1}, worst=LINES
        ),
    },
    worst=LINES,
    left_out={"type": "array", "items": TEXT},
)

FREQUENCIES = {"gato": 3, "ve": 7, "una": 9, "bola": 51, "azul": 60, "y": 70, "la": 80, "leche": 99}  # el: none


def sentences(seed: int, longest: int = 12) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(["el", *FREQUENCIES], k=1 + i % longest)) for i in range(60)]


FIRST = Translated("a.es", sentences(1), sentences(2), sentences(3))
SECOND = Translated("b.es", sentences(4), sentences(5), sentences(6))


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    focus = [Focus(0.9, 1.0), None, *[Focus(0.1, 1.0)] * 118]
    return analyse([FIRST, SECOND], frequencies=FREQUENCIES, focus=focus, worst=5)


def scores(lines: list[int]) -> tuple[int, float, float]:
    hypotheses = [*FIRST.hypotheses, *SECOND.hypotheses]
    references = [*FIRST.references, *SECOND.references]
    texts = [hypotheses[i] for i in lines], [[references[i] for i in lines]]
    return len(lines), sacrebleu.corpus_bleu(*texts).score, sacrebleu.corpus_chrf(*texts, word_order=2).score


def test_scores_by_length_are_those_of_the_subset(analysis: Analysis) -> None:
    lengths = [len(source.split()) for source in (*FIRST.sources, *SECOND.sources)]
    wanted = {"1–5": range(1, 6), "6–10": range(6, 11), "11–15": range(11, 16)}
    found = {one.name: (one.num_sentences, one.bleu, one.chrf) for one in analysis.groups["length"]}
    assert found == {name: scores([i for i, n in enumerate(lengths) if n in span]) for name, span in wanted.items()}
    assert (analysis.num_sentences, analysis.bleu, analysis.chrf) == scores(list(range(120)))


def test_scores_by_rarity_are_those_of_the_subset(analysis: Analysis) -> None:
    rarest = [min(FREQUENCIES.get(word, 0) for word in source.split()) for source in (*FIRST.sources, *SECOND.sources)]
    wanted = {"unseen": range(1), "1–5": range(1, 6), "6–50": range(6, 51), "51+": range(51, 100)}
    found = {one.name: (one.num_sentences, one.bleu, one.chrf) for one in analysis.groups["rarity"]}
    assert found == {name: scores([i for i, n in enumerate(rarest) if n in span]) for name, span in wanted.items()}


def test_scores_by_file_are_those_of_the_file(analysis: Analysis) -> None:
    found = {one.name: (one.num_sentences, one.bleu, one.chrf) for one in analysis.groups["file"]}
    assert found == {"a.es": scores(list(range(60))), "b.es": scores(list(range(60, 120)))}


def test_the_worst_lines_are_those_of_lowest_sentence_chrf(analysis: Analysis) -> None:
    files = {one.name: one for one in (FIRST, SECOND)}
    values = [sacrebleu.sentence_chrf(h, [r], word_order=2).score for one in files.values()
              for h, r in zip(one.hypotheses, one.references, strict=True)]  # fmt: skip
    assert [line.chrf for line in analysis.worst] == sorted(values)[:5]
    for line in analysis.worst:
        one = files[line.file]
        texts = one.sources, one.hypotheses, one.references
        assert (line.source, line.hypothesis, line.reference) == tuple(side[line.number - 1] for side in texts)


def test_attention_is_a_fault_of_the_lines_that_the_model_read(analysis: Analysis) -> None:
    fault = next(one for one in analysis.faults if one.name == "inattention")
    assert (fault.count, fault.share) == (1, 1 / 119)
    assert fault.worst[0].faults["inattention"] == "90% of the source ignored, entropy 1.0 nats"


def test_the_json_has_one_form(analysis: Analysis) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for one in (analysis, analyse([FIRST], "en", "de")):
        Draft202012Validator(SCHEMA).validate(one.to_dict())


def test_what_was_not_looked_at_is_named() -> None:
    assert analyse([FIRST], "en", "de").left_out == [
        "left out: scores by rarity: no training text is given",
        "left out: inattention: no model is given",
        "left out: numbers and negation: known for en and es, not for de",
    ]


def test_the_table_shows_markup_as_it_is() -> None:
    texts = ["[bold]a[/bold] :cat: \\"]
    out = io.StringIO()
    Console(file=out, width=200).print(analyse([Translated("[x]", texts, texts, texts)]).table())
    assert "[bold]a[/bold] :cat: \\ " in out.getvalue()


def test_words_of_the_sources_are_counted_in_the_training_text() -> None:
    assert count_words(["The cat. The dog's cat!", "A bird"], ["THE Cat?", "a dog"]) == {
        "the": 2, "cat": 2, "dog": 1, "a": 1,
    }  # fmt: skip


def test_empty_ranges_and_lines_without_a_value_are_left_out() -> None:
    assert in_ranges([0, 7, None, 41, 3, 100], (0, 1, 6, 11, 41)) == [
        ("0", [0]), ("1–5", [4]), ("6–10", [1]), ("41+", [3, 5]),
    ]  # fmt: skip


def test_texts_without_any_word_are_scored() -> None:
    found = analyse([Translated("a", ["", "1"], ["", "1"], ["", "1"])], frequencies={})
    assert found.groups["rarity"] == []
    assert [one.name for one in found.groups["length"]] == ["0", "1–5"]


def test_different_numbers_of_lines_are_refused() -> None:
    with pytest.raises(UserError, match="the input is shorter than the translations: 1 lines against 2"):
        analyse([Translated("a", ["a"], ["a", "b"], ["a", "b"])])
