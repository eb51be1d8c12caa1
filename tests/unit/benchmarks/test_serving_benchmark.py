"""What the benchmark of the server sends stays within the limits of a request."""

from benchmarks import attacks, serving
from seq2seq.apps.serve.limits import Limits


def test_every_attack_stays_within_the_limits_of_a_request():
    limits = Limits()
    for texts in (attacks.white_space_documents(), attacks.subword_texts(), attacks.costly_documents()):
        assert all(len(text) <= limits.char_limit for text in texts)
    refused, accepted = attacks.costly_documents()
    assert refused.count("<b>") > limits.tag_limit == accepted.partition(".")[0].count("b>")
    heads = [request.partition(b"\r\n\r\n") for request in attacks.codec_requests("http://127.0.0.1:1")]
    assert all(len(body) <= limits.body_limit and b"Authorization" not in head for head, _, body in heads)
    assert limits.connections * 2 < attacks.IDLE


def test_documents_are_as_large_as_a_request_may_be():
    limits = Limits()
    text, page, texts = (values["q"] for values in serving.document_values(["The cat sees the milk.", "Yes."]))
    assert len(text) == len(page) == limits.char_limit
    assert len(texts) == serving.TEXTS <= limits.batch_limit
    assert sum(map(len, texts)) <= limits.char_limit
