"""Invented words: the share of a model's words that neither a spelling dictionary (hunspell) nor the source has."""

import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.command import Options, Results, Table
from seq2seq.data.corpus import read_pairs
from seq2seq.errors import UserError
from seq2seq.evaluation.faults import invented_share, invented_words, words
from seq2seq.settings.data import DataConfig
from seq2seq.storage.output import find_model
from seq2seq.translate.translator import Translator


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `invented`."""

    model: Path  # run or bundle
    # test set: a .tsv, or two files as SOURCE+REFERENCE; may be given several times
    testset: list[str] = field(default_factory=lambda: ["data/bundled/everyday.test.tsv"])
    dictionary: str = "es_ES"  # hunspell's dictionary of the target language
    sentences: int = 2000  # sentences of each test set, from its beginning; 0: all
    repair: Literal["auto", "off"] = "auto"  # search.repair; auto: as the model's settings say


def run(plan: Plan, device: torch.device) -> Results:
    """Translate the test sets, and count invented words in the translations and in the references."""
    translator = Translator.load(find_model(plan.model), device)
    if plan.repair == "off":
        translator.search = replace(translator.search, repair=False)
    data, values, rows = DataConfig(src_lang=translator.src_lang, tgt_lang=translator.tgt_lang), dict[str, Any](), []
    for name in plan.testset:
        source, reference = zip(*islice(read_pairs(name, None, data), plan.sentences or None), strict=True)
        found = translator.translate(list(source))
        known = dictionary_words([*found, *reference], plan.dictionary)
        pairs = [list(zip(source, texts, strict=True)) for texts in (found, reference)]
        shares = [invented_share(of_texts, known) for of_texts in pairs]
        counts = Counter(word for pair in pairs[0] for word in invented_words(*pair, known)).most_common()
        values[name] = {"translations": shares[0], "references": shares[1], "words": dict(counts)}
        rows.append([name, *(f"{share:.2%}" for share in shares), ", ".join(word for word, _ in counts[:5])])
    header = ["test set", "translations", "references", "most frequent"]
    return values, [Table("Words that neither the dictionary nor the source has", header, rows)]


def dictionary_words(texts: Iterable[str], dictionary: str) -> set[str]:
    """Return the words of texts, in lower case, that hunspell knows in a form that the texts have."""
    forms = {word for text in texts for word in words(text)}
    command = ["hunspell", "-i", "utf-8", "-d", dictionary, "-L"]  # -L prints the lines with unknown words
    try:
        done = subprocess.run(command, input="\n".join(forms), capture_output=True, encoding="utf-8", check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        advice = "install both, such as by `apt-get install hunspell hunspell-es`"
        raise UserError(f"there is no hunspell with the dictionary {dictionary}: {advice}") from error
    return {form.lower() for form in forms.difference(done.stdout.splitlines())}
