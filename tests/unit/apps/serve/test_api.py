import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from serving import FakeTranslator, question, until

from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.messages import ExplainRequest
from seq2seq.apps.serve.service import detector
from seq2seq.errors import UserError

Ask = Callable[..., Any]
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
PARTS = (
    "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {"q": "VALUE", "source": "en", "target": "es"}.items()
    )
    + "--x--\r\n"
)
WORDS = [f"w{letter}" for letter in "abcdefghijk"]  # more than the terms of a glossary that a sentence may have


def post(ask: Ask, path: str = "/translate", /, **kinds: Any) -> Any:
    """Send one request; of its options those that httpx does not know are the application's."""
    sent = {key: kinds.pop(key) for key in ("json", "data", "files", "content", "headers", "params") if key in kinds}
    return ask(lambda client: client.post(path, **sent), **kinds)


def test_one_text_is_answered_with_one_and_a_list_with_a_list(ask: Ask):
    one = post(ask, json=question("a", alternatives=2)).json()
    assert one == {"translatedText": "A", "alternatives": ["A!", "A!!"]}
    assert post(ask, json=question(["a", "b"], alternatives=1)).json()["alternatives"] == [["A!"], ["B!"]]
    html = post(ask, json=question("<p id=a>Hi &amp; <i>you</i></p>", format="html")).json()
    assert html["translatedText"].startswith("<p id=a>HI &amp; <i>YOU</i></p>")
    assert post(ask, json=question("Hi. You.")).json() == {"translatedText": "HI. YOU."}
    assert post(ask, json=question(["a", "", "b"])).json() == {"translatedText": ["A", "", "B"]}


def test_sentences_are_returned_as_they_are_cut(ask: Ask):
    text = "It is 3.5 p.m. Mr. Cat sees it.\nA dog? See https://a.example/b.c today."
    one = post(ask, json=question(text, sentences=True)).json()
    assert one["sentences"] == ["It is 3.5 p.m.", "Mr. Cat sees it.", "A dog?", "See https://a.example/b.c today."]
    assert post(ask, json=question(["A b. C d.", ""], sentences=True)).json()["sentences"] == [["A b.", "C d."], []]
    assert "sentences" not in post(ask, json=question(text)).json()


def test_the_confidence_is_that_of_the_least_sure_sentence(ask: Ask, translator: FakeTranslator):
    text = "It is. Mr. Cat sees it.\nA dog?"
    assert post(ask, json=question(text, confidence=True)).json()["confidence"] == round(1 / len("Mr. Cat sees it."), 4)
    texts = ["Yes.", "", "See https://a.example/b.c"]
    several = post(ask, json=question(texts, confidence=True, alternatives=1)).json()
    assert several["confidence"] == [0.25, None, 0.04]
    assert "confidence" not in post(ask, json=question(text)).json()
    translator.calibration = None
    refused = post(ask, json=question("a", confidence=True))
    assert (refused.status_code, "this model is not calibrated" in refused.json()["error"]) == (501, True)


def test_a_glossary_is_for_its_own_request(ask: Ask):
    terms = {"ice cream": "el helado", "Cat": "la gata"}
    answer = post(ask, json=question(["The cat.", "Ice cream? No cats.", "a"], glossary=terms)).json()
    assert answer["translatedText"] == ["THE CAT. la gata", "ICE CREAM? el helado NO CATS.", "A"]
    assert post(ask, json=question("The cat.")).json() == {"translatedText": "THE CAT."}
    html = post(ask, json=question("<p>The <b>cat</b>.</p>", format="html", glossary=terms)).json()
    assert "la gata" in html["translatedText"]
    form = post(ask, data=question("The cat.", glossary=json.dumps(terms)))
    assert form.json() == {"translatedText": "THE CAT. la gata"}
    in_two_sentences = question(
        ". ".join([" ".join(WORDS[:10]), "X wk"]), glossary=dict(zip(WORDS, WORDS, strict=True))
    )
    assert post(ask, json=in_two_sentences).status_code == 200


@pytest.mark.parametrize("unset", [None, ""])
def test_a_field_that_is_null_or_empty_has_its_default(ask: Ask, unset: str | None):
    fields = dict.fromkeys(("format", "alternatives", "api_key", "sentences", "confidence", "glossary"), unset)
    for kind in ("json", "data", "params"):
        assert post(ask, **{kind: question("a", **fields)}).json() == {"translatedText": "A"}
    files = {name: (None, value or "") for name, value in question("a", **fields).items()}
    assert post(ask, files=files).json() == {"translatedText": "A"}


@pytest.mark.parametrize("q", ["", "  ", "\n", [], [""], ["", " "]])
def test_an_empty_text_has_an_empty_translation(ask: Ask, translator: FakeTranslator, q: str | list[str]):
    expected = {"translatedText": q, "alternatives": [] if isinstance(q, str) else [[] for _ in q]}
    for kind in ("text", "html"):
        assert post(ask, json=question(q, format=kind, alternatives=2)).json() == expected
    assert post(ask, data=question("")).json() == post(ask, params=question("")).json() == {"translatedText": ""}
    assert post(ask, "/detect", json={"q": q}).json() == [{"language": "en", "confidence": 0.0}]
    assert not translator.batches


def test_the_query_string_has_fields_too(ask: Ask):
    languages, json_type = {"source": "en", "target": "es"}, {"Content-Type": "application/json"}
    for sent in ({"params": question("a")}, {"params": question("a"), "headers": json_type}):
        assert post(ask, **sent).json() == {"translatedText": "A"}
    for kind in ("json", "data"):
        assert post(ask, params=languages | {"q": "b"}, **{kind: {"q": "a"}}).json() == {"translatedText": "A"}
    for names in map(str.split, ("q q", "q[] q[]", "q[]", "q q[]", "q[] q q[]", "q[0] q[1]", "q " * 100)):
        sent = urlencode([*languages.items(), *((name, f"a{number}") for number, name in enumerate(names))])
        for answer in (post(ask, f"/translate/?{sent}"), post(ask, content=sent, headers={"Content-Type": FORM})):
            assert answer.json() == {"translatedText": [f"A{number}" for number in range(len(names))]}


@pytest.mark.parametrize("source", ["EN", "en-US", "en_GB", " en ", "en-Latn-ZA", "AUTO"])
@pytest.mark.parametrize("target", ["ES", "es-MX", "es-419", "es_ES.UTF-8"])
def test_a_language_is_known_by_its_code_with_a_region_or_in_capitals(ask: Ask, source: str, target: str):
    answer = post(ask, json={"q": "a", "source": source, "target": target})
    assert (answer.status_code, answer.json()["translatedText"]) == (200, "A")


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON ; charset=UTF8", "application/vnd.api+json"])
def test_json_is_known_by_its_type(ask: Ask, kind: str):
    sent = json.dumps(question("ñ")).encode()
    assert post(ask, content=sent, headers={"Content-Type": kind}).json() == {"translatedText": "Ñ"}


@pytest.mark.parametrize("kind", ["data", "files"])
def test_forms_are_understood(ask: Ask, kind: str):
    fields = {"q": "It's ñ + ü & 100 %.\r\nYes.", "source": "en", "target": "es", "alternatives": "1"}
    sent: dict[str, Any] = {kind: fields if kind == "data" else {name: (None, fields[name]) for name in fields}}
    assert post(ask, **sent).json()["translatedText"] == "IT'S Ñ + Ü & 100 %.\nYES."


def test_auto_detects_each_text_and_does_not_translate_what_is_in_the_target_language(ask, translator):
    def detect(text: str) -> tuple[str, float]:
        return ("es", 88.0) if "gato" in text else (text[:2], 99.0)

    texts = ["de", "El gato. ", "en", "El gato. "]
    sent = question(texts, source="auto", alternatives=1, sentences=True, confidence=True)
    answer = post(ask, json=sent, detect=detect).json()
    assert answer["translatedText"] == ["DE", "El gato. ", "EN", "El gato. "]
    assert answer["alternatives"] == [["DE!"], [], ["EN!"], []]
    assert answer["confidence"] == [0.5, None, 0.5, None]
    detected = [(one["language"], one["confidence"]) for one in answer["detectedLanguage"]]
    assert detected == [("de", 99.0), ("es", 88.0), ("en", 99.0), ("es", 88.0)]
    assert translator.batches == [["de", "en"]]
    assert post(ask, json=question("El gato."), detect=detect).json() == {"translatedText": "EL GATO."}
    assert post(ask, "/detect", json={"q": ["a", "gato"]}, detect=detect).json() == [
        {"language": "es", "confidence": 88.0}
    ]


def test_a_word_that_the_model_does_not_change_is_in_the_target_language(ask: Ask, translator: FakeTranslator):
    for percent, text, language in ((82, "Read_me", "es"), (82, "read", "en"), (95, "read_me", "en"), (0, "a_b", "en")):
        sent = {"json": question(text, source="auto"), "detect": lambda _, percent=percent: ("en", float(percent))}
        assert post(ask, **sent).json()["detectedLanguage"]["language"] == language
    assert translator.batches == [["read_me"], ["read"], ["read"], ["read_me"], ["a_b"]]


def test_the_tags_of_html_are_in_no_language(ask: Ask):
    page = "<p class='the-text-that-is-here'>El <b>gato</b> bebe la leche.</p>"
    answer = post(ask, json=question(page, source="auto", format="html")).json()
    assert (answer["translatedText"], answer["detectedLanguage"]["language"]) == (page, "es")


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"source": "en", "target": "es"}, "missing q"),
        (question(None), "missing q"),
        ({"q": "a", "target": "es"}, "missing source"),
        ({"q": "a", "source": "en"}, "missing target"),
        (question("a", source="fr-FR"), "fr → es is not supported: this server translates en → es"),
        (question("a", source="es", target="en"), "es → en is not supported: this server translates en → es"),
        (question("a", source="auto", target=" "), "missing target"),
        (question("a", format="pdf"), "format: Input should be 'text' or 'html'"),
        (question("a", alternatives=5), "at most 4"),
        (question("a", alternatives=-1), "alternatives"),
        (question(["a", 3]), "q: Input should be"),
        (question({"a": 1}), "q: Input should be"),
        (question("x" * 5001), "(5001) exceeds text limit (5000)"),
        (question(["x" * 2600] * 2), "(5200) exceeds"),
        (question(["x"] * 101), "(101) exceeds text limit (100)"),
        ("&".join(["q=x"] * 300 + ["source=en&target=es"]), "(300) exceeds text limit (100)"),
        ("q=%FF&source=en&target=es", "expected a query string in UTF-8"),
        (question("I refuse."), "this text is refused"),
        (question("<p>a</p>", sentences=True, format="html"), "sentences=true needs format=text"),
        (question("<p>a</p>", confidence=True, format="html"), "confidence=true needs format=text"),
        (question("a", glossary=["cat"]), "glossary: Input should be a valid dictionary"),
        (question("a", glossary={"cat": 1}), "glossary: Input should be a valid string"),
        (question("a", glossary={"cat": "x" * 101}), "glossary: String should have at most 100 characters"),
        (question("a", glossary={"cat": ""}), "missing glossary"),
        (question("a", glossary={"cat": " "}), "the glossary has the term"),
        (question("a", glossary={str(n): "x" * 90 for n in range(60)}), "exceeds text limit (5000)"),
        (question("a", glossary="cat"), "glossary: Input should be a valid dictionary"),
        (question(" ".join(WORDS), glossary=dict(zip(WORDS, WORDS, strict=True))), "has 11 terms of the glossary, at"),
        ([1], "Invalid JSON"),
    ],
)
def test_what_cannot_be_done_is_answered_with_the_reason(ask: Ask, sent: Any, message: str):
    answer = post(ask, f"/translate?{sent}") if isinstance(sent, str) else post(ask, json=sent)
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{", 400),
        ("application/json", b"[" * 50_000, 400),
        ("application/json", b'{"q": "\xff"}', 400),
        ("application/json", b'{"q": "\\ud800", "source": "en", "target": "es"}', 400),
        (FORM, b"q=%ff", 400),
        (FORM, b"q=\xff&source=en&target=es", 400),
        ("multipart/form-data", b"--x", 400),
        (MULTIPART, b'--x\r\nContent-Disposition: form-data; name="q"; filename="a"\r\n\r\n', 400),
        (MULTIPART, PARTS.replace("VALUE", "\xff").encode("latin-1"), 400),
        ("text/plain", b"q=a", 415),
        (f"{MULTIPART}; charset=punycode", b"--x", 415),
        ("application/json; charset=utf-16", b"{}", 415),
        ("application/json; charset=UTF-8", b"{}", 400),
        ("", b"", 400),
    ],
)
def test_a_malformed_body_is_refused(ask: Ask, kind: str, body: bytes, status: int):
    answer = post(ask, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


@pytest.mark.parametrize(
    ("encoding", "status"), [("gzip", 415), ("gzip, identity", 415), ("", 200), (" Identity", 200), ("UTF-8", 200)]
)
def test_a_compressed_body_is_refused(ask: Ask, encoding: str, status: int):
    answer = post(ask, json=question("a"), headers={"Content-Encoding": encoding})
    assert (answer.status_code, f"without {encoding} encoding" in answer.text) == (status, status == 415)


def test_a_wrong_key_in_the_header_is_refused_before_the_body_is_read(ask: Ask):
    async def body() -> AsyncIterator[bytes]:
        pytest.fail("the body was read")
        yield b""

    answer = post(ask, content=body(), headers={"Authorization": "Bearer wrong"}, api_key="s3crét")
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ({"json": {}}, 400),
        ({"json": {"api_key": ""}}, 400),
        ({"json": {"api_key": "wrong"}}, 403),
        ({"json": {"api_key": "s3crét"}}, 200),
        ({"data": {"api_key": "s3crét"}}, 200),
        ({"params": {"api_key": "s3crét"}, "json": {}}, 200),
        ({"json": {}, "headers": {"Authorization": "Bearer wrong"}}, 403),
        ({"json": {}, "headers": {"Authorization": "bearer s3cret"}}, 200),
    ],
)
def test_work_needs_the_key_where_there_is_one(ask: Ask, kinds: dict[str, Any], status: int):
    key = "s3cret" if "headers" in kinds else "s3crét"  # a header is in ASCII
    for path, fields in (("/translate", question("a")), ("/detect", {"q": "a"}), ("/explain", {"source": "a"})):
        sent = {kind: values if kind == "headers" else {**fields, **values} for kind, values in kinds.items()}
        assert post(ask, path, api_key=key, explain=lambda _: {}, **sent).status_code == status


def test_facts_are_those_of_libretranslate_and_need_no_key_but_the_metrics_do(ask: Ask):
    async def scenario(client: Any) -> tuple[list[Any], list[int]]:
        facts = [(await client.get(path)).json() for path in ("/languages", "/frontend/settings", "/health")]
        bearers = ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer k"})
        return facts, [(await client.get("/metrics", headers=bearer)).status_code for bearer in bearers]

    (languages, settings, health), statuses = ask(scenario, api_key="k")
    spanish = {"code": "es", "name": "Spanish", "targets": []}
    assert languages == [{"code": "en", "name": "English", "targets": ["es"]}, spanish]
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert (settings["charLimit"], settings["keyRequired"], settings["explainLimit"]) == (5000, True, 0)
    assert (health, statuses) == ({"status": "ok"}, [400, 403, 200])


def test_a_file_in_place_of_a_text_is_refused_with_the_reason(ask: Ask):
    answer = post(ask, data={"source": "en", "target": "es"}, files={"q": ("a.txt", "a")})
    assert (answer.status_code, "Too many files" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize(("path", "reason"), [("/translate_file", "translates no files"), ("/suggest", "takes no")])
def test_a_route_that_only_libretranslate_has_says_so(ask: Ask, path: str, reason: str):
    answer = post(ask, path, files={"file": ("a.txt", b"a" * 1_000_000), "source": (None, "en")})
    assert (answer.status_code, answer.headers["connection"]) == (501, "close")
    assert reason in answer.json()["error"]


def test_every_route_describes_its_answers(ask: Ask):
    api = ask(lambda client: client.get("/openapi.json")).json()
    assert set(api["paths"]) >= {"/", "/translate", "/explain", "/languages", "/health", "/ready", "/metrics"}
    for methods in api["paths"].values():
        for route in methods.values():
            assert set(route["responses"]) == {"200", "default"}
            for answer in route["responses"].values():
                assert all(content["schema"] for content in answer["content"].values())


@pytest.mark.parametrize("part", ["", "bytes=0-3", "bytes=9-1"])
def test_the_page_is_given_whole_whatever_part_is_requested(ask: Ask, part: str):
    answer = ask(lambda client: client.get("/", headers={"Range": part}))
    assert (answer.status_code, answer.text.endswith("</html>\n")) == (200, True)


@pytest.mark.parametrize(
    "path", ["/", "/health", "/ready", "/languages", "/frontend/settings", "/metrics", "/page/page.js"]
)
def test_head_tells_what_get_would_without_the_body(ask: Ask, path: str):
    async def scenario(client: Any) -> Any:
        answers = [await client.head(path), await client.get(path), await client.head("/translate")]
        return *answers, (await client.get("/metrics")).text

    head, get, only_posted, metrics = ask(scenario)
    assert (head.status_code, head.content) == (200, b"")
    assert get.content
    assert head.headers["content-type"] == get.headers["content-type"]
    assert path == "/metrics" or head.headers["content-length"] == get.headers["content-length"]
    assert 'seq2seq_requests_total{method="HEAD"' in metrics
    assert (only_posted.status_code, only_posted.headers["allow"], only_posted.content) == (405, "POST", b"")


def test_metrics_count_requests_sentences_and_batches(ask: Ask):
    async def scenario(client: Any) -> str:
        await client.post("/translate", json=question("One. Two. Three."))
        await client.post("/translate", json={})
        await client.get("/secret/../../etc/passwd")
        return (await client.get("/metrics")).text

    lines = ask(scenario).splitlines()
    for line in (
        'seq2seq_requests_total{method="POST",path="/translate",status="200"} 1.0',
        'seq2seq_requests_total{method="POST",path="/translate",status="400"} 1.0',
        'seq2seq_requests_total{method="GET",path="other",status="404"} 1.0',
        'seq2seq_request_seconds_count{path="/translate"} 2.0',
        "seq2seq_sentences_total 3.0",
        "seq2seq_batch_sentences_sum 3.0",
        "seq2seq_batch_seconds_count 1.0",
        "seq2seq_waiting_sentences 0.0",
    ):
        assert line in lines


HERE, GOOD, SITE = "http://10.0.0.5:8000", "https://good.example", "Sec-Fetch-Site"
KNOWN = ("localhost", "LocalHost:8000", "a.localhost", "127.0.0.1:8000", "[::1]:8000", "10.0.0.5", "[fe80::1]")
KNOWN += ("named.example", "Named.example.:443")
STRANGE = ("bad.example", "bad.example:8000", "127.0.0.1.bad.example", "localhost.bad.example", "notlocalhost", "[")
PROXIED = {"Host": "a.example", "Origin": "https://a.example", SITE: "same-origin"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({SITE: "cross-site"}, 403),
        ({SITE: "cross-site", "Origin": "https://bad.example"}, 403),
        ({SITE: "cross-site", "Origin": GOOD}, 200),
        ({SITE: "same-site", "Origin": "http://127.0.0.1:3000"}, 403),
        ({SITE: "same-origin", "Origin": "http://127.0.0.1"}, 200),
        # Over plain HTTP from another machine, browsers send no Sec-Fetch-Site.
        *(({"Host": "10.0.0.5:8000", "Origin": origin}, 200) for origin in (HERE, HERE.upper(), GOOD)),
        *(({"Host": "10.0.0.5:8000", "Origin": origin}, 403) for origin in ("http://10.0.0.5:3000", "null", "")),
        # A stranger's page may have its own name point here, and is of one origin with the server (DNS rebinding).
        *(({"Host": host, "Origin": f"http://{host}"}, 200) for host in KNOWN),
        *(({"Host": host, "Origin": f"http://{host}"}, 403) for host in STRANGE),
        (PROXIED, 403),
        (PROXIED | {"Host": "127.0.0.1:8000"}, 200),  # of a proxy that does not pass on the host
    ],
)
def test_only_pages_of_known_origins_and_hosts_can_make_it_work(ask: Ask, headers: dict[str, str], status: int):
    def post_form(**options: Any) -> Any:  # what a page may post anywhere without asking first
        return post(ask, data=question("A cat."), headers=headers, **options)

    answer = post_form(allow_origins=[GOOD], allowed_hosts=["Named.example"])
    error = answer.json().get("error", "")
    is_refused = f"--allow-origin {headers.get('Origin', 'ORIGIN')}" in error or "--allowed-host" in error
    assert (answer.status_code, is_refused) == (status, status == 403)
    assert answer.headers.get("access-control-allow-origin") == (GOOD if headers.get("Origin") == GOOD else None)
    assert post_form(allow_origins=["*"], allowed_hosts=["*"]).status_code == 200


@pytest.mark.parametrize(
    ("origin", "header", "status", "sent"),
    [(GOOD, "Content-Type", 200, "OK"), (HERE, "Content-Type", 400, "origin"), (GOOD, "X-A", 400, "headers")],
)
def test_a_preflight_is_refused_as_other_requests_are(ask: Ask, origin: str, header: str, status: int, sent: str):
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": header}
    answer = ask(lambda client: client.options("/translate", headers=asked), allow_origins=[GOOD])
    assert answer.status_code == status
    assert (answer.text if status == 200 else answer.json()["error"].removeprefix("Disallowed CORS ")) == sent


def explain(options: ExplainRequest) -> dict[str, Any]:
    if options.layer > 1:
        raise UserError(f"layer {options.layer} is not there: give 0 to 1")
    return options.model_dump(include={"source", "target", "layer", "head", "without", "average"})


@pytest.mark.parametrize(
    "fields", [{"target": "b", "layer": "1", "head": "3"}, {"without": ["cross"]}, {"without": ["cross", "encoder.1"]}]
)
def test_an_explanation_is_of_what_is_asked_for(ask: Ask, fields: dict[str, Any]):
    usual = {"source": "ñ", "target": None, "layer": 0, "head": 0, "without": [], "average": []}
    for kind in ("json", "data"):
        explained = post(ask, "/explain", explain=explain, **{kind: {"source": "ñ", **fields}}).json()
        assert explained == {**usual, **fields, **{name: int(fields.get(name, 0)) for name in ("layer", "head")}}


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({}, "missing source"),
        ({"source": "a" * 301}, "(301) exceeds text limit (300)"),
        ({"source": "a", "target": "a" * 301}, "(301) exceeds"),
        ({"source": "a", "head": -1}, "head: "),
        ({"source": "a", "layer": 2}, "layer 2 is not there"),
        ({"source": "a" * 200, "target": "b" * 200}, "bytes, at most 400 are sent"),
    ],
)
def test_what_cannot_be_explained_is_answered_with_the_reason(ask: Ask, sent: Any, message: str):
    answer = post(ask, "/explain", json=sent, explain=explain, limits=Limits(explanation_bytes=400))
    assert (answer.status_code, message in answer.json()["error"]) == (400, True)


def test_a_server_that_cannot_explain_says_so(ask: Ask):
    answer = post(ask, "/explain", json={"source": "a"})
    assert (answer.status_code, "--engine pytorch" in answer.json()["error"]) == (501, True)


def test_explanations_have_a_bound_of_their_own(ask: Ask, translator: FakeTranslator):
    async def scenario(client: Any) -> tuple[int, list[int]]:
        translator.may_go.clear()
        asked = [asyncio.create_task(client.post("/explain", json={"source": "a"})) for _ in range(5)]
        await until(lambda: sum(task.done() for task in asked) == 3)
        translation = asyncio.create_task(client.post("/translate", json=question("a")))
        translator.may_go.set()
        return (await translation).status_code, sorted(answer.status_code for answer in await asyncio.gather(*asked))

    answered = ask(scenario, explain=lambda _: {"is_done": translator.may_go.wait(20)}, limits=Limits(explanations=2))
    assert answered == (200, [200, 200, 429, 429, 429])


EVERYDAY = Path(__file__).parents[4] / "data/bundled/everyday.test.tsv"


def test_no_english_sentence_seems_to_be_spanish_and_few_short_spanish_ones_seem_to_be_english():
    detect = detector("en", "es")
    pairs = [line.split("\t")[:2] for line in EVERYDAY.read_text(encoding="utf-8").splitlines()]
    assert {detect(english)[0] for english, _ in pairs} == {"en"}
    missed = [spanish for _, spanish in pairs if detect(spanish)[0] != "es"]
    assert len(missed) <= len(pairs) / 100
    assert max(map(len, missed), default=0) < 20


@pytest.mark.parametrize(
    ("text", "language", "least"),
    [
        ("Buenos días", "es", 90),
        ("GRACIAS", "es", 90),
        ("Good morning", "en", 90),
        ("Hello", "en", 30),
        ("Comment allez-vous aujourd'hui ?", "fr", 90),
        *((text, code, 40) for text, code in (("Bonjour", "fr"), ("Guten Morgen", "de"), ("Спасибо", "ru"))),
        *(("Arrivederci", "it", 40), ("გამარჯობა", "ka", 90), ("Բարև", "hy", 90), ("வணக்கம்", "ta", 90)),
        ("今日はとても天気がいいですね。" * 40, "ja", 90),
        *((text, "en", 0) for text in ("", " ", "12:30", "😀 👍", "…")),
    ],
)
def test_a_text_has_a_language_and_a_confidence_if_it_has_letters(text: str, language: str, least: int):
    detected, confidence = detector("en", "es")(text)
    assert (detected, confidence > 0) == (language, least > 0)
    assert least <= confidence <= 100
    region = {"en": "en-GB", "es": "es-MX"}
    assert detector("en-GB", "es-MX")(text) == (region.get(language, language), confidence)


def test_a_language_that_py3langid_does_not_know_is_never_certain():
    assert detector("xx", "yy")("El gato bebe.") == ("xx", 0.0)
