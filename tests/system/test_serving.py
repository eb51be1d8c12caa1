"""A real server process on the stored bundle."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.server_process import REPOSITORY, ServerProcess

pytestmark = pytest.mark.system

BUNDLE = REPOSITORY / "tests" / "golden" / "bundle"
MILK = "The cat sees the milk."


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(BUNDLE, "--device", "cpu", OMP_NUM_THREADS="1") as process:
        yield process


def translate(url: str, q: Any, **more: Any) -> Any:
    body = json.dumps({"q": q, "source": "en", "target": "es", **more}).encode()
    request = urllib.request.Request(url + "/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def test_libretranslate_s_python_client_translates(server: ServerProcess):
    package = pytest.importorskip("libretranslatepy", reason="libretranslatepy is not installed")
    client = package.LibreTranslateAPI(server.url, "")
    assert client.translate(MILK, "en-US", "es-MX") == "El gato ve la leche."
    assert client.translate(f"{MILK}\nA dog?", "auto", "es").splitlines()[0] == "El gato ve la leche."
    assert client.translate("", "en", "es") == ""
    assert client.translate("El gato ve la leche.", "auto", "es") == "El gato ve la leche."
    assert [language["code"] for language in client.languages()] == ["en", "es"]
    assert client.detect("The cat sees the milk and drinks it.")[0]["language"] == "en"


JAVASCRIPT = """
const [url, q] = process.argv.slice(1);
const ask = async (body, headers = {}) => (await fetch(url + "/translate", { method: "POST", body, headers })).json();
const fields = { q, source: "auto", target: "es", format: "text", alternatives: 2, api_key: "" };
const unset = { format: null, alternatives: null, api_key: null };
const json = { "Content-Type": "application/json" };
const form = new FormData();
for (const name in fields) form.append(name, fields[name]);
const answers = [
  await ask(JSON.stringify(fields), json), await ask(JSON.stringify({ ...fields, ...unset }), json),
  await ask(form), await ask(new URLSearchParams({ ...fields, alternatives: "" })),
];
console.log(JSON.stringify(answers));
"""


def test_javascript_s_fetch_translates(server: ServerProcess):
    driver = pytest.importorskip("playwright._impl._driver", reason="playwright is not installed")
    node, _ = driver.compute_driver_executable()
    command = [node, "--input-type=module", "--eval", JAVASCRIPT, server.url, MILK]
    answers = json.loads(subprocess.run(command, capture_output=True, timeout=120, check=True).stdout)
    assert [answer["translatedText"] for answer in answers] == ["El gato ve la leche."] * 4
    assert [len(answer.get("alternatives", ())) for answer in answers] == [2, 0, 2, 0]
    assert {answer["detectedLanguage"]["language"] for answer in answers} == {"en"}


def test_curl_translates(server: ServerProcess):
    in_json = ["-H", "Content-Type: application/json", "-d", json.dumps({"q": MILK, "format": None})]
    for options in (["-d", f"q={MILK}&format=&api_key="], ["-F", f"q={MILK}", "-F", "alternatives="], in_json):
        command = ["curl", "-sX", "POST", f"{server.url}/translate?source=en&target=es", *options]
        answer = json.loads(subprocess.run(command, capture_output=True, timeout=120, check=True).stdout)
        assert answer == {"translatedText": "El gato ve la leche."}


def test_a_glossary_decides_words_also_within_markup(server: ServerProcess):
    sources = [MILK, "The cow brings an apple."]
    translations = translate(server.url, sources, glossary={"Cat": "perro"})["translatedText"]
    assert translations == ["El perro ve la leche.", translate(server.url, sources[1])["translatedText"]]
    page = "<p>The <b>cat</b> sees the milk.</p>"
    marked = translate(server.url, page, format="html", glossary={"cat": "perro"})["translatedText"]
    assert marked == "<p>El <b>perro</b> ve la leche.</p>"


def test_a_signal_ends_it_when_what_it_took_on_is_answered():
    with ServerProcess(BUNDLE, "--device", "cpu", OMP_NUM_THREADS="1") as process:
        texts = ["The cat sees the milk and the cow brings an apple to the bird. " * 39] * 2
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(translate(process.url, texts)))
        asking.start()
        while "seq2seq_requests_inside 1.0" not in metrics(process.url):
            assert asking.is_alive(), "it was answered too quickly to be seen"
            time.sleep(0.01)
        process.process.send_signal(signal.SIGTERM)
        is_refused = False
        while not is_refused:  # the signal arrives when Python looks
            try:
                translate(process.url, "The cat")
            except OSError:
                is_refused = True
        asking.join(120)
        assert process.process.wait(60) == 0
        assert len(answers[0]["translatedText"]) == 2


HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
MULTIPART = HEAD + b"Content-Type: multipart/form-data; boundary=b\r\n"
MALFORMED = {
    "no boundary": HEAD + b"Content-Type: multipart/form-data\r\nContent-Length: 3\r\n\r\nabc",
    "another boundary": MULTIPART + b"Content-Length: 9\r\n\r\n--c\r\n\x1b[2J",
    "bytes after the last boundary": MULTIPART + b"Content-Length: 13\r\n\r\n--b--\r\nxxxxxx",
    "a header of a part": MULTIPART + b"Content-Length: 12\r\n\r\n--b\r\n\x01@: \r\n\r\n",
    "a form": HEAD + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 5\r\n\r\nq=%ff",
    "JSON": HEAD + b'Content-Type: application/json\r\nContent-Length: 6\r\n\r\n{"q":\x80',
    "chunks": HEAD + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x1b[2J\r\n\r\n",
    "half a request": HEAD,
}


def test_malformed_requests_write_few_lines(server: ServerProcess):
    host, _, port = server.url.removeprefix("http://").partition(":")
    before = server.log_bytes
    for request in 100 * list(MALFORMED.values()):
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65_536):
                pass
    assert translate(server.url, MILK)["translatedText"] == "El gato ve la leche."
    assert server.log_bytes - before < 4_000
    assert all(line.isprintable() for line in server.errors)


def test_the_image_installs_as_the_docs_say_and_its_health_check_fails_without_a_server(server: ServerProcess):
    lines = (REPOSITORY / "examples/Dockerfile").read_text(encoding="utf-8").splitlines()
    docs = "".join((REPOSITORY / page).read_text(encoding="utf-8") for page in ("README.md", "docs/serving.md"))
    assert all(line.removeprefix("RUN ") in docs for line in lines if line.startswith("RUN"))
    *_, user, expose, health, start = lines
    assert (user, expose, start[:23]) == ("USER nobody", "EXPOSE 8000", 'CMD ["seq2seq", "serve"')
    for url, expected in ((server.url, 0), ("http://127.0.0.1:9", 1)):
        _, *command = json.loads(health.partition(" CMD ")[2].replace("http://127.0.0.1:8000", url))
        assert subprocess.run([sys.executable, *command], capture_output=True, timeout=120).returncode == expected


def metrics(url: str) -> str:
    with urllib.request.urlopen(url + "/metrics", timeout=60) as answer:
        return answer.read().decode()
