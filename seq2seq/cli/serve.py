"""The command that serves a model over HTTP."""

import sys
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import typer

from seq2seq.apps.serve.limits import Limits, require_search
from seq2seq.cli import options, shared
from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import require_package

if TYPE_CHECKING:
    from seq2seq.apps.serve.service import Explain
    from seq2seq.translate.translator import Translator

BOUNDS = ("char_limit", "batch_limit", "sentence_limit", "tag_limit", "max_batch", "waiting_chars", "timeout")

network = partial(typer.Option, rich_help_panel="Network")


@options.engine_options
@options.options_of(Limits, "bounds", {"Limits": BOUNDS})
def serve(
    model: options.Models = None,
    host: str = network("127.0.0.1", help="Address to listen on; 0.0.0.0 means all addresses."),
    port: int = network(8000, min=0, max=65535, help="Port to listen on; 0 takes a free port."),
    api_key: str | None = network(
        None,
        envvar="SEQ2SEQ_API_KEY",
        help="Key that every request must contain. [dim]default: none[/dim]",
        show_default=False,
    ),
    allowed_host: list[str] | None = network(
        None,
        help="Name by which browsers reach the server, such as translate.example.org, or '*'; may be given several "
        "times. [dim]Always allowed: localhost, IP addresses, --host[/dim]",
    ),
    allow_origin: list[str] | None = network(
        None,
        help="Origin whose pages may send requests, such as https://example.org, or '*'; may be given several times.",
    ),
    threads: int = typer.Option(0, min=0, help="CPU threads of the model; 0: PyTorch's choice."),
    *,
    engine: options.EngineChoice,
    bounds: dict[str, Any],
) -> None:
    """Serve a model: a page, and an HTTP API that LibreTranslate's clients speak.

    [bold]seq2seq serve --model runs/latest/model[/bold]   then open http://127.0.0.1:8000

    The server translates the texts of all users together, in batches. An overloaded server refuses requests with
    status 429 and a time to wait. SIGTERM or Ctrl-C ends the server after it has answered all accepted requests.
    See docs/serving.md.
    """
    with require_package("serve"):
        from seq2seq.apps.serve.app import create_app
        from seq2seq.apps.serve.server import listen, run, url_of
        from seq2seq.apps.serve.service import Service
        from seq2seq.data.languages import load_identifier

        load_identifier()
    if api_key == "":
        raise UserError("--api-key is empty: give a key, or leave it out to let anybody translate")
    bounds["waiting_chars"] = max(bounds["waiting_chars"], bounds["char_limit"])
    limits = Limits(**bounds)
    folders = shared.choose_models(model)
    listener = listen(host, port)  # before the model is loaded, which is slow
    if threads:
        import torch

        torch.set_num_threads(threads)
    translator = shared.load(folders, engine, threads=threads)
    require_search(translator.search)
    service = Service(
        translator,
        limits,
        explain=explainer(translator) if engine.engine == "pytorch" and len(folders) == 1 else None,
        api_key=api_key,
    )
    hosts = [host, *(allowed_host or ())]
    app = create_app(service, allowed_hosts=hosts, allow_origins=allow_origin or ())
    if not ip_address(listener.getsockname()[0]).is_loopback and not api_key:
        print(f"warning: {host} is open to the network and no --api-key is set: anybody can translate", file=sys.stderr)
    message = f"serving {' '.join(map(str, folders))} at {url_of(listener)} (Ctrl-C ends)"
    announce = partial(print, message, file=sys.stderr, flush=True)
    run(app, listener, announce)


def explainer(translator: "Translator") -> "Explain":
    """Return the function that explains a sentence: an explanation's JSON values, the steps of one head, and beams."""
    from seq2seq.apps.explain.interventions import Interventions
    from seq2seq.apps.explain.page import assemble
    from seq2seq.apps.serve.messages import ExplainRequest

    def explained(request: ExplainRequest) -> dict[str, Any]:
        interventions = Interventions(request.without, request.average, request.temperature)
        head = request.layer, request.head
        instead = None if request.other is None else (request.word, request.other)
        data = assemble(translator, request.source, request.target, interventions, head=head, instead=instead).data
        return {**data.pop("explanation"), **data}

    return explained
