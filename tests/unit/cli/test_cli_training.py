"""Preparation ahead of training, as a user asks for it."""

import re
from pathlib import Path

import pytest

from seq2seq.cli.corpora import TAG
from seq2seq.data import pipeline
from seq2seq.data.prepare import prepare
from seq2seq.settings.compose import compose
from seq2seq.text.vocabulary import FILE
from seq2seq.translate.translator import Translator
from tests.unit.conftest import one_line_error

pytestmark = pytest.mark.slow

PAIRS = [("The cat drank the milk.", "uno"), ("", "dos"), ("Ella ve la leche.", "tres"), ("A blue\xa0 ball?", "cuatro")]
SOURCES = ["The cat drank the milk.", "", "Ella ve la leche.", "A blue ball?"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS), encoding="utf-8")
    return path


def made(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.fixture
def call(seq2seq, bundle_folder):
    return lambda command, *words: seq2seq(command, "--model", bundle_folder, "--device", "cpu", *words)


def test_a_distilled_corpus_has_the_teachers_translations_as_targets(call, translator, corpus, tmp_path):
    out = tmp_path / "distilled.tsv"
    status, stdout, err = call("distill", "--input", corpus, "--output", out, "--beam", "2")
    assert (status, stdout) == (0, "")
    assert err == f"{out}: en→es of {corpus}\n"
    assert made(out) == [list(pair) for pair in zip(SOURCES, translator.translate(SOURCES, beam=2), strict=True)]
    resume = ("distill", "--input", corpus, "--output", out, "--resume", "--beam")
    assert call(*resume, "2")[2] == f"{out} is already complete\n"
    assert "was made with beam=2, not 3: --resume it with the same" in one_line_error(call(*resume, "3"))


def test_synthetic_sources_are_tagged_and_texts_stay_as_they_are(call, translator, tmp_path):
    mono, out = tmp_path / "mono.es", tmp_path / "synthetic.tsv"
    mono.write_text("".join(f"{src}\n" for src, _ in PAIRS), encoding="utf-8")
    assert call("backtranslate", "--input", mono, "--output", out, "--tag")[0] == 0
    expected = translator.translate(SOURCES)
    assert made(out) == [
        [f"{TAG} {back}", text] if back else ["", ""] for back, text in zip(expected, SOURCES, strict=True)
    ]
    assert call("backtranslate", "--input", mono, "--output", out)[0] == 0
    assert made(out)[0] == [expected[0], SOURCES[0]]


def test_an_empty_input_leaves_the_corpus_made_before(call, tmp_path):
    out, mono = tmp_path / "made.tsv", tmp_path / "mono.txt"
    out.write_text("before\n")
    mono.touch()
    status, _, err = call("distill", "--input", mono, "--output", out)
    assert (status, err) == (1, f"error: --input {mono} is empty: there is no text in it\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.tsv", "mono.txt"]
    assert out.read_text() == "before\n"


def test_text_in_the_language_that_the_model_writes_is_warned_of(call, tmp_path):
    mono, out = tmp_path / "mono.txt", tmp_path / "out.tsv"
    for command, hint in (("backtranslate", "back-translation takes a model of"), ("distill", "give the sources of a")):
        mono.write_text("Ella ve la leche que está en la mesa.\n" * 9)
        status, _, err = call(command, "--input", mono, "--output", out)
        assert (status, len(made(out))) == (0, 9)
        assert err.startswith(f"warning: the texts look like es, but the model translates en→es: {hint}")
    mono.write_text("The cat and the dog drank the milk.\n" * 9)
    assert call("distill", "--input", mono, "--output", out)[2] == f"{out}: en→es of {mono}\n"


def test_either_column_of_a_tsv_and_several_inputs_can_be_translated(call, corpus, tmp_path):
    out, mono = tmp_path / "out.tsv", tmp_path / "more.txt"
    mono.write_text("una bola\n")
    options = ("--input", corpus, "--input", mono, "--output", out, "--beam", "1", "--max-length", "3")
    assert call("distill", *options, "--languages", "es,en")[0] == 0
    assert [source for source, _ in made(out)] == ["uno", "dos", "tres", "cuatro", "una bola"]


def test_what_is_wrong_with_a_corpus_is_told_in_one_line(call, corpus, tmp_path):
    def error(*options):
        return one_line_error(call("distill", *options))

    assert "let its name end in .tsv" in error("--input", corpus, "--output", tmp_path / "out.txt")
    out = ("--output", tmp_path / "out.tsv")
    assert "none.tsv does not exist" in error("--input", tmp_path / "none.tsv", *out)
    assert "--languages en,fr has to name en and es, in" in error("--input", corpus, "--languages", "en,fr", *out)
    corpus.write_text("one field\n")
    assert "train.tsv:1 has 1 tab-separated fields" in error("--input", corpus, *out)
    assert not (tmp_path / "out.tsv").exists()


def test_average_makes_a_model_that_translates(seq2seq, bundle_folder, translator, tmp_path):
    out = tmp_path / "mean"
    command = ("average", "--model", bundle_folder, "--model", bundle_folder, "--output", out)
    status, _, err = seq2seq(*command)
    assert (status, err) == (0, f"{out}: the mean of {bundle_folder}, {bundle_folder}\n")
    texts = [PAIRS[0][0]]
    assert Translator.load(out, "cpu").translate(texts) == translator.translate(texts)
    status, _, err = seq2seq(*command)
    assert (status, err) == (1, f"error: --output {out} is there already: choose another folder\n")
    for wrong in ((), ("--run", "runs/x"), ("--last", "3", "--model", "a")):
        assert seq2seq("average", "--output", tmp_path / "new", *wrong)[0] == 2


WORDS = ["table", "river", "window", "summer", "friend", "letter", "bottle", "garden", "mountain", "street"]
SENTENCES = [f"The {WORDS[i % 10]} and number {i}." for i in range(160)]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    (tmp_path / "train.tsv").write_text("".join(f"{text}\tEs {text}\n" for text in [*SENTENCES, SENTENCES[3]]))
    (tmp_path / "test.tsv").write_text(f"A test.\tUna prueba.\n{SENTENCES[0]}\tOtra.\n")
    files = ("data.train=[train.tsv]", "data.validation=[test.tsv]", "data.test=[test.tsv]")
    return ["data=files", f"data.root={tmp_path}", *files, "tokenizer.vocab_size=300"]


def test_prepare_tells_what_came_of_it_and_training_finds_it(seq2seq, settings, monkeypatch):
    status, out, err = seq2seq("prepare", *settings)
    assert status == 0, err
    assert "cleaning train.tsv" in err
    assert "training pairs that share a side with test, removed: 1 (1 the source, 0 the target), such as" in err
    assert "duplicate" in out
    assert re.search(r"pairs: train 159, validation 2, test 2\nvocabulary: 300; size: \d+\.\d kB\n", out)
    folder = Path(out.splitlines()[-1].removeprefix("folder: "))
    assert (folder / "train.ids").is_file()
    monkeypatch.setattr(pipeline.Pipeline, "run", None)  # nothing is to be prepared any more
    config = compose([*settings, "model=small", "trainer.max_steps=3", "data.num_proc=2"])
    assert len(prepare(config.data, config.tokenizer).train) == 159
    assert seq2seq("prepare", *settings)[:2] == (0, out)
    shown = seq2seq("prepare", *settings, "training.modifiers.share=0", "--show", "2")[1].removeprefix(out).splitlines()
    texts = ["".join(re.findall(r"(\S+):\d+", line)).replace("▁", " ").strip() for line in shown]
    assert [text[:3] for text in texts] == ["The", "Es ", ""] * 2
    assert all(line.endswith(" </s>:3") for line in shown if line)


def test_text_for_fine_tuning_is_tokenised_by_the_bundle_s_tokenizer(seq2seq, settings: list[str], bundle_folder: Path):
    with_model = [*settings[:-1], f"init={bundle_folder}"]
    status, out, err = seq2seq("prepare", *with_model)
    assert status == 0, err
    folder = Path(out.splitlines()[-1].removeprefix("folder: "))
    assert (folder / "tokenizer.model").read_bytes() == (bundle_folder / FILE).read_bytes()
    assert "leave out tokenizer.vocab_size=9" in seq2seq("prepare", *with_model, "tokenizer.vocab_size=9")[2]


def test_a_wrong_setting_is_one_line(seq2seq, settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert "nowhere.tsv does not exist" in one_line_error(seq2seq("prepare", *settings, "data.train=[nowhere.tsv]"))
    monkeypatch.setenv("SEQ2SEQ_HOME", str(tmp_path))
    assert "has no conf/config.yaml: set the environment's SEQ2SEQ_HOME" in seq2seq("prepare")[2]
