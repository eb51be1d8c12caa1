"""Every request, however broken, gets an answer that OpenAPI describes, and nothing that no route serves.

How to run it for an hour: see test_fuzz_documents.py.
"""

import asyncio
import json
import mimetypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.apps.serve.app import create_app
from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.service import Service
from seq2seq.cli import serve as cli_serve
from seq2seq.translate.translator import Translator
from tests.fuzz import seeds
from tests.fuzz.mutating import LASTING, SECRET, arbitrary, mutated
from tests.unit.apps.serve.schemas import check_answer

pytestmark = pytest.mark.slow
KEY = "k"
REPOSITORY = str(Path(cli_serve.__file__).parents[1])
WORK, FACTS = ("/translate", "/detect", "/explain"), ("/", "/languages", "/frontend/settings", "/health", "/ready")
Headers = list[tuple[str, bytes]]
Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def ask(bundle_folder: Path) -> Iterator[Ask]:
    """Sends a request to a server with a small model, not through an HTTP client, which would mend it."""
    translator = Translator.load(bundle_folder, "cpu")
    limits = Limits(char_limit=200, batch_limit=4, waiting_chars=200, sentence_limit=40, tag_limit=20, explain_chars=60)
    service = Service(
        translator,
        limits,
        explain=cli_serve.explainer(translator),
        detect=lambda text: (("en", "es")[len(text) % 2], float(len(text))),
        api_key=KEY,
    )
    app = create_app(service, allow_origins=["http://a.example"])
    api = app.openapi()

    async def send_one(method: str, path: str, headers: Headers, chunks: Sequence[bytes], query: bytes) -> Any:
        incoming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        incoming.append({"type": "http.request", "body": b"", "more_body": False})
        sent: list[Any] = []

        async def receive() -> Any:
            return incoming.pop(0) if incoming else await asyncio.Future()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": ""},
            **{"method": method, "path": path, "raw_path": path.encode(), "query_string": query},
            **{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)},
            "headers": [(name.lower().encode("latin-1"), value) for name, value in headers],
        }
        await app(scope, receive, send)
        return sent

    with asyncio.Runner() as runner:
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())

        def send_request(
            method: str, path: str, headers: Headers, *chunks: bytes, query: bytes = b""
        ) -> httpx.Response:
            start, *parts = runner.run(send_one(method, path, headers, chunks, query))
            request = httpx.Request(method, "http://127.0.0.1" + (path if path in api["paths"] else "/other"))
            body = b"".join(part.get("body", b"") for part in parts)
            answer = httpx.Response(start["status"], headers=start["headers"], content=body, request=request)
            assert answer.status_code < 500
            assert not any(secret in answer.text for secret in ("Traceback", REPOSITORY, str(bundle_folder), SECRET))
            if path in api["paths"] and method.lower() in api["paths"][path]:
                check_answer(api, answer)
            return answer

        yield send_request
        runner.run(lifespan.__aexit__(None, None, None))


BOMBS = ("😀" * 40, "ﷺ" * 40, "<meta charset=" + " " * 150, '<p>a <meta charset="' + "\t" * 150)  # slow if read naively
SOURCES = ["The cat drank the milk. <b>A dog</b> sees {name}.", seeds.HTML[:150], *BOMBS]
TEXTS = mutated(SOURCES, ("\ud800", "\r\n", "&#xD800;", " " * 99, "😀" * 9))
TEXTS |= arbitrary(("<b>", "</b>", "<!--", "https://a.org", "\0", "\1", "charset=", *BOMBS))
NUMBERS = st.sampled_from([0, 1, 2, -1, 3, True, 1.0, 1e308, -0.0, 10**30, float("nan"), float("inf")])
ANY = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "q": TEXTS | st.lists(TEXTS, max_size=5),
    "source": st.sampled_from(["en", "auto", "es", "The cat."]) | TEXTS,
    "target": st.sampled_from(["es", "en", "El gato."]) | TEXTS,
    "format": st.sampled_from(["text", "html"]),
    "alternatives": st.integers(0, 3),
    "layer": st.integers(0, 2),
    "head": st.integers(0, 3),
    "api_key": st.sampled_from([KEY, KEY, KEY, KEY, "wrong", "ñ\ud800", ""]),
}
PLAIN = {"q": st.just("The cat."), "source": st.just("en"), "target": st.just("es"), "api_key": st.just(KEY)}
BODIES = st.builds(
    lambda plain, odd: {**plain, **odd},
    st.fixed_dictionaries(PLAIN),
    st.fixed_dictionaries({}, optional=FIELDS) | st.dictionaries(st.sampled_from(sorted(FIELDS)), ANY, max_size=2),
)
NESTED = ("[" * 5_000, '{"q":' * 5_000, '"\\ud800"', "9" * 5_000, "1e999", "NaN", "\ufeff", '"q":', ",", "}", "]", "\0")
CHARSETS = (
    *("", "; charset=utf-16", "; charset=x-y", "; charset=punycode", "; charset=idna", "; charset=unicode_escape"),
    *("; charset*=utf-8''punycode", "; charset=utf-8; charset=punycode", "; charset=" + " " * 99, '; charset="'),
    *("; boundary=b", "; boundary=", "; boundary=" + "b" * 99),
)


@LASTING
@given(
    path=st.sampled_from(WORK),
    text=BODIES.map(json.dumps)
    | BODIES.flatmap(lambda values: mutated([json.dumps(values)], NESTED))
    | arbitrary(NESTED),
    charset=st.sampled_from(CHARSETS),
    encoding=st.sampled_from(["utf-8"] * 5 + ["utf-16", "utf-32-le", "utf-8-sig", "utf-7"]),
    cut=st.integers(0, 40),
)
def test_odd_values_and_broken_json_get_a_described_answer(path, text, charset, encoding, cut, ask):
    body = text.encode(encoding, "surrogatepass" if encoding != "utf-7" else "replace")
    ask("POST", path, [("Content-Type", f"application/json{charset}".encode())], body[:cut], body[cut:])


PART = '--b\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
FILE = '--b\r\nContent-Disposition: form-data; name="q"; filename="../a.txt"\r\nContent-Type: text/plain\r\n\r\nx\r\n'
IN_FORMS = (
    *(FILE, "--b", "--b--", "\r\n", "\r\n\r\n", 'name="', "filename*=utf-8''%2e", "Content-Disposition:"),
    *("Content-Type: text/plain; charset=punycode\r\n", 'name="_charset_"\r\n\r\npunycode\r\n', "q=", "&", "=", "%ff"),
    *("%ed%a0%80", "%", "+", ";", "Content-Transfer-Encoding: base64\r\n", "a: b\r\n" * 99, "q=a&" * 30),
)


@LASTING
@given(
    path=st.sampled_from(WORK),
    values=BODIES,
    data=st.data(),
    is_multipart=st.booleans(),
    charset=st.sampled_from(["", *CHARSETS]),
)
def test_broken_forms_get_a_described_answer(path, values, data, is_multipart, charset, ask):
    pairs = [
        (key, f"{item}") for key, value in values.items() for item in (value if isinstance(value, list) else [value])
    ]
    multipart = "".join(PART.format(*pair) for pair in pairs) + "--b--\r\n"
    form = multipart if is_multipart else urlencode(pairs, errors="replace")
    body = data.draw(mutated([form], IN_FORMS) | arbitrary(IN_FORMS)).encode("utf-8", "surrogatepass")
    kind = "multipart/form-data; boundary=b" if is_multipart else "application/x-www-form-urlencoded"
    ask("POST", path, [("Content-Type", f"{kind}{charset}".encode())], body)


PATH_PARTS = ("..", ".", "%2e%2e", "%00", "\0", "//", "\\", "etc/passwd", "page", "viewer", "page.js", "~", "\n")
PATHS = st.sampled_from(["/", "/page/", "/viewer/", *FACTS, *WORK, "/metrics", "/openapi.json", "/docs", "/static"])
PATHS = st.builds(lambda start, rest: start + "/".join(rest), PATHS, st.lists(st.sampled_from(PATH_PARTS), max_size=9))
PATHS |= arbitrary(("/", *PATH_PARTS)).map("/{}".format)
VALUES = st.sampled_from(
    [b"", b"*", b"localhost", b"[::1", b"127.0.0.1:x", b"http://a.example", b"null", b"bytes=0-", b"0"]
)
VALUES |= st.sampled_from(
    [b"bytes=9-1,,-", b"gzip", b"100-continue", b"Bearer", b"Bearer k", b"Basic \xff", b"http://[", b"\xe9"]
)
VALUES |= st.binary(max_size=20).map(lambda value: bytes(byte for byte in value if byte not in b"\0\r\n"))
NAMES = (
    *("Host", "Origin", "Authorization", "Content-Type", "Content-Length", "Range", "If-Range", "If-None-Match", "Te"),
    *("Accept", "If-Modified-Since", "Sec-Fetch-Site", "Access-Control-Request-Method", "X-Forwarded-Host", "Cookie"),
)
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4)
QUERIES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20).map(str.encode)  # as HTTP/1.1 has it
METHODS = st.sampled_from(["GET", "GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "TRACE", "CONNECT", "ñ"])


@LASTING
@given(method=METHODS, path=PATHS, headers=HEADERS, query=QUERIES, body=st.binary(max_size=20))
def test_odd_paths_and_headers_get_an_answer_and_no_file_from_elsewhere(
    method: str, path: str, headers: Headers, query: bytes, body: bytes, ask: Ask, watched_files: Callable[[], Any]
) -> None:
    with watched_files() as opened:
        answer = ask(method, unquote(path.encode(errors="replace").decode()), headers, body, query=query)
    assert all(file.startswith(REPOSITORY) or "/lib/python" in file or file in mimetypes.knownfiles for file in opened)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.status_code != 200 or "root:" not in answer.text


@LASTING
@given(path=st.sampled_from(FACTS), headers=HEADERS)
def test_facts_are_answered_whatever_the_headers(path: str, headers: Headers, ask: Ask) -> None:
    assert ask("GET", path, headers).status_code in (200, 403)
