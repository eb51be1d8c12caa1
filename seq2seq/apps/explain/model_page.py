"""A model as one HTML file: weights, vocabulary and page, for a browser without a server.

Each row of a matrix is stored as integers of 8 bits and one scale (Jacob et al. 2018, §2, without a zero point);
vectors stay in float32. `in_browser/*.js` computes what this package computes; each file but `worker.js` has a twin in
Python. The page has the scores of a fixed example, which it compares with its own when it is opened.
"""

import base64
import copy
import gzip
import html
import json
import math
import re
import struct
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2seq.apps.explain.explanation import plain
from seq2seq.apps.explain.page import embed, frame, script
from seq2seq.data.languages import language_name
from seq2seq.errors import UserError
from seq2seq.model.decoders import TOLERANCE, make_example
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.settings.search import SearchConfig
from seq2seq.storage.atomic import replacing
from seq2seq.text.tokenizer import BOS, EOS, Tokenizer
from seq2seq.translate.bundle import Bundle, load_bundle
from seq2seq.translate.segmenter import MAX_SOURCE_TOKENS, STRETCH

_USED = ("beam", "length_penalty", "max_length_ratio", "max_length_offset")  # settings of the search, in the page
_IGNORED = ("repair", "batch_tokens", "seed", "temperature", "top_k", "top_p")  # without an effect there
_NO_MASKS = '<p class="soft">This page masks no strings, so addresses, placeholders and code may change.</p>\n'
_LIMITS = {"charLimit": 2000, "explainLimit": 300, "alternatives": 4, "frontendTimeout": 300}


def export_html(folder: Path, file: Path, *, beam: int | None = None) -> None:
    """Write a page that translates with a bundle's model and shows how, without network; an error leaves no file.

    beam is the number of hypotheses; None: that of the bundle.
    """
    if file.suffix not in (".html", ".htm"):
        raise UserError(f"{file} does not end in .html: give --output NAME.html")
    if file.exists():
        raise UserError(f"{file} is there already: give --output a new file")
    bundle = load_bundle(folder)
    if beam is not None:
        bundle.config.search = replace(bundle.config.search, beam=beam)
    packed = gzip.compress(pack(bundle), compresslevel=9, mtime=0)
    languages = {
        side: {"code": code, "name": language_name(code)}
        for side, code in (("source", bundle.config.src_lang), ("target", bundle.config.tgt_lang))
    }
    settings = {**_LIMITS, "alternatives": min(_LIMITS["alternatives"], bundle.config.search.beam - 1)}
    settings |= {"language": languages, "apiKeys": False, "keyRequired": False}
    page = files("seq2seq.apps.serve") / "page"
    body = re.findall(r"<body>\n(.*)</body>", (page / "index.html").read_text(encoding="utf-8"), re.DOTALL)[0]
    code = script("page", "apps/serve/page")
    worker = script("worker", "apps/explain/in_browser")
    assert not re.search(r"</script|<!--", worker, re.IGNORECASE)  # they would end the element or begin a comment
    body = body.replace('<p id="warning"', f'{_NO_MASKS}<p id="warning"')
    body += (
        f'<script type="application/json" id="settings">{embed(settings)}</script>\n'
        f'<script type="text/plain" id="worker">{worker}</script>\n'
        f'<script type="text/plain" id="model">{base64.b64encode(packed).decode()}</script>\n'
    )
    styles = [(files("seq2seq.apps.explain") / "viewer" / "viewer.css"), page / "page.css"]
    title = f"{languages['source']['name']} to {languages['target']['name']}"
    text = frame(body, [path.read_text(encoding="utf-8") for path in styles], html.escape(title), code, worker=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as draft:
        draft.write_text(text, encoding="utf-8")


def pack(bundle: Bundle) -> bytes:
    """Return a model as the length of a JSON header (4 bytes), the header, and the tensors, each at a multiple of 4."""
    require_plain(bundle)
    source, target = bundle.tokenizer.source, bundle.tokenizer.target
    header: dict[str, Any] = {
        "config": bundle.config.model.used(),
        "search": {name: getattr(bundle.config.search, name) for name in _USED},
        "source": describe(source),
        "target": None if bundle.tokenizer.is_joint else describe(target),
        "longest": min(int(STRETCH * (bundle.config.trained_length or MAX_SOURCE_TOKENS)), MAX_SOURCE_TOKENS),
        "example": describe_example(bundle.model),
        "tensors": [],
    }
    content = bytearray()

    def append(array: np.ndarray) -> int:
        start = len(content)
        content.extend(array.tobytes() + b"\0" * (-array.nbytes % 4))
        return start

    for name, tensor in bundle.model.state_dict().items():
        scales = None
        if tensor.ndim == 2:
            numbers, factors = quantise(tensor)
            start, scales = append(numbers.numpy()), append(factors.numpy())
        else:
            start = append(tensor.float().numpy())
        header["tensors"].append({"name": name, "shape": list(tensor.shape), "start": start, "scales": scales})
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    return struct.pack("<I", len(text)) + text + bytes(content)


def quantise(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix (r, c) as integers of 8 bits (r, c) and one scale for each row (r,)."""
    scales = weights.float().abs().amax(1).clamp_min(1e-12) / 127
    return (weights.float() / scales[:, None]).round().to(torch.int8), scales


def quantised(model: EncoderDecoder) -> EncoderDecoder:
    """Give every matrix of a model the values that it has in a page; return the model."""
    state = model.state_dict()
    for tensor in state.values():
        if tensor.ndim == 2:
            numbers, scales = quantise(tensor)
            tensor.copy_(numbers * scales[:, None])
    return model


def describe_example(model: EncoderDecoder) -> dict[str, Any] | None:
    """Return an example, and its scores with the page's weights and this package's code; None: they are no numbers."""
    example = make_example(quantised(copy.deepcopy(model)), BOS, EOS)
    sources, targets = ([*ids, EOS] for ids in example.sources), ([BOS, *ids] for ids in example.tgt_out.tolist())
    values = {"sources": list(sources), "targets": list(targets), "scores": plain(example.scores, 5)}
    largest = example.scores.abs().max().item()
    return {**values, "tolerance": TOLERANCE * largest} if math.isfinite(largest) else None


def describe(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a vocabulary for `in_browser/tokenizer.js`: subwords, their scores, and strings that are never split."""
    pieces = tokenizer.tokens(range(tokenizer.vocab_size))
    return {
        "pieces": pieces,
        "scores": tokenizer.scores,
        "symbols": [*tokenizer.user_symbols, *(pieces[token] for token in tokenizer.mask_ids)],
        "bytes": tokenizer.byte_ids,
        "isBpe": tokenizer.is_bpe,
    }


def require_plain(bundle: Bundle) -> None:
    """Refuse a model that the page cannot compute."""
    config = bundle.config.model
    if not isinstance(bundle.model, Transformer):
        raise UserError(f"model.architecture={config.architecture}: a page computes Transformers only")
    if ablations := config.ablations():
        raise UserError(f"{', '.join(ablations)}: a page computes no ablations, but it can switch parts off by itself")
    if not all(side.has_usual_rules for side in (bundle.tokenizer.source, bundle.tokenizer.target)):
        raise UserError("the vocabulary was made by another program, with rules of its own, which a page does not have")
    usual = SearchConfig()
    for name, value in vars(bundle.config.search).items():
        if name not in (*_USED, *_IGNORED) and value != getattr(usual, name):
            raise UserError(f"search.{name}={value} is stored in the bundle, and pages know plain beam search only")
