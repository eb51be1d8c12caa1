"""Texts by address: fsspec's memory stands for object storage, and a server of this machine for the web."""

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import fsspec  # pyright: ignore[reportMissingTypeStubs]
import pytest

from seq2seq.data.corpus import fetch, open_corpora
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from tests.refusing import refuses

PAIRS = {"a.tsv": "a cat\tun gato\n", "b.tsv": "a dog\tun perro\n", "c.en": "one\n", "c.es": "uno\n"}


@pytest.fixture(params=["memory", "http"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    fetch.cache_clear()
    if request.param == "memory":
        memory = fsspec.filesystem("memory")
        for name, text in PAIRS.items():
            memory.pipe(f"/bucket/corpora/{name}", text.encode())
        yield "memory://bucket/corpora"
        memory.rm("/bucket", recursive=True)
        return
    for name, text in PAIRS.items():
        (tmp_path / name).write_text(text)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_files_patterns_and_parallel_files_are_read_by_address_and_named_after_it(root: str, tmp_path: Path) -> None:
    data = DataConfig(cache=str(tmp_path / "cache"))
    for place, prefix in ((root, ""), (None, f"{root}/")):
        read = partial(open_corpora, root=place, data=data)
        corpora = [*read(f"{prefix}[ab].tsv"), *read(f"{prefix}c.en+{prefix}c.es")]
        assert [list(corpus.pairs()) for corpus in corpora] == [
            [("a cat", "un gato")], [("a dog", "un perro")], [("one", "uno")]
        ]  # fmt: skip
        assert [corpus.stem for corpus in corpora] == ["a", "b", "c"]
    assert corpora[0].name.endswith("/corpora/a.tsv" if root.startswith("memory") else "/a.tsv")
    refuses(r"//.*none.tsv does not exist or cannot be reached: check the path", open_corpora, "none.tsv", root, data)
    if root.startswith("memory"):  # a file that has changed is fetched anew
        fsspec.filesystem("memory").pipe("/bucket/corpora/a.tsv", b"a bird\tun ave\n")
        fetch.cache_clear()
        assert list(open_corpora("a.tsv", root, data)[0].pairs()) == [("a bird", "un ave")]


def test_what_an_address_lacks_is_said_in_one_line(tmp_path: Path) -> None:
    refuses(r"s3://b/a.tsv: Install s3fs", open_corpora, "s3://b/a.tsv", None, DataConfig(cache=str(tmp_path)))
    with pytest.raises(UserError, match=r"nothing://b/a.tsv cannot be read \(ValueError\)"):
        open_corpora("nothing://b/a.tsv", None, DataConfig(cache=str(tmp_path)))
    for secret in ("https://me:hunter2@x.org/a.tsv", "https://x.org/a.tsv?X-Amz-Signature=hunter2"):
        with pytest.raises(UserError, match="has a password or key") as refused:
            DataConfig(train=[secret])
        assert "hunter2" not in str(refused.value)
