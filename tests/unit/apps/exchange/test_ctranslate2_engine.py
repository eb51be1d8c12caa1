import json
import os
import random
from dataclasses import fields, replace

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.search.types import Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import BOS, EOS, PAD, UNK
from seq2seq.translate.engine import Engine
from tests.refusing import refuses

pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")

import ctranslate2

from seq2seq.apps.exchange.ctranslate2 import export_ctranslate2
from seq2seq.translate.ctranslate2_engine import load_export
from tests.thin import thin

CPU = torch.device("cpu")
GREEDY = SearchConfig(beam=1, max_length_ratio=0.5, max_length_offset=4, batch_tokens=100)


@pytest.fixture(scope="module")
def sources():
    rng = random.Random(1)
    return [Source([rng.randrange(4, 40) for _ in range(rng.randrange(1, 12))]) for _ in range(60)]


@pytest.fixture(scope="module")
def model(tokenizer, sources):
    """Learnt to say texts backwards, a third of them after an UNK; so some translations are longer than allowed."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = ModelConfig(d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=2, dropout=0.0)
        model = build_model(config, tokenizer.vocab_size)
    targets = [[UNK] * (source.ids[0] % 3 == 0) + source.ids[::-1] for source in sources]
    src = padded([[*source.ids, EOS] for source in sources])
    tgt_in, tgt_out = padded([[BOS, *ids] for ids in targets]), padded([[*ids, EOS] for ids in targets])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        logits = model.logits(model(src, tgt_in))
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD).backward()
        optimizer.step()
        optimizer.zero_grad()
    first = model.eval().decode(tgt_in[:, :1], model.encode(src))[0]
    assert {*first.argmax(-1).flatten().tolist()} & {PAD, UNK, BOS}  # which no search may produce
    return model


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


@pytest.fixture
def export(model, save_model, tmp_path):
    export_ctranslate2(save_model(model), tmp_path / "export")
    return load_export(tmp_path / "export", "cpu")


def most(source):
    """Tokens that a translation may have."""
    return int(len(source.ids) * GREEDY.max_length_ratio) + GREEDY.max_length_offset


def search(engine, sources, settings, n_best=1, banned=()):
    hypotheses = {}
    for batch in engine.search(sources, settings, n_best, banned):
        hypotheses |= dict(batch)
    return [hypotheses[index] for index in range(len(sources))]


def test_greedy_search_finds_the_very_hypotheses_of_the_pytorch_engine(model, export, sources):
    ours = search(Engine(model, CPU, torch.float32), sources, GREEDY)
    theirs = search(export.engine, sources, GREEDY)
    assert search(export.engine, [], GREEDY) == []
    assert [[hypothesis.ids for hypothesis in best] for best in theirs] == [
        [hypothesis.ids for hypothesis in best] for best in ours
    ]
    for (hypothesis,), (expected,) in zip(theirs, ours, strict=True):
        assert hypothesis.score == pytest.approx(expected.score, abs=1e-4)
        assert hypothesis.normalised_score == pytest.approx(expected.normalised_score, abs=1e-4)
    cut_off = sum(len(hypothesis.ids) == most(source) for (hypothesis,), source in zip(ours, sources, strict=True))
    assert 5 < cut_off < 55  # so both are tested


RULES = {
    "forced prefixes": {},
    "banned phrases": {},
    "no token twice": {"no_repeat_ngram": 1},
    "least length": {"min_length": 4},
    "least length by the source's": {"min_length_ratio": 0.8, "min_length": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", thin(RULES, ["forced prefixes", "banned phrases", "least length"]))
def test_greedy_search_by_rules_finds_what_the_pytorch_engine_finds(model, export, sources, rule):
    pytorch, settings, banned = Engine(model, CPU, torch.float32), replace(GREEDY, **RULES[rule]), ()
    free = [best[0].ids for best in search(pytorch, sources, GREEDY)]
    if rule == "forced prefixes":
        sources = [Source(source.ids, prefix=[7, 30, 7, 7][: index % 5]) for index, source in enumerate(sources)]
    if rule == "banned phrases":
        banned = [row[1:3] for row in free[:20] if len(row) > 2] + [[free[30][0]]]
    ours = search(pytorch, sources, settings, banned=banned)
    theirs = search(export.engine, sources, settings, banned=banned)
    assert [best[0].ids for best in theirs] == [best[0].ids for best in ours]
    assert [best[0].score for best in theirs] == pytest.approx([best[0].score for best in ours], abs=1e-4)
    assert [best[0].ids for best in ours] != free


@pytest.mark.slow
@pytest.mark.parametrize("alpha", thin([0.0, 0.6, 1.0], [0.6]))
def test_beam_search_gives_the_n_best_with_the_models_own_scores(model, export, sources, token_scores, alpha):
    n_best = search(export.engine, sources, replace(GREEDY, beam=4, length_penalty=alpha), n_best=3)
    for source, hypotheses in zip(sources, n_best, strict=True):
        values = [hypothesis.normalised_score for hypothesis in hypotheses]
        assert values == sorted(values, reverse=True)
        assert len({tuple(hypothesis.ids) for hypothesis in hypotheses}) == len(hypotheses) == 3
        for hypothesis in hypotheses:
            assert len(hypothesis.ids) <= most(source)
            assert not set(hypothesis.ids) & {PAD, UNK, BOS, EOS}
            assert hypothesis.score == pytest.approx(sum(token_scores(model, source.ids, hypothesis.ids)), abs=1e-4)
            normalised = hypothesis.score / (len(hypothesis.ids) + 1) ** alpha
            assert hypothesis.normalised_score == pytest.approx(normalised, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": True}, "search.sampling=True is not what CTranslate2 computes: use --engine pytorch"),
        ({"max_length_offset": 2045}, "translations of up to 2051 tokens need more than an export's 2048 positions"),
    ],
)
def test_what_ctranslate2_would_compute_otherwise_is_refused(export, changes, message):
    refuses(message, search, export.engine, [Source([5] * 13)], replace(GREEDY, **changes))
    with pytest.raises(UserError, match="phrases that must appear are not known to CTranslate2"):
        search(export.engine, [Source([5, 6], phrases=[[7]])], GREEDY)


def test_a_rule_of_stopping_that_ctranslate2_does_not_follow_is_told_once(export, sources, caplog):
    early = replace(GREEDY, beam=3, early_stopping=True)
    results = [search(export.engine, sources[:4], settings) for settings in (early, early, replace(GREEDY, beam=3))]
    assert results[0] == results[1] == results[2]
    assert caplog.messages == [
        "CTranslate2 ends a beam search by a rule of its own: early_stopping=True changes nothing"
    ]


def test_a_gpu_that_is_not_there_is_refused(bundle_folder, tmp_path, monkeypatch):
    export_ctranslate2(bundle_folder, tmp_path / "export")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refuses("device cuda:1 is asked for but no CUDA device is there", load_export, tmp_path / "export", "cuda:1")
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 2)  # by PyTorch, there is none
    assert load_export(tmp_path / "export", "auto").device.type == "cpu"


def rewritten(name, change):
    """Return a function that changes a file of an export."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def as_pipe(name):
    return lambda folder: ((folder / name).unlink(missing_ok=True), os.mkfifo(folder / name))


def with_setting(**change):
    return rewritten("config.json", lambda content: json.dumps(json.loads(content) | change).encode())


def with_vocabulary_that_is_not_checked(folder):
    path = folder / "shared_vocabulary.json"
    path.with_suffix(".txt").write_text("\n".join(reversed(json.loads(path.read_text()))))
    path.unlink()


OTHER = "config.json is not of this model's tokenizer: export the model again"
DAMAGES = [
    (r"CTranslate2 cannot load .*export on cpu", rewritten("model.bin", lambda content: b"")),
    (r"CTranslate2 cannot load .*export on cpu", rewritten("model.bin", lambda content: b"\x00" * 40)),
    (r"CTranslate2 cannot load .*export on cpu", rewritten("model.bin", lambda content: content[:9000])),
    (r"Unknown model \?\[31m Spec$",
     rewritten("model.bin", lambda content: content.replace(b"TransformerSpec", b"\x1b[31m\nSpec     ", 1))),
    ("is not the vocabulary of this model's tokenizer: export the",
     rewritten("shared_vocabulary.json", lambda content: content.replace(b'"<pad>"', b'"pad"'))),
    ("vocabulary.json is damaged: it is no JSON",
     rewritten("shared_vocabulary.json", lambda content: content[:-9])),
    (r"No such file.*source_vocabulary.json", with_vocabulary_that_is_not_checked),
    *((f"{name} is no file", as_pipe(name)) for name in ("model.bin", "config.json", "vmap.txt")),
    (OTHER, with_setting(add_source_eos=[1])),
    (OTHER, with_setting(decoder_start_token="</s>")),
    (OTHER, rewritten("config.json", lambda content: b"null")),
]  # fmt: skip


@pytest.mark.parametrize(("message", "damage"), DAMAGES)
def test_an_export_that_is_damaged_or_of_another_model_is_refused(bundle_folder, tmp_path, message, damage):
    export_ctranslate2(bundle_folder, tmp_path / "export")
    damage(tmp_path / "export")
    with pytest.raises((UserError, FileNotFoundError), match=message):
        load_export(tmp_path / "export", "cpu")


def test_damaged_weights_are_told(random_model, save_model, tokenizer, sources, tmp_path):
    model = random_model(tokenizer.vocab_size)
    torch.nn.init.constant_(model.decoder_layers[1].feed_forward_residual.norm.bias, float("nan"))
    export_ctranslate2(save_model(model), tmp_path / "broken")
    with pytest.raises(UserError, match=r"scores are not numbers \(NaN\)"):
        search(load_export(tmp_path / "broken", "cpu").engine, sources[:3], GREEDY)


def test_every_search_setting_is_refused_or_known():
    """A new setting must not be ignored in silence."""
    known = {"beam", "length_penalty", "no_repeat_ngram", "early_stopping", "batch_tokens", "mbr", "repair"}
    known |= {"min_length", "min_length_ratio", "max_length_ratio", "max_length_offset"}
    of_sampling = {"temperature", "top_k", "top_p", "seed"}
    settings = {field.name for field in fields(SearchConfig)}
    assert settings - {"sampling"} == known | of_sampling
