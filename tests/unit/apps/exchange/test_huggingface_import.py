"""A Marian checkpoint becomes a bundle with the same logits, translations and vocabulary, and goes back unchanged."""

import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seq2seq.text.sentences import number_words
from seq2seq.text.tokenizer import EOS
from seq2seq.translate.segmenter import Segmenter
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text
from tests.refusing import refuses

pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")

import huggingface_hub
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, MarianMTModel

from benchmarks.checkpoints import marian_tokenizer, random_marian, write_checkpoint, write_vocabulary
from seq2seq.apps.exchange.huggingface import export_huggingface
from seq2seq.apps.exchange.huggingface_import import cached_import, import_huggingface, read_huggingface
from seq2seq.translate.bundle import Bundle, load_bundle

SMALL: dict[str, Any] = {
    "d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "encoder_layers": 2, "decoder_layers": 1,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "opus-mt": {},
    "tc-big": {"size": "tc-big", "dtype": "float32"},
    "deep encoder": {"size": "tiny", "encoder_layers": 3},
    "gelu, unscaled": {"activation_function": "gelu", "scale_embedding": False},
    "an embedding for each side": {"is_separate": True},
}
TEXTS = [
    "The king sees the blue ball.", "A dog?", "The old teachers drink the cold milk with the girl!", "x 7 ½", "milk",
    "Who has the red house?", "The girls do not want the bread.", "I see.", "Where is the old king?", "Two red houses.",
]  # fmt: skip


def write(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    options = {"size": "opus-mt", **SMALL, **changes}
    write_checkpoint(folder, options.pop("size"), **options)
    return folder


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / "source", **KINDS[request.param])


@pytest.fixture
def opus(tmp_path: Path) -> Path:
    return write(tmp_path / "source")


def in_their_ids(bundle: Bundle, rows: Tensor, side: str) -> Tensor:
    return torch.tensor(getattr(bundle.tokenizer, side).original_ids)[rows]


def exported(bundle: Path) -> Any:
    """Return a translator by CTranslate2."""
    pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")
    from seq2seq.apps.exchange.ctranslate2 import export_ctranslate2
    from seq2seq.translate.ctranslate2_engine import load_export

    export_ctranslate2(bundle, bundle.parent / "export")
    return load_export(bundle.parent / "export", "cpu", 1)


@torch.no_grad()
def test_the_logits_are_the_same(source: Path):
    bundle, theirs = read_huggingface(source), MarianMTModel.from_pretrained(source).eval()
    target = bundle.tokenizer.target
    src = torch.tensor([[5, 9, 12, 29, 7, EOS], [8, 2, 4, EOS, 0, 0]])
    tgt_in = torch.tensor([[bundle.tokenizer.start, 6, 17, 23], [bundle.tokenizer.start, 2, 4, 1]])
    ours, _ = bundle.model.decode(tgt_in, bundle.model.encode(src))
    logits = theirs(
        input_ids=in_their_ids(bundle, src, "source"),
        attention_mask=src != 0,
        decoder_input_ids=in_their_ids(bundle, tgt_in, "target"),
    ).logits
    assert_close(logits[:, :, target.original_ids], ours, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@torch.no_grad()
def test_scores_are_those_of_generate_also_when_it_renormalises(opus: Path, tmp_path: Path):
    path = opus / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"renormalize_logits": True}))
    state = load_file(opus / "model.safetensors")
    state["final_logits_bias"][0, -1] += 3  # padding, which is never produced, would be likely
    state["final_logits_bias"][0, 0] += 2.5  # so that translations end before the limit
    save_file(state, opus / "model.safetensors", metadata={"format": "pt"})
    import_huggingface(str(opus), tmp_path / "bundle")
    tokenizer, theirs = marian_tokenizer(opus), AutoModelForSeq2SeqLM.from_pretrained(opus).eval()
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    options = {"num_beams": 4, "early_stopping": "never", "return_dict_in_generate": True, "output_scores": True}
    generated = theirs.generate(**batch, **options, max_new_tokens=31)
    for compiles in ("off", "auto"):
        translator = Translator.load(tmp_path / "bundle", "cpu", torch.float32, compiles=compiles)
        ours = translator.translate_nbest(TEXTS, 1, beam=4, max_length=30)
        readings = translator.score(TEXTS, [n_best[0].text for n_best in ours])
        order, compared = translator.tokenizer.target.original_ids, 0
        for row, score, (translation,), reading in zip(
            generated.sequences.tolist(), generated.sequences_scores.tolist(), ours, readings, strict=True
        ):
            expected = row[1 : row.index(0, 1)]
            if len(expected) < 30:
                compared += 1
                assert [order[i] for i in translator.tokenizer.target.ids(translation.tokens)] == expected
                assert translation.normalised_score == pytest.approx(score, abs=1e-4)
                if reading.tokens[:-1] == translation.tokens:
                    assert reading.score == pytest.approx(translation.score, abs=1e-4)
        assert compared
    export_huggingface(tmp_path / "bundle", tmp_path / "back")
    assert json.loads((tmp_path / "back/generation_config.json").read_text())["renormalize_logits"] is True


@pytest.mark.slow
def test_the_way_back_changes_no_weight_and_no_vocabulary(source: Path, tmp_path: Path):
    import_huggingface(str(source), tmp_path / "bundle")
    export_huggingface(tmp_path / "bundle", tmp_path / "back")
    before, after = (load_file(folder / "model.safetensors") for folder in (source, tmp_path / "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()
    for name in {"vocab.json", "target_vocab.json"} & {path.name for path in source.iterdir()}:
        ids = [json.loads((folder / name).read_text(encoding="utf-8")) for folder in (source, tmp_path / "back")]
        assert ids[0] == ids[1]
    again = read_huggingface(tmp_path / "back")
    assert_close(again.model.state_dict(), load_bundle(tmp_path / "bundle").model.state_dict(), atol=0, rtol=0)
    theirs, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back"), marian_tokenizer(tmp_path / "back")
    options = {"num_beams": 1, "no_repeat_ngram_size": 2, "max_new_tokens": 31}
    rows = theirs.generate(**tokenizer(TEXTS, return_tensors="pt", padding=True), **options).tolist()
    translator = Translator.load(tmp_path / "bundle", "cpu")
    expected = translator.translate(TEXTS, beam=1, no_repeat_ngram=2, max_length=30)
    assert any(expected)
    assert [" ".join(text.split()) for text in tokenizer.batch_decode(rows, skip_special_tokens=True)] == expected


@pytest.mark.slow
def test_an_export_of_our_own_comes_back_as_it_was(bundle_folder: Path, tmp_path: Path):
    export_huggingface(bundle_folder, tmp_path / "export")
    import_huggingface(str(tmp_path / "export"), tmp_path / "back")
    ours, again = load_bundle(bundle_folder), load_bundle(tmp_path / "back")
    assert_close(again.model.state_dict(), ours.model.state_dict(), atol=0, rtol=0)
    assert (again.tokenizer.start, again.tokenizer.unproducible) == (ours.tokenizer.start, ours.tokenizer.unproducible)
    texts = ["The cat drank the milk.", "¿Quién?"]
    assert again.tokenizer.source.encode(texts) == ours.tokenizer.source.encode(texts)
    before, after = (Translator.load(folder, "cpu") for folder in (bundle_folder, tmp_path / "back"))
    assert after.translate(texts, beam=2, max_length=8) == before.translate(texts, beam=2, max_length=8)


@pytest.mark.parametrize("is_separate", [False, True])
def test_ctranslate2_translates_an_imported_model_alike(tmp_path: Path, is_separate: bool):
    import_huggingface(str(write(tmp_path / "source", is_separate=is_separate)), tmp_path / "bundle")
    ours, theirs = Translator.load(tmp_path / "bundle", "cpu"), exported(tmp_path / "bundle")
    expected, translations = (
        [best for (best,) in translator.translate_nbest(TEXTS, 1, beam=1, max_length=30, no_repeat_ngram=2)]
        for translator in (ours, theirs)
    )
    assert [best.tokens for best in translations] == [best.tokens for best in expected]
    assert [best.score for best in translations] == pytest.approx([best.score for best in expected], abs=1e-4)
    assert max(len(best.tokens) for best in translations) > 3


@pytest.mark.parametrize("engine", ["pytorch", "ctranslate2"])
def test_an_imported_model_keeps_strings_and_reads_half_a_character(opus: Path, tmp_path: Path, engine: str):
    import_huggingface(str(opus), tmp_path / "bundle")
    bundle = tmp_path / "bundle"
    translator = exported(bundle) if engine == "ctranslate2" else Translator.load(bundle, "cpu")
    kept = [["{name}", "https://a.org/x?y"], ["`x  y`"], ["%s", "😀"], ["{name}", "{name}"]]
    texts = ["The king sees {name} at https://a.org/x?y now.", "`x  y`", "%s has 😀!", "{name} or {name}"]
    for strings, best in zip(kept, translator.translate_nbest(texts, 2, beam=2, max_length=8), strict=True):
        assert all(one.text.count(string) == strings.count(string) for one in best for string in strings)
    assert len(translator.translate(["half a \ud800 character"], beam=1, max_length=3)) == 1


@pytest.mark.parametrize("is_old", [False, True], ids=["generation_config.json", "config.json"])
def test_settings_and_the_licence_are_kept_there_and_back_and_a_lost_setting_is_told(opus, tmp_path, caplog, is_old):
    (opus / "README.md").write_text("---\nlanguage: en\nlicense:\n- apache-2.0\n---\nlicense: mit\n")
    path = opus / "generation_config.json"
    values = json.loads(path.read_text()) | {"num_beams": 6, "length_penalty": 0.7, "no_repeat_ngram_size": 3}
    values |= {"encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.2, "temperature": 1.0, "top_p": 1}
    if is_old:
        path.unlink()
        path = opus / CONFIG
        values = json.loads(path.read_text()) | values
    path.write_text(json.dumps(values))
    import_huggingface(str(opus), tmp_path / "bundle")
    lost = "encoder_no_repeat_ngram_size=1, repetition_penalty=1.2"  # the others change nothing at 1
    assert caplog.messages == [f"generation_config.json: not taken over: {lost}"]
    bundle = load_bundle(tmp_path / "bundle")
    search = bundle.config.search
    assert (search.beam, search.length_penalty, search.no_repeat_ngram) == (6, 0.7, 3)
    assert (bundle.config.src_lang, bundle.config.tgt_lang) == ("en", "es")
    assert "\nlicense: apache-2.0\n" in (tmp_path / "bundle/README.md").read_text()
    assert (bundle.tokenizer.start, bundle.tokenizer.unproducible) == (0, (0,))
    export_huggingface(tmp_path / "bundle", tmp_path / "back")
    generation = json.loads((tmp_path / "back/generation_config.json").read_text())
    assert (generation["no_repeat_ngram_size"], generation["num_beams"]) == (3, 6)


def test_pickled_weights_and_half_precision_are_read(opus: Path):
    expected = read_huggingface(opus).model.state_dict()
    theirs = MarianMTModel.from_pretrained(opus)
    state = theirs.state_dict()  # with every tied weight, as old checkpoints have
    state["model.encoder.embed_positions.weight"] = theirs.model.encoder.embed_positions.weight.clone()
    torch.save(state, opus / "pytorch_model.bin")
    (opus / "model.safetensors").unlink()
    assert_close(read_huggingface(opus).model.state_dict(), expected, atol=0, rtol=0)
    torch.save(state, opus / "pytorch_model.bin", _use_new_zipfile_serialization=False)  # as before PyTorch 1.6
    assert_close(read_huggingface(opus).model.state_dict(), expected, atol=0, rtol=0)
    torch.save({name: weight.half() for name, weight in state.items()}, opus / "pytorch_model.bin")
    state = read_huggingface(opus).model.state_dict()
    assert all(weight.dtype == torch.float32 for weight in state.values())
    assert_close(state, expected, atol=1e-2, rtol=1e-2)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("pwned").write_text, ("x",))


def updated(name: str, **changes: Any) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes))


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def weights(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        state = load_file(folder / "model.safetensors")
        change(state)
        save_file(state, folder / "model.safetensors")

    return damage


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def pickled(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin").write_bytes(content)


def saved(values: Any) -> bytes:
    file = io.BytesIO()
    torch.save(values, file)
    return file.getvalue()


CONFIG, GENERATION = "config.json", "generation_config.json"
REFUSED: dict[str, Callable[[Path], object]] = {  # what the line says, and what is done to the files before
    "model_type='t5': only marian models": updated(CONFIG, model_type="t5"),
    "config.json is missing: give a folder as": without(CONFIG),
    "config.json is damaged: it is no JSON": lambda folder: (folder / CONFIG).write_text("{"),
    "config.json is damaged: .*d_model": updated(CONFIG, d_model="wide"),
    "normalize_before=True: only normalize_before=False can be imported": updated(CONFIG, normalize_before=True),
    "tie_word_embeddings=False: only tie_word_embeddings=True can be imported":
        updated(CONFIG, tie_word_embeddings=False),
    "activation_function=tanh: known are relu, gelu, swish, silu": updated(CONFIG, activation_function="tanh"),
    "encoder_attention_heads=4 and decoder_attention_heads=2: both sides have one model.num_heads here":
        updated(CONFIG, decoder_attention_heads=2),
    "describes no network that is known here: model.d_model=32 must be a multiple of model.num_heads=5":
        updated(CONFIG, encoder_attention_heads=5, decoder_attention_heads=5),
    r"pad_token_id=3, but the vocabulary says \d+: the files belong to different models":
        updated(CONFIG, pad_token_id=3),
    "forced_bos_token_id=7: only models without it can be imported": updated(GENERATION, forced_bos_token_id=7),
    r"it has no weights \(model.safetensors or pytorch_model.bin\)": without("model.safetensors"),
    r"weights in several files \(model.safetensors.index.json\) are not read: save them in one":
        lambda folder: (folder / "model.safetensors").rename(folder / "model.safetensors.index.json"),
    r"model.safetensors is damaged \(.*\): copy it again": cut("model.safetensors", 5000),
    r"pytorch_model.bin asks for .*: weights are plain values, this one": pickled(saved({"a": Evil()})),
    "model.safetensors holds no weights by name":
        lambda folder: save_file({"a": torch.ones(8).to(torch.float8_e4m3fn)}, folder / "model.safetensors"),
    r"model.shared.weight is \(\d+, 32\), and config.json and the vocabulary want .*: the files belong to different":
        weights(lambda state: state.update({"model.shared.weight": state["model.shared.weight"][:-5].clone()})),
    r"final_logits_bias is \(1, 7\), and config.json and the vocabulary want \(1, \d+\)":
        weights(lambda state: state.update({"final_logits_bias": torch.ones(1, 7)})),
    r"model.encoder.layers.0.fc1.weight is missing, and config.json wants \(48, 32\)":
        weights(lambda state: state.pop("model.encoder.layers.0.fc1.weight")),
    r": \?\[31m is a weight that no Marian model": weights(lambda state: state.update({"\x1b[31m": torch.ones(2)})),
    "model.encoder.embed_positions.weight is no table of sines: learned positions cannot be imported":
        weights(lambda state: state.update({"model.encoder.embed_positions.weight": torch.ones(512, 32)})),
    "lm_head.weight differs from model.shared.weight: only tied embeddings can be imported":
        weights(lambda state: state.update({"lm_head.weight": state["model.shared.weight"] + 1})),
    r"source: model.shared.weight has values that are no finite numbers: the model is damaged":
        weights(lambda state: state["model.shared.weight"][3].fill_(torch.nan)),
    "pytorch_model.bin holds no weights by name": pickled(saved([1])),
    r"pytorch_model.bin is damaged \(.+\): copy": pickled(b"version https://git-lfs.github.com/spec/v1"),
    "weights are no 901 layers, which": updated(CONFIG, encoder_layers=900),
    "it has a subword that is no text":
        lambda folder: (folder / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1, "\ud800": 2, "<pad>": 3})),
    "asks for a search that is not known here: Value 'x' of type 'str'": updated(GENERATION, num_beams="x"),
    "forbids the end mark: no translation": updated(GENERATION, bad_words_ids=[[0]]),
    r"eos_token_id=\[0, 5\], the vocabulary 0": updated(GENERATION, eos_token_id=[0, 5]),
    r"bad_words_ids=5 and suppress_tokens=\[\]: only ids of single subwords": updated(GENERATION, bad_words_ids=5),
    "padding, unknown and end mark are": updated("tokenizer_config.json", unk_token="</s>"),
    "names a language 'en": updated("tokenizer_config.json", source_lang="en]\nlicense: x"),
    "is a model of this program: use it as it is":
        lambda folder: (folder / CONFIG).write_text('{"architecture": "seq2seq-transformer"}'),
    r"bad_words_ids=\[\[3, 4\]\] and .*: only ids of single": updated(GENERATION, bad_words_ids=[[3, 4]]),
    "decoder_start_token_id=1000000: it is no id of the vocabulary": updated(GENERATION, decoder_start_token_id=10**6),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_imported_is_refused_in_one_line(opus, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    REFUSED[message](opus)
    refuses(message, import_huggingface, str(opus), tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
    assert not (tmp_path / "pwned").exists()


def test_a_name_is_fetched_from_the_hub_with_its_revision(opus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def download(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((name, revision, "pytorch_model.bin" in allow_patterns))
        return str(opus)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    import_huggingface("Helsinki-NLP/opus-mt-en-es", tmp_path / "bundle", "v1")
    assert asked == [("Helsinki-NLP/opus-mt-en-es", "v1", False)]
    assert "imported from `opus-mt-en-es`, revision v1" in (tmp_path / "bundle/README.md").read_text()
    (opus / "model.safetensors").rename(opus / "elsewhere")
    refuses("it has no weights", import_huggingface, "a/b", tmp_path / "other")
    assert asked[1:] == [("a/b", None, False), ("a/b", None, True)]


def test_a_hub_that_cannot_be_reached_says_how_to_give_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    bundle, run = tmp_path / "bundle", r"where the hub cannot be reached, run `hf download a/b --local-dir"
    refuses(f"the Hugging Face hub does not give it .*{run}", import_huggingface, "a/b", bundle)
    refuses("runs/a/b is no folder, and no name on the Hugging Face hub", import_huggingface, "runs/a/b", bundle)
    refuses("is a folder, which has no revision v1: leave out", import_huggingface, str(tmp_path), bundle, "v1")
    failing = Mock(side_effect=EOFError("the proxy said no"))  # an exception of the hub's HTTP library
    monkeypatch.setattr(huggingface_hub, "snapshot_download", failing)
    refuses(r"the Hugging Face hub does not give it \(the proxy said no\)", import_huggingface, "a/b", bundle)


def test_a_target_language_holds_for_every_sentence_of_a_long_text(tmp_path: Path):
    folder = tmp_path / "source"
    folder.mkdir()
    sizes = write_vocabulary(folder, codes=(">>spa<<",))
    random_marian("opus-mt", sizes, is_separate=False, **SMALL).save_pretrained(folder)
    import_huggingface(str(folder), tmp_path / "bundle")
    translator = Translator.load(tmp_path / "bundle", "cpu")
    text = ">>spa<< " + "The king sees the ball. " * 40
    (n_best,) = translator.translate_nbest([text], 1, beam=1, max_length=3, min_length=2, align=True)
    sources = [source for source, _ in n_best[0].alignment or []]
    (parts,) = Segmenter(translator.tokenizer, None).segments([Text(text)])
    starts = number_words(text, [part.masked.text for part in parts])
    assert len(parts) == 40
    for start, end in itertools.pairwise([*starts, len(text.split())]):  # each sentence's words are aligned
        assert any(start <= source < end for source in sources)
    assert len(sources) == len(n_best[0].text.split())
    code = translator.tokenizer.source.ids([">>spa<<"])[0]
    assert all(part.source.ids[0] == code and part.source.ids.count(code) == 1 for part in parts)


def test_a_second_import_comes_from_the_cache_and_a_long_name_is_cut_there(opus: Path, tmp_path: Path):
    opus = opus.rename(tmp_path / ("ñ" * 120))
    folder = cached_import(str(opus), str(tmp_path / "cache"))
    assert folder.name.startswith("_" * 100 + "-")
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert cached_import(str(opus), str(tmp_path / "cache")) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
