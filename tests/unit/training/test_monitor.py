"""Which sentences of a validation set are translated while a model is trained."""

from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.training.monitor import TranslationValidation


def test_the_translated_sample_is_spread_over_the_whole_validation_set(tokenizer: Tokenizer) -> None:
    pairs = [(f"source {number}", f"target {number}") for number in range(10)]
    for size, numbers in ((4, [0, 2, 5, 7]), (20, [*range(10)]), (0, [])):
        training = TrainingConfig(bleu_sentences=size, monitor="loss")
        validation = TranslationValidation({"news": pairs}, Tokenizers.joint(tokenizer), training, SearchConfig())
        assert validation.samples == [[pairs[number] for number in numbers]]
