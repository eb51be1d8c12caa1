"""What each group of texts and of modifiers gives: the same short run with all of them, and without each group."""

import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch
from sacrebleu import BLEU, CHRF

from benchmarks import processes, typed
from benchmarks.command import Options, Results, Table
from benchmarks.invented import dictionary_words
from benchmarks.speedrun import MEASURED, TRACKS
from seq2seq.data.corpus import read_pairs
from seq2seq.evaluation.faults import invented_share
from seq2seq.evaluation.robustness import make_probes, measure
from seq2seq.settings.compose import compose
from seq2seq.settings.data import DataConfig
from seq2seq.storage.output import find_model
from seq2seq.translate.translator import Translator

TEXTS = {
    "books": "gutenberg_novels gutenberg_novels2 gutenberg_essays gutenberg_pivot gutenberg_pivot2",
    "dictionary": "apertium_dictionary cldr_iso_names",
    "lessons": "openstax_chemistry openstax_physics openstax_statistics mdn_learn mdn_reference programming_historian"
    " raspberry_pi carpentries django_girls hedy debian_handbook debian_reference open_science_handbook"
    " opensource_guide open_contracting open_data_handbook metadocencia ropensci_devguide pyopensci_guide",
    "citizens and blogs": "healthcare_gov us_tax_help login_gov login_gov_app mozilla_legal justfix_tenants"
    " privacyguides doj_civil_rights bloom_housing mnbenefits who_owns_what chayn_bloom cal_itp alaveteli consul_docs"
    " ropensci_blog rladies ethereum_org bitcoin_org monero_site inaturalist openfoodfacts openfoodnetwork fdroid_site",
}
MODIFIERS = {
    "capitals and titles": "capitals title_case",
    "shape": "fragments joined list_marks brackets repeats",
    "characters": "typography symbols typos",
    "names and numbers": "names numbers dates",
    "code": "code",
}
TESTS = {"news": "tests/newstest2012.en+tests/newstest2012.es", "everyday": "tatoeba/validation.tsv"}


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `groups`."""

    data: Path  # folder with corpora/, tatoeba/ and tests/
    init: Path | None = None  # run or bundle whose weights each run begins with; without it, random weights
    updates: int = 1000  # updates of each run, with a rate that falls to zero
    max_tokens: int = 1024  # positions of a batch
    learning_rate: float = 1e-3  # rate after the warm-up
    lines: int = 500  # lines of each test set
    only: str = ""  # names of groups, separated by commas; without it, all


def run(plan: Plan, device: torch.device) -> Results:
    """Train with all groups and without each, and measure every model, repair off."""
    settings = [*TRACKS["mixed"].settings, *MEASURED, f"data.root={plan.data.resolve()}"]
    settings += ["search.repair=false", "data.held_out=1"]
    settings += [f"training.max_tokens={plan.max_tokens}", f"training.learning_rate={plan.learning_rate}"]
    settings += ["training.warmup_steps=50", "trainer=cpu" if device.type == "cpu" else "trainer=gpu"]
    settings += [f"init={plan.init.resolve()}"] if plan.init else []
    changes = {"all": list[str](), **{f"no {name}": _without_texts(group) for name, group in TEXTS.items()}}
    changes |= {f"no {name}": without_modifiers(settings, group) for name, group in MODIFIERS.items()}
    chosen = plan.only.split(",") if plan.only else list(changes)
    values, rows = dict[str, dict[str, float]](), list[list[str]]()
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            place = Path(folder) / name.replace(" ", "_")
            _train([*settings, *changes[name]], plan, place)
            loss = json.loads((place / "runs/run/results.json").read_text(encoding="utf-8"))["validation_loss"]
            translator = Translator.load(find_model(place / "runs/run"), device)
            values[name] = {"validation loss": loss, **_scores(translator, plan)}
            rows.append([name, *(f"{value:.4g}" for value in values[name].values())])
            print(" | ".join(rows[-1]), flush=True)
    return {"groups": values}, [Table("Groups", ["trained with", *values[chosen[0]]], rows)]


def _train(settings: list[str], plan: Plan, folder: Path) -> None:
    folder.mkdir()
    program = [sys.executable, str(processes.REPOSITORY / "train.py"), *settings, "name=run"]
    program += [f"trainer.max_steps={plan.updates}", f"trainer.validate_every={plan.updates}", "data.test=[]"]
    processes.run(program, folder=folder, OMP_NUM_THREADS=str(plan.threads or torch.get_num_threads()))


def _without_texts(group: str) -> list[str]:
    return [f"++data.weights.{corpus}=0" for corpus in group.split()]


def without_modifiers(settings: list[str], group: str) -> list[str]:
    """Return the settings without a group; each other family changes as many pairs as before."""
    modifiers = compose(settings).training.modifiers
    weights = {name: value for name, value in vars(modifiers).items() if name not in ("share", "own")}
    left = 1 - sum(weights[name] for name in group.split()) / sum(weights.values())
    without = [f"training.modifiers.{name}=0" for name in group.split()]
    return [*without, f"training.modifiers.share={modifiers.share * left}"]


def _scores(translator: Translator, plan: Plan) -> dict[str, float]:
    """Return BLEU, chrF++, invented words (%), and what the lines of `typed` and the probes in capitals lose."""
    values: dict[str, float] = {}
    pairs = list[tuple[str, str]]()
    for name, testset in TESTS.items():
        data = DataConfig(src_lang=translator.src_lang, tgt_lang=translator.tgt_lang)
        pairs = list(islice(read_pairs(testset, str(plan.data.resolve()), data), plan.lines))
        sources, references = map(list, zip(*pairs, strict=True))
        found = translator.translate(sources)
        values[f"{name}: BLEU"] = BLEU().corpus_score(found, [references]).score
        values[f"{name}: chrF++"] = CHRF(word_order=2).corpus_score(found, [references]).score
        known = dictionary_words(found, "es_ES")
        values[f"{name}: invented words, %"] = 100 * invented_share(zip(sources, found, strict=True), known)
    probes = {name: some for name, some in make_probes(pairs, 1000).items() if name in ("CAPITALS", "Title Case")}
    for name, family in measure(probes, translator.translate, translator.tgt_lang).items():
        values[f"{name}, % of plain chrF++"] = 100 * (family.chrf or 0) / (family.plain_chrf or 1)
    texts = [line.split("\t")[1] for line in typed.LINES.read_text(encoding="utf-8").splitlines()]
    both = zip(texts, translator.translate(texts), strict=True)
    lost = [typed.lost(text, found, translator.tgt_lang) for text, found in both]
    for fault in typed.FAULTS:
        values[f"typed: {fault}"] = sum(asdict(one)[fault] for one in lost)
    return values
