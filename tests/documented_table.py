"""Which documented commands tests run, in which small form, and why they do not run the others.

tests/unit/test_documented_commands.py checks the options and settings of all commands.
tests/system/test_documented_runs.py runs the small forms, in a scratch folder.
"""

import re

from tests.documented import Command

NOT_RUN = {  # a regular expression of commands, and the reason; the first one that fits holds
    r"^pip install|comet": "installs packages or needs them",
    r"^(echo|cut|cp|export|rm|find|grep|cat|sbatch) |^pytest\b": "is a step of the shell around the commands",
    r"^python -m benchmarks": "measures for many minutes; tests/unit/benchmarks/test_benchmarks.py calls the parts",
    r"^(torchrun|srun)|trainer=(gpu|ddp)|--ray": "needs a cluster or GPUs; tests/unit/apps/distributed has a small one",
    r"argostranslate|^argos-translate": "needs Argos Translate; tests/unit/apps/exchange/test_argos.py reads packages",
    r"evaluate --confidence": "needs a calibrated model; tests/unit/cli/test_evaluate_command.py makes one",
    r"^curl": "tests/unit/test_remake.py runs it and compares the answer",
    r"^seq2seq serve|^tensorboard": "does not end; tests/test_smoke.py starts a server",
    r"Helsinki-NLP|import huggingface|\bopus\b": "downloads a model; tests/system/test_imported.py has a small one",
    r"data=public": "downloads 512 MB; tests/unit/data/test_hub.py has files of the same layout",
    r"^seq2seq lab": "needs the runs of the lab; tests/unit/apps/lab has runs made up",
    r"seed=1,2,3|max_steps=(300|20000|200000)\b": "trains for long; a shorter form is run",
    r"logger=tensorboard,": "tests/system/test_runs.py runs all loggers and resumes",
    r"^seq2seq runs (A|--seeds)": "compares runs; tests/unit/cli does it",
    r" exported-model| --shortlist ": "needs the file that the command before it writes",
}
MODEL = (
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1", "tokenizer.vocab_size=auto", "training.bleu_sentences=2",
)  # fmt: skip
SHORT = (
    "training.warmup_steps=1", "search.beam=1", "search.max_length_ratio=1", "search.max_length_offset=2",
    "trainer.max_time=null", "trainer.max_steps=2", "trainer.validate_every=2", "trainer.checkpoint_every=2",
)  # fmt: skip
TOY = ("training.max_tokens=256", "data.root=toy", "data.remove_overlap=false")
BUNDLED = ("training.max_tokens=600", "data.root=bundled")  # a cut of the bundled corpus, under its files' names
COPIED_RUNS = ("first", "general", "reverse", "second", "slowly")  # documented runs that the scratch folder has already


def reason_not_to_run(command: Command) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, command.text)), None)


def added_words(command: Command) -> tuple[str, ...]:
    """Return the words that make a command small; only those that train or prepare need settings."""
    text = command.text
    if command.starts_with("seq2seq", "prepare"):
        return (*TOY[1:], "tokenizer.vocab_size=auto", "data.num_proc=2")
    if "--rank-heads" in text:
        return ("--target", "El gato.")  # a toy model's own translation may be empty
    if not command.starts_with("python", "train.py"):
        return ()
    if "resume=" in text:
        return ("trainer.max_steps=9" if "resume_lr=" in text else "trainer.max_steps=7",)
    if "init=" in text:  # the model is there already
        return (*SHORT, *TOY)
    model = tuple(word for word in MODEL if "lstm" not in text or ("num_heads" not in word and "d_ff" not in word))
    renamed = tuple(f"name={name}-again" for name in COPIED_RUNS if f"name={name}" in command.words)
    return (*model, *SHORT, *(TOY if "data=" in text or "data.root=" in text else BUNDLED), *renamed)
