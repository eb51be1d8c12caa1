import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from serving import FakeTranslator, question

Ask = Callable[..., Any]
WORDS = [f"w{letter}" for letter in "abcdefghijk"]  # more than the terms of a glossary that a sentence may have


def post(ask: Ask, path: str = "/translate", **kinds: Any) -> Any:
    """Send one request; of its options those that httpx does not know are the application's."""
    sent = {key: kinds.pop(key) for key in ("json", "data", "files", "content", "headers") if key in kinds}
    return ask(lambda client: client.post(path, **sent), **kinds)


def test_one_text_is_answered_with_one_and_a_list_with_a_list(ask: Ask):
    one = post(ask, json=question("a", alternatives=2)).json()
    assert one == {"translatedText": "A", "alternatives": ["A!", "A!!"]}
    assert post(ask, json=question(["a", "b"], alternatives=1)).json()["alternatives"] == [["A!"], ["B!"]]
    html = post(ask, json=question("<p id=a>Hi &amp; <i>you</i></p>", format="html")).json()
    assert html["translatedText"].startswith("<p id=a>HI &amp; <i>YOU</i></p>")
    assert post(ask, json=question("Hi. You.")).json() == {"translatedText": "HI. YOU."}
    assert post(ask, json=question(["a", "", "b"])).json() == {"translatedText": ["A", "", "B"]}
    assert post(ask, data=question(["a", "b", "c"])).json() == {"translatedText": ["A", "B", "C"]}


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


@pytest.mark.parametrize("kind", ["data", "files"])
def test_forms_are_understood(ask: Ask, kind: str):
    fields = {"q": "It's ñ + ü & 100 %.\r\nYes.", "source": "en", "target": "es", "alternatives": "1"}
    sent: dict[str, Any] = {kind: fields if kind == "data" else {name: (None, fields[name]) for name in fields}}
    assert post(ask, **sent).json()["translatedText"] == "IT'S Ñ + Ü & 100 %.\nYES."


def test_the_language_of_auto_is_the_detected_one_or_the_model_s_without_confidence(ask: Ask):
    assert post(ask, json=question("a", source="auto")).json()["detectedLanguage"] == {
        "language": "en",
        "confidence": 0.0,
    }
    detect = lambda text: [(text, 99.5)]  # noqa: E731
    detected = post(ask, json=question(["de", "fr"], source="auto"), detect=detect).json()["detectedLanguage"]
    assert [detection["language"] for detection in detected] == ["de", "fr"]
    assert post(ask, "/detect", data={"q": "fr"}, detect=detect).json() == [{"language": "fr", "confidence": 99.5}]
    assert post(ask, "/detect", data={"q": "fr"}).status_code == 501


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"source": "en", "target": "es"}, "missing q"),
        (question(""), "missing q"),
        (question([]), "missing q"),
        ({"q": "a", "target": "es"}, "missing source"),
        ({"q": "a", "source": "en"}, "missing target"),
        (question("a", source="fr"), "fr is not supported: the source is en"),
        (question("a", target="en"), "en is not supported: the target is es"),
        (question("a", format="pdf"), "format: Input should be 'text' or 'html'"),
        (question("a", alternatives=5), "at most 4"),
        (question("a", alternatives=-1), "alternatives"),
        (question(["a", 3]), "q: Input should be"),
        (question({"a": 1}), "q: Input should be"),
        (question("x" * 5001), "(5001) exceeds text limit (5000)"),
        (question(["x" * 2600] * 2), "(5200) exceeds"),
        (question(["x"] * 101), "(101) exceeds text limit (100)"),
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
    answer = post(ask, json=sent)
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
        ("application/x-www-form-urlencoded", b"q=%ff", 400),
        ("application/x-www-form-urlencoded", b"q=a&" * 200, 400),
        ("multipart/form-data", b"--x", 400),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="q"; filename="a"\r\n\r\n',
            400,
        ),
        ("text/plain", b"q=a", 415),
        ("multipart/form-data; boundary=x; charset=punycode", b"--x", 415),
        ("application/json; charset=utf-16", b"{}", 415),
        ("application/json; charset=UTF-8", b"{}", 400),
        ("", b"", 415),
    ],
)
def test_a_malformed_body_is_refused(ask: Ask, kind: str, body: bytes, status: int):
    answer = post(ask, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


def test_a_wrong_key_in_the_header_is_refused_before_the_body_is_read(ask: Ask):
    async def body() -> AsyncIterator[bytes]:
        pytest.fail("the body was read")
        yield b""

    answer = post(ask, content=body(), headers={"Authorization": "Bearer wrong"}, api_key="s3crét")
    assert answer.status_code == 403


def test_requests_need_the_key_where_there_is_one(ask: Ask):
    async def scenario(client: Any) -> list[httpx.Response]:
        sent = question("a")
        bearer = {"Authorization": "Bearer s3crét".encode()}
        return [
            await client.post("/translate", json=sent),
            await client.post("/translate", json={**sent, "api_key": "wrong"}),
            await client.post("/translate", json={**sent, "api_key": "s3crét"}),
            await client.post("/translate", data={**sent, "api_key": "s3crét"}),
            await client.post("/translate", json=sent, headers={"Authorization": "Bearer wrong"}),
            await client.post("/detect", json={"q": "a"}),
            await client.post("/explain", json={"source": "a"}),
            await client.get("/metrics"),
            await client.get("/metrics", headers={"Authorization": "Bearer wrong"}),
            await client.get("/languages"),
            await client.get("/health"),
            await client.get("/metrics", headers=bearer),
        ]

    statuses = [answer.status_code for answer in ask(scenario, api_key="s3crét")]
    assert statuses == [400, 403, 200, 200, 403, 400, 400, 400, 403, 200, 200, 403]
    ask_ascii = lambda client: client.get("/metrics", headers={"Authorization": "bearer s3cret"})  # noqa: E731
    assert ask(ask_ascii, api_key="s3cret").status_code == 200


def test_facts_are_those_of_libretranslate(ask: Ask):
    assert ask(lambda client: client.get("/languages")).json() == [
        {"code": "en", "name": "English", "targets": ["es"]},
        {"code": "es", "name": "Spanish", "targets": []},
    ]
    settings = ask(lambda client: client.get("/frontend/settings"), api_key="k").json()
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert (settings["charLimit"], settings["keyRequired"], settings["explainLimit"]) == (5000, True, 0)
    assert ask(lambda client: client.get("/health")).json() == {"status": "ok"}


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


def test_every_answer_has_the_headers_that_protect_a_page(ask: Ask):
    async def scenario(client: Any) -> list[httpx.Response]:
        return [await client.get("/"), await client.get("/nothing"), await client.post("/translate", json={})]

    for answer in ask(scenario):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers


def test_only_named_origins_may_ask_across(ask: Ask):
    async def scenario(client: Any) -> list[str | None]:
        origins = ("https://good.example", "https://bad.example")
        answers = [await client.get("/health", headers={"Origin": origin}) for origin in origins]
        return [answer.headers.get("access-control-allow-origin") for answer in answers]

    assert ask(scenario, allow_origins=["https://good.example"]) == ["https://good.example", None]


def test_pages_of_other_origins_cannot_make_it_work(ask: Ask):
    async def scenario(client: Any) -> list[int]:
        asked = [
            {"Origin": "https://bad.example", "Sec-Fetch-Site": "cross-site"},
            {"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"},
            {"Origin": "https://good.example", "Sec-Fetch-Site": "cross-site"},
            {},
        ]
        # A form: what a page may post anywhere without asking first.
        return [
            (await client.post("/translate", data=question("A cat."), headers=headers)).status_code for headers in asked
        ]

    assert ask(scenario, allow_origins=["https://good.example"]) == [403, 403, 403, 200, 200, 200]
    assert ask(scenario, allow_origins=["*"]) == [200] * 6


def test_where_a_browser_tells_no_site_its_origin_is_compared_with_the_host(ask: Ask):
    """Over plain HTTP from another machine browsers send no Sec-Fetch-Site."""
    here, other = "http://10.0.0.5:8000", "http://10.0.0.5:3000"

    async def scenario(client: Any) -> list[int]:
        statuses = []
        for origin in (here, here.upper(), other, "http://bad.example", "https://good.example", "null", "", None):
            headers = {"Host": "10.0.0.5:8000"} | ({} if origin is None else {"Origin": origin})
            answer = await client.post("/translate", data=question("A cat."), headers=headers)
            statuses.append(answer.status_code)
            if answer.status_code == 403:
                assert f"--allow-origin {origin}" in answer.json()["error"]
                assert "the header Host" in answer.json()["error"]
        return statuses

    statuses = ask(scenario, allow_origins=["https://good.example"])
    assert statuses == [200, 200, 403, 403, 200, 403, 403, 200]


@pytest.mark.slow
def test_a_name_that_the_server_is_not_known_by_is_refused(ask: Ask):
    """A stranger's page may have its own name point here, and is of one origin with the server then (DNS rebinding)."""

    def scenario(host: str) -> Any:
        async def asked(client: Any) -> int:
            headers = {"Host": host, "Origin": f"http://{host}"}
            answer = await client.post("/translate", data=question("A cat."), headers=headers)
            assert (await client.get("/languages", headers={"Host": host})).status_code == answer.status_code
            if answer.status_code == 403:
                messages[host] = answer.json()["error"]
            return answer.status_code

        return asked

    messages: dict[str, str] = {}
    known = ("localhost", "LocalHost:8000", "a.localhost", "127.0.0.1:8000", "[::1]:8000", "10.0.0.5", "[fe80::1]")
    assert {ask(scenario(host)) for host in known} == {200}
    strange = ("bad.example", "bad.example:8000", "127.0.0.1.bad.example", "localhost.bad.example", "notlocalhost", "[")
    assert {ask(scenario(host)) for host in strange} == {403}
    assert messages["bad.example:8000"].endswith("start it with --allowed-host bad.example")
    named = {"allowed_hosts": ["Translate.example.org"]}
    assert ask(scenario("translate.example.org"), **named) == 200
    assert ask(scenario("translate.example.org.:443"), **named) == 200
    assert ask(scenario("bad.example"), **named) == 403
    assert ask(scenario("bad.example"), allowed_hosts=["*"]) == 200


def test_behind_a_proxy_that_keeps_the_host_its_name_is_named_and_behind_another_the_browser_tells(ask: Ask):
    async def scenario(client: Any) -> list[int]:
        name = "translate.example.org"
        kept = {"Host": name, "Origin": f"https://{name}", "Sec-Fetch-Site": "same-origin"}
        answers = (kept, kept | {"Host": "127.0.0.1:8000"})
        return [
            (await client.post("/translate", json=question("a"), headers=headers)).status_code for headers in answers
        ]

    assert ask(scenario) == [403, 200]
    assert ask(scenario, allowed_hosts=["translate.example.org"]) == [200, 200]
