import json
from pathlib import Path

import pytest

from seq2seq.bundle import Bundle, BundleConfig, load_bundle, save_bundle
from seq2seq.cli import app
from seq2seq.cli.corpora import TAG
from seq2seq.model.transformer import Transformer
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.prepare import prepare
from seq2seq.text.tokenizer import Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translator import Translator

PAIRS = [
    ("The cat drank the milk.", "uno"),
    ("", "dos"),
    ("Ella ve la leche.", "tres"),
    ("A blue\u00a0 ball?", "cuatro"),
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS), encoding="utf-8")
    return path


def made(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def call(run, command, bundle_folder, *arguments):
    return run(*arguments, "--device", "cpu", command=(command, "--model", str(bundle_folder)), application=app)


def test_a_distilled_corpus_has_the_teachers_translations_as_targets(run, bundle_folder, corpus, tmp_path):
    out = tmp_path / "distilled.tsv"
    status, stdout, err = call(run, "distill", bundle_folder, "--input", corpus, "--output", out, "--beam", "2")
    assert (status, stdout) == (0, "")
    assert err == f"{out}: en→es of {corpus}\n"
    sources = ["The cat drank the milk.", "", "Ella ve la leche.", "A blue ball?"]
    translations = Translator.load(bundle_folder, "cpu").translate(sources, beam=2)
    assert made(out) == [list(pair) for pair in zip(sources, translations, strict=True)]


def test_synthetic_sources_are_tagged_and_texts_stay_as_they_are(run, bundle_folder, corpus, tmp_path):
    mono, out = tmp_path / "mono.es", tmp_path / "synthetic.tsv"
    mono.write_text("".join(f"{src}\n" for src, _ in PAIRS), encoding="utf-8")
    assert call(run, "backtranslate", bundle_folder, "--input", mono, "--output", out, "--tag")[0] == 0
    sources = ["The cat drank the milk.", "", "Ella ve la leche.", "A blue ball?"]
    expected = Translator.load(bundle_folder, "cpu").translate(sources)
    assert made(out) == [
        [f"{TAG} {back}", text] if back else ["", ""] for back, text in zip(expected, sources, strict=True)
    ]
    assert call(run, "backtranslate", bundle_folder, "--input", mono, "--output", out)[0] == 0
    assert made(out)[0] == [expected[0], sources[0]]


@pytest.mark.parametrize("command", ["distill", "backtranslate"])
def test_an_empty_input_leaves_the_corpus_made_before(run, bundle_folder, tmp_path, command):
    out, mono = tmp_path / "made.tsv", tmp_path / "mono.txt"
    out.write_text("before\n")
    mono.write_text("")
    status, _, err = call(run, command, bundle_folder, "--input", mono, "--output", out)
    assert (status, err) == (1, f"error: --input {mono} is empty: there is no text in it\n")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("made")] == ["made.tsv"]
    assert out.read_text() == "before\n"


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (
            "backtranslate",
            "back-translation takes a model of the other direction, --model runs/REVERSE, that reads such text",
        ),
        ("distill", "give the sources of a corpus (--languages tells the order of a .tsv's columns)"),
    ],
)
def test_text_in_the_language_that_the_model_writes_is_warned_of(run, bundle_folder, tmp_path, command, hint):
    told = f"warning: the texts look like es, but the model translates en→es: {hint}\n"
    for line, warning in (("Ella ve la leche que está en la mesa.", told), ("The cat and the dog drank the milk.", "")):
        mono, out = tmp_path / "mono.txt", tmp_path / "out.tsv"
        mono.write_text(f"{line}\n" * 9)
        status, _, err = call(run, command, bundle_folder, "--input", mono, "--output", out)
        assert (status, err) == (0, f"{warning}{out}: en→es of {mono}\n")
        assert len(made(out)) == 9


def test_samples_follow_their_seed(run, bundle_folder, corpus, tmp_path):
    found = []
    for seed in (1, 2, 1):
        out = tmp_path / "synthetic.tsv"
        options = ("--sampling", "--top-k", "20", "--seed", seed, "--input", corpus, "--output", out)
        assert call(run, "backtranslate", bundle_folder, *options)[0] == 0
        found.append(out.read_text())
    assert found[0] == found[2] != found[1]


def test_either_column_of_a_tsv_and_several_inputs_can_be_translated(run, bundle_folder, corpus, tmp_path):
    out, mono = tmp_path / "out.tsv", tmp_path / "more.txt"
    mono.write_text("una bola\n")
    options = ("--input", corpus, "--input", mono, "--output", out)
    assert call(run, "distill", bundle_folder, *options, "--languages", "es,en")[0] == 0
    assert [source for source, _ in made(out)] == ["uno", "dos", "tres", "cuatro", "una bola"]


def test_a_corpus_that_was_broken_off_goes_on(run, bundle_folder, tmp_path, monkeypatch):
    mono, out = tmp_path / "mono", tmp_path / "out.tsv"
    mono.write_text("".join(f"{PAIRS[i % 4][0]} {i}\n" for i in range(12)), encoding="utf-8")
    monkeypatch.setattr("seq2seq.translator.CHUNK_LINES", 4)
    options = ("--input", mono, "--output", out)
    assert call(run, "distill", bundle_folder, *options)[0] == 0
    whole = out.read_bytes()
    out.unlink()
    translated, stream = [], Translator.stream

    def breaking(self, texts, request, **given):
        for number, best in enumerate(stream(self, texts, request, **given)):
            if number == 6 and not translated:
                translated.append(number)
                raise KeyboardInterrupt
            yield best

    monkeypatch.setattr(Translator, "stream", breaking)
    assert call(run, "distill", bundle_folder, *options)[0] == 130
    assert not out.exists()
    progress = json.loads((tmp_path / "out.tsv.progress").read_text())
    assert progress["inputs"] == 4
    status, _, err = call(run, "distill", bundle_folder, *options, "--beam", "2", "--resume")
    assert status == 1
    assert "was made with beam=None, not 2" in err
    text = mono.read_text(encoding="utf-8")
    mono.write_text(text.replace(" 11\n", " 12\n"), encoding="utf-8")
    assert "was made with input_digest=" in call(run, "distill", bundle_folder, *options, "--resume")[2]
    mono.write_text(text, encoding="utf-8")
    assert call(run, "distill", bundle_folder, *options, "--resume")[0] == 0
    assert out.read_bytes() == whole


def test_what_is_wrong_with_a_corpus_is_told_in_one_line(run, bundle_folder, corpus, tmp_path):
    def error(*options):
        status, out, err = call(run, "distill", bundle_folder, *options)
        assert (status, out) == (1, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err

    assert "let its name end in .tsv" in error("--input", corpus, "--output", tmp_path / "out.txt")
    out = ("--output", tmp_path / "out.tsv")
    assert "none.tsv does not exist" in error("--input", tmp_path / "none.tsv", *out)
    assert "--languages en,fr has to name en and es, in" in error("--input", corpus, "--languages", "en,fr", *out)
    corpus.write_text("one field\n")
    assert "train.tsv:1 has 1 tab-separated fields" in error("--input", corpus, *out)
    assert not (tmp_path / "out.tsv").exists()


@pytest.fixture(scope="module")
def tagging(tmp_path_factory) -> Path:
    """An untrained bundle whose vocabulary has the tag and likes nothing better."""
    texts = [f"{a} {b} {c}." for a in ("uno", "dos", "tres") for b in ("ve", "come", "trae") for c in ("pan", "leche")]
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocab_size=279, user_symbols=[TAG]))
    config = ModelConfig(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1)
    model = Transformer(config, tokenizer.vocab_size)
    model.get_parameter("decoder_layers.0.feed_forward_residual.norm.bias").data.fill_(1.0)
    model.embedding.weight.data[tokenizer.user_symbols[TAG]] = 3.0  # a logit of 48, next to none
    folder = tmp_path_factory.mktemp("tagging") / "model"
    save_bundle(
        folder,
        Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(config, SearchConfig(beam=2, max_length_offset=3))),
        "",
    )
    return folder


@pytest.mark.parametrize("changes", [{}, {"beam": 1}, {"sampling": True}])
def test_no_search_produces_the_tag(tagging: Path, changes, monkeypatch):
    translator = Translator.load(tagging, "cpu")
    texts = ["uno ve pan.", "dos come leche."]
    assert not any(TAG in text for text in translator.translate(texts, **changes))
    monkeypatch.setattr(Tokenizer, "user_symbols", {})
    assert all(TAG in text for text in Translator.load(tagging, "cpu").translate(texts, **changes))


def test_a_tag_is_one_id_of_synthetic_sources_and_of_nothing_else(tmp_path):
    words = ("uno", "dos", "tres", "ve", "come", "trae", "pan", "leche", "agua")
    real = [(f"{a} {b} {c}", f"{c} {b} {a}") for a in words[:3] for b in words[3:6] for c in words[6:]]
    (tmp_path / "real.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in real))
    (tmp_path / "synthetic.tsv").write_text("".join(f"{TAG} {tgt}\t{src}\n" for src, tgt in real))
    (tmp_path / "v.tsv").write_text("pan uno\tuno pan\n")
    data = DataConfig(root=str(tmp_path), train=["real.tsv", "synthetic.tsv"], validation=["v.tsv"], test=["v.tsv"])
    prepared = prepare(data, TokenizerConfig(vocab_size=280, user_symbols=[TAG]))
    tag = prepared.tokenizer.target.user_symbols[TAG]
    rows = [prepared.train[i] for i in range(len(prepared.train))]
    assert [row[0].tolist().count(tag) for row in rows] == [0] * 27 + [1] * 27
    assert not any(tag in row[1].tolist() for row in rows)
    assert tag not in prepared.validation[0][0].tolist()


def test_average_makes_a_model_that_translates(run, bundle_folder, tmp_path):
    out = tmp_path / "mean"
    options = ("--model", bundle_folder, "--output", out)
    status, _, err = run(*options, command=("average", "--model", str(bundle_folder)), application=app)
    assert (status, err) == (0, f"{out}: the mean of {bundle_folder}, {bundle_folder}\n")
    assert load_bundle(out).model.state_dict().keys() == load_bundle(bundle_folder).model.state_dict().keys()
    texts = [PAIRS[0][0]]
    assert Translator.load(out, "cpu").translate(texts) == Translator.load(bundle_folder, "cpu").translate(texts)
    status, _, err = run(*options, command=("average", "--model", str(bundle_folder)), application=app)
    assert (status, err) == (1, f"error: --output {out} is there already: choose another folder\n")
    for wrong in (
        (),
        ("--run", "runs/x"),
        ("--last", "3", "--model", "a"),
        ("--run", "x", "--last", "2", "--model", "a"),
    ):
        assert run("--output", tmp_path / "new", *wrong, command=("average",), application=app)[0] == 2
