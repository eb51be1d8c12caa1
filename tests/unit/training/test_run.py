from seq2seq.config import Config, DataConfig
from seq2seq.training.run import describe_text


def test_prepared_pairs_are_counted() -> None:
    assert describe_text(Config(), 12_345) == "12,345 training pairs"


def test_the_sample_of_a_stream_is_not_called_its_training_pairs() -> None:
    told = describe_text(Config(data=DataConfig(streaming=True)), 500)
    assert told == "training text streamed (vocabulary from a sample of 500 pairs of it)"
