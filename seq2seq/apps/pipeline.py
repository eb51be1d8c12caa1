"""`pipeline("translation")` as transformers had it before version 5: the same arguments and results.

from seq2seq import pipeline
translate = pipeline("translation", model="Helsinki-NLP/opus-mt-en-es")
translate("The ball is blue.")  # [{"translation_text": "…"}]
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.apps.exchange.cached import imported
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.storage.output import find_model
from seq2seq.translate.translator import CHUNK_LINES, Translator

if TYPE_CHECKING:
    import torch

_SEARCH = {  # generate's options → ours
    "num_beams": "beam",
    "length_penalty": "length_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "do_sample": "sampling",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
}
_KNOWN = (
    *_SEARCH, "num_return_sequences", "max_length", "max_new_tokens", "early_stopping",
    "batch_size", "truncation", "clean_up_tokenization_spaces", "return_text",
)  # fmt: skip


def pipeline(
    task: str = "translation",
    model: str | Path | None = None,
    *,
    device: "int | str | torch.device" = "auto",
    **options: Any,
) -> "TranslationPipeline":
    """Return a function that translates as the `pipeline` of transformers 4 did.

    Args:
        task: "translation", or "translation_en_to_es" with the model's languages.
        model: a run, a bundle, a folder that `save_pretrained` wrote, or a name on the Hugging Face hub; None: the
            newest run, or the model that comes with the project.
        device: -1 or "cpu", a number of a GPU, "cuda:N", or auto for a GPU if there is one.
        options: of every call, see `TranslationPipeline.__call__`.

    Raises:
        UserError: the task is another one, the model is not available, or an option is unknown.
    """
    languages = re.fullmatch(r"translation(?:_(\w+)_to_(\w+))?", task)
    if languages is None:
        raise UserError(f"there is no task {task!r} here: give translation, or translation_en_to_es")
    if isinstance(device, int):
        device = f"cuda:{device}" if device >= 0 else "cpu"
    folder = find_model(None) if model is None else imported(str(model), DataConfig().cache, f"model={model}")
    translator = Translator.load(folder, device)
    if languages[1] and languages.groups() != (own := (translator.src_lang, translator.tgt_lang)):
        raise UserError(f"{task}: this model translates from {own[0]} to {own[1]}")
    return TranslationPipeline(translator, **options)


class TranslationPipeline:
    """Translates texts into dictionaries with the key translation_text.

    Attributes:
        translator: translates; it cuts, sorts and batches texts itself.
    """

    task = "translation"

    def __init__(self, translator: Translator, **options: Any) -> None:
        """Set the options of every call.

        Raises:
            UserError: an option is unknown.
        """
        _search(options)
        self.translator, self._options = translator, options

    def __call__(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Translate a text, a list of texts, or any iterable of texts, such as a generator.

        Args:
            texts: one text, a list of texts, or another iterable of texts, which is read bit by bit.
            options: num_beams, num_return_sequences, length_penalty, no_repeat_ngram_size;
                do_sample, temperature, top_k, top_p; max_length (tokens, with start and end) or max_new_tokens (with
                the end); early_stopping="never" for an exact search. Without effect: batch_size, as texts are batched
                by length; truncation, as long texts are translated sentence by sentence.

        Returns:
            One text: a list with a dictionary for each translation. A list of texts: a list of dictionaries or, with
            num_return_sequences, of such lists. Another iterable: an iterator over such lists.

        Raises:
            UserError: an option is unknown or out of range.
        """
        options = self._options | options
        number = options.get("num_return_sequences", 1)
        request = self.translator.request(n_best=number, **_search(options))
        inputs = [texts] if isinstance(texts, str) else texts
        best = self.translator.stream(inputs, request, chunk=None if isinstance(inputs, list) else CHUNK_LINES)
        outputs = ([{"translation_text": translation.text} for translation in of_text] for of_text in best)
        if isinstance(texts, str):
            return next(outputs)
        if isinstance(texts, list):
            return [output[0] if number == 1 else output for output in outputs]
        return outputs


def _search(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return generate's options as search settings."""
    if unknown := [name for name in options if name not in _KNOWN]:
        raise UserError(f"pipeline has no option {unknown[0]}: choose from {', '.join(_KNOWN)}")
    settings = {ours: options.get(theirs) for theirs, ours in _SEARCH.items()}
    if not settings["sampling"]:  # generate ignores these where nothing is drawn, and ends a search by this rule
        settings |= {"temperature": None, "top_k": None, "top_p": None}
    settings["early_stopping"] = not settings["sampling"] and options.get("early_stopping") != "never"
    for name, more in (("max_length", 2), ("max_new_tokens", 1)):  # theirs count the start and the end
        if (most := options.get(name)) is not None:
            if not isinstance(most, int) or most <= more:
                raise UserError(f"{name}={most!r} leaves no room for a token: give a whole number above {more}")
            settings["max_length"] = most - more
    return settings
