"""What tests do with each documented command: run a small form, or only check its options and settings.

tests/unit/test_documented_commands.py checks all commands, and refuses a command that is in neither table.
tests/system/test_documented_runs.py runs the small forms, in a scratch folder.
"""

INSTALLATION = "installs into the environment"
BENCHMARK = "measures for many minutes; tests/unit/test_benchmarks.py calls the parts"
SERVER = "tests/system/test_serving.py runs it and compares the answer"
NETWORK = "downloads a corpus"
HUB = "downloads a model; tests/unit/exchange/test_huggingface_import.py has one of that layout"
IMPORTED = "needs an imported model; tests/system/test_imported.py does it all with a small one"
SWEEP = "trains for ten minutes, once for each row of a table"
CLUSTER = "needs a cluster or GPUs; tests/unit/distributed runs it on a small one"
LOGGED = "tests/system/test_logging.py runs both loggers and resumes"
COMET = "downloads packages and a model; tests/unit/cli/test_evaluate_command.py has a small module in COMET's place"
SHELL = "is a step of the shell around the commands"
LAB = "needs the runs of the lab; tests/unit/lab has runs made up"

MADE_UP = "deletes or compares runs and caches; tests/unit/cli/test_cli_runs.py and test_cli_cache.py do it"

PROGRAMS_NOT_RUN = {  # of all commands that begin with these words
    ("python", "-m", "benchmarks"): BENCHMARK,
    ("torchrun",): CLUSTER,
    ("srun",): CLUSTER,
    ("echo",): SHELL,
}
NOT_RUN = {
    "pip install -e .": INSTALLATION,
    "pip install torch --index-url https://download.pytorch.org/whl/cpu": INSTALLATION,
    "pip install -e '.[test]'": INSTALLATION,
    "pip install -e '.[serve]'": INSTALLATION,
    "pip install -e '.[huggingface,ctranslate2]'": INSTALLATION,
    "seq2seq import huggingface Helsinki-NLP/opus-mt-en-es --output opus": HUB,
    "seq2seq import huggingface NAME --revision REVISION --output opus": HUB,
    "seq2seq import huggingface FOLDER --output opus": IMPORTED,
    "python train.py experiment=finetune init=Helsinki-NLP/opus-mt-en-es data=files 'data.train=[mine.tsv]'": HUB,
    "python train.py experiment=finetune init=opus data=files 'data.train=[mine.tsv]'": IMPORTED,
    "python train.py experiment=finetune init=opus data=files 'data.train=[mine.tsv,general.tsv]' "
    "'data.weights={mine: 1, general: 1}' 'data.held_out_from=[mine,general]'": IMPORTED,
    'python translate.py --model opus "The ball is blue."': IMPORTED,
    "seq2seq export huggingface --model opus --output back": IMPORTED,
    "seq2seq export ctranslate2 --model opus --output fast": IMPORTED,
    "pip install -e '.[peft]'": INSTALLATION,
    "pip install -e '.[lab]'": INSTALLATION,
    "python train.py data=files 'data.train=[mine.tsv]' trainer=gpu": CLUSTER,
    "python train.py data=files 'data.train=[mine.tsv]' trainer=ddp": CLUSTER,
    "python train.py trainer=ddp trainer.devices=4": CLUSTER,
    "python train.py data=tatoeba_files data.root=FOLDER model=tiny tokenizer.vocab_size=4000 "
    "training.max_tokens=8192 trainer.max_steps=300 training.learning_rate=2.8e-3": SWEEP,
    "seq2seq lab report --runs runs/lab --output docs": LAB,
    "seq2seq lab report --runs runs/lab_tatoeba --output docs": LAB,
    "seq2seq lab report --runs runs/lab_channels --output docs": LAB,
    "seq2seq lab report --runs runs/lab_everyday --output docs": LAB,
    "python3 -m venv comet-env": COMET,
    "comet-env/bin/pip install unbabel-comet 'setuptools<81'": COMET,
    "seq2seq evaluate --hypotheses old.es new.es --reference ref.es --input in.en --metric bleu comet "
    "--comet-python comet-env/bin/python": COMET,
    "python train.py resume=runs/NAME trainer.max_steps=200000": "the same as the one with 20000",
    "python train.py logger=tensorboard,wandb logger.project=translation": LOGGED,
    "python train.py logger=tensorboard,mlflow": LOGGED,
    "pytest": "is this run itself",
    "export SEQ2SEQ_API_KEY=a-long-random-text": SHELL,
    "seq2seq serve --model runs/NAME --allowed-host translate.firm.example": SERVER,
    "curl -s https://translate.firm.example/translate -d q='Good morning.' -d source=en -d target=es "
    "-d api_key=a-long-random-text": "needs a proxy with a certificate; tests/unit/serve asks with a key",
    "seq2seq serve --model runs/latest/model": "does not end; tests/test_smoke.py starts a server",
    "python train.py --multirun 'experiment=glob(lab/*)' seed=1,2,3": "trains for hours",
    "python train.py --multirun experiment=lab/baseline,lab/unscaled model.num_heads=1 series=lab_channels "
    "seed=1,2,3": "trains six times; other experiments of the lab run in a small form",
    "tensorboard --logdir runs": "does not end",
    "seq2seq runs A B": MADE_UP,
    "seq2seq runs --remove A --remove B": MADE_UP,
    "seq2seq cache clear --older-than 30d": MADE_UP,
    "seq2seq lab report --runs runs/SERIES --output report": LAB,
    "cp -r runs/NAME/model exported-model": SHELL,
    'python translate.py --model exported-model "The ball is blue."': "needs the copy that the command before it makes",
    "python translate.py --model runs/NAME --shortlist en-es.shortlist < in.en > out.es": (
        "needs the file that the command before it writes; tests/unit/cli/test_cli_shortlist.py does both"
    ),
    "python train.py data=files 'data.train=[mine.tsv]' model=base trainer=gpu": CLUSTER,
    "python train.py resume=runs/NAME trainer.max_steps=20000": "trains for long; the same without max_steps is run",
    "python train.py resume=runs/NAME data.root=FOLDER trainer.max_steps=20000": "the same, with texts elsewhere",
    "seq2seq lab report": LAB,
    "python train.py data=opus100 model=base model/style=modern trainer=gpu": NETWORK,
    "seq2seq prepare --ray auto data=files 'data.train=[\"corpora/*.tsv.xz\"]' data.root=/shared/text "
    "data.cache=/shared/cache": CLUSTER,
    "seq2seq bulk-translate --ray auto --workers 8 --device cuda --model runs/reverse --input 'mono/*.es' "
    "--output mono.en": CLUSTER,
    "cut -f1 ../shared/data/tatoeba/test.tsv > test.en": SHELL,
    "cut -f2 ../shared/data/tatoeba/test.tsv > test.es": SHELL,
    "seq2seq lab lengths --model runs/lab_everyday/baseline-1 --model runs/lab_lstm/lstm_attention-1 "
    "--model runs/lab_lstm/lstm_no_attention-1 --input test.en --reference test.es --output lengths.png": (
        "needs three trained models; tests/unit/lab calls it"
    ),
    "curl -s http://127.0.0.1:8000/translate -d q='The cat sees the milk.' -d source=en -d target=es": SERVER,
    "curl -s http://127.0.0.1:8000/translate -H 'Content-Type: application/json' -d '{\"q\": [\"<p>The <b>cat</b> sees "
    'the milk.</p>", "A dog?"], "source": "en", "target": "es", "format": "html"}\'': SERVER,
    "curl -s http://127.0.0.1:8000/translate -d q='The cat sees the milk.' -d source=en -d target=es "
    "-d alternatives=1": SERVER,
    "curl -s http://127.0.0.1:8000/languages": SERVER,
    "curl -s http://127.0.0.1:8000/translate -d q='Bonjour' -d source=fr -d target=es": SERVER,
}

TINY = (
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1", "tokenizer.vocab_size=auto", "training.max_tokens=256", "training.bleu_sentences=2",
    "training.warmup_steps=1", "search.beam=1", "search.max_length_ratio=1", "search.max_length_offset=2",
    "trainer.max_time=null", "trainer.max_steps=2", "trainer.validate_every=2", "trainer.checkpoint_every=2",
)  # fmt: skip
BUNDLED = (
    *TINY,
    "training.max_tokens=600",
    "data.root=bundled",
)  # a cut of the bundled corpus, under its files' names
TOY = (*TINY, "data.root=toy", "data.remove_overlap=false")
FURTHER = (  # the model is there already
    "data=files",
    "data.train=[mine.tsv]",
    "data.root=toy",
    "data.remove_overlap=false",
    "trainer.max_steps=2",
    "trainer.validate_every=2",
    "training.warmup_steps=1",
    "training.max_tokens=256",
)
MIXED = tuple(one for one in FURTHER if not one.startswith(("data=", "data.train=")))  # the command names its text
SHARED = (*MIXED, "search.beam=1", "search.max_length_ratio=1", "search.max_length_offset=2")
LSTM = tuple(one for one in BUNDLED if not one.startswith(("model.num_heads", "model.d_ff")))
LSTM_TOY = (*LSTM, "data.root=toy", "data.remove_overlap=false")

SMALL: dict[str, tuple[str, ...]] = {  # the command, and what is added to it; commands without a key need nothing
    "python train.py": BUNDLED,
    "python train.py data=files 'data.train=[my.tsv]'": TOY,
    "python train.py data=files 'data.train=[my.tsv]' 'data.validation=[dev.tsv]' 'data.test=[test.en+test.es]' "
    "model=base": TOY,
    "python train.py --multirun training.learning_rate=5e-4,1e-3 data=files 'data.train=[my.tsv]'": TOY,
    "python train.py logger=csv": BUNDLED,
    "python train.py data=files 'data.train=[mine.tsv]'": TOY,
    "python train.py data=files 'data.train=[mine.tsv]' name=mine": TOY,
    "python train.py resume=runs/mine": ("trainer.max_steps=7",),
    "python translate.py --model runs/mine < in.en > out.es": (),
    "seq2seq analyse --model runs/mine": (),
    "python train.py data=files 'data.train=[mine.tsv]' trainer=cpu": TOY,
    "python train.py experiment=tatoeba_cpu data.root=../shared/data/tatoeba": TOY,
    "python train.py experiment=tatoeba_cpu name=ours data.root=../shared/data/tatoeba": TOY,
    "python train.py experiment=tatoeba_cpu model/style=modern name=modern data.root=../shared/data/tatoeba": TOY,
    "python train.py --multirun lab=tatoeba data.root=../shared/data/tatoeba experiment=lab/baseline,lab/no_positions,"
    "lab/no_queries,lab/no_causal_mask,lab/lstm_attention,lab/lstm_no_attention": LSTM_TOY,
    "python train.py data=files 'data.train=[mine.tsv]' tokenizer.joint=false": TOY,
    "python train.py experiment=r_drop": BUNDLED,
    "python train.py training.r_drop=5": BUNDLED,
    "python train.py training.final_weights=average training.keep_best=5": BUNDLED,
    "python train.py experiment=lora init=runs/NAME data=files 'data.train=[mine.tsv]'": FURTHER,
    "python train.py experiment=finetune init=runs/NAME data=files 'data.train=[mine.tsv,general.tsv]' "
    "'data.weights={mine: 1, general: 1}' 'data.held_out_from=[mine,general]'": MIXED,
    "python train.py data=files 'data.train=[mine.tsv,general.tsv]' "
    "'data.validation=[mine.dev.tsv,general.dev.tsv]'": TOY,
    "python train.py data=files 'data.train=[mine.tsv,general.tsv]' 'data.held_out_from=[mine,general]'": TOY,
    "python train.py experiment=mixed_cpu name=general data.root=../shared/data "
    "'data.train=[\"corpora/[!g]*.tsv.xz\",\"corpora/g[!i]*.tsv.xz\",tatoeba/train.tsv]'": (*TOY, "name=another"),
    "python train.py experiment=finetune name=plain init=runs/general data=mixed data.root=../shared/data "
    "'data.train=[corpora/gimp_help.tsv.xz]' 'data.held_out_from=[gimp_help]' "
    "'data.test=[tests/newstest2013.en+tests/newstest2013.es,tatoeba/test.tsv]'": SHARED,
    "python train.py experiment=finetune name=mixed init=runs/general data=mixed data.root=../shared/data "
    "'data.train=[corpora/gimp_help.tsv.xz,\"corpora/[!g]*.tsv.xz\",\"corpora/g[!i]*.tsv.xz\",tatoeba/train.tsv]' "
    "'data.weights={gimp_help: 565000}' 'data.held_out_from=[gimp_help]' "
    "'data.test=[tests/newstest2013.en+tests/newstest2013.es,tatoeba/test.tsv]'": SHARED,
    "python train.py experiment=lora name=lora init=runs/general data=mixed data.root=../shared/data "
    "'data.train=[corpora/gimp_help.tsv.xz]' 'data.held_out_from=[gimp_help]' "
    "'data.test=[tests/newstest2013.en+tests/newstest2013.es,tatoeba/test.tsv]'": SHARED,
    "python train.py init=runs/NAME data=files 'data.train=[mine.tsv]' 'training.freeze=[embedding,encoder]'": FURTHER,
    "python train.py experiment=reverse name=reverse": (*BUNDLED, "name=reversed"),
    "python train.py data=files 'data.train=[real.tsv,synthetic.tsv]' 'tokenizer.user_symbols=[\"<bt>\"]'": TOY,
    "python train.py data=files 'data.train=[distilled.tsv]' 'data.validation=[dev.tsv]' 'data.test=[test.tsv]' "
    "model=tiny": TOY,
    "python train.py data=files 'data.train=[mine.tsv]' 'data.test=[test.en+test.es]' baseline=runs/NAME": TOY,
    "seq2seq evaluate --hypotheses out.es --reference ref.es": (),
    "seq2seq evaluate --hypotheses rival.es ours.es modern.es --reference ref.es": (),
    "seq2seq evaluate --hypotheses out.es --reference ref.es ref2.es": (),
    "seq2seq analyse --model runs/NAME": (),
    "seq2seq analyse --hypotheses out.es --reference ref.es --input in.en --training train.tsv --output analysis": (),
    "seq2seq analyse --hypotheses out.es --reference ref.es --input in.en --model runs/NAME --output analysis": (),
    "python train.py resume=runs/NAME resume_lr=1e-4": ("trainer.max_steps=9",),
    "seq2seq backtranslate --model runs/reverse --input mono.es --output synthetic.tsv --tag": (),
    "seq2seq distill --model runs/teacher --input train.tsv --output distilled.tsv": (),
    "seq2seq average --run runs/NAME --last 5 --output runs/mean": (),
    "seq2seq average --model runs/a --model runs/b --output runs/mean": (),
    "python train.py data=files 'data.train=[my.tsv]' 'data.languages=[en,es]' data.src_lang=es data.tgt_lang=en": TOY,
    "python train.py resume=runs/NAME": ("trainer.max_steps=7",),
    "python train.py experiment=finetune init=runs/NAME data=files 'data.train=[mine.tsv]'": FURTHER,
    "python train.py data=files 'data.train=[news.tsv,tatoeba/train.tsv]' 'data.weights={tatoeba: 2, news: 1}'": TOY,
    "python train.py experiment=mixture": BUNDLED,
    "python train.py experiment=subword_sampling": BUNDLED,
    "python train.py experiment=subword_sampling tokenizer=bpe tokenizer.vocab_size=2000": BUNDLED,
    "python train.py experiment=noise": BUNDLED,
    "seq2seq prepare data=mixed data.root=FOLDER tokenizer.vocab_size=16000 data.num_proc=8": (
        "data.root=toy", "tokenizer.vocab_size=auto", "data.num_proc=2", "data.remove_overlap=false",
    ),
    "python train.py data=mixed data.root=FOLDER tokenizer.vocab_size=16000 model=small": TOY,
    "python train.py model=lstm": LSTM,
    "python train.py experiment=tatoeba_cpu model=lstm data.root=../shared/data/tatoeba": LSTM_TOY,
    "python train.py model=lstm model.attention=none": LSTM,
    "python train.py lab=tatoeba data.root=../shared/data/tatoeba series=lab_everyday "
    "experiment=lab/baseline": LSTM_TOY,
    "python train.py --multirun lab=tatoeba data.root=../shared/data/tatoeba series=lab_lstm "
    "experiment=lab/lstm_attention,lab/lstm_no_attention training.learning_rate=4e-3 trainer.max_steps=6000": LSTM_TOY,
    "python train.py --multirun lab=tatoeba data.root=../shared/data/tatoeba series=lab_everyday "
    "experiment=lab/baseline,lab/heads_1,lab/heads_8,lab/no_cross_attention": LSTM_TOY,
    'python translate.py "The ball is blue."': (),
    "python translate.py < in.en > out.es": (),
    "python translate.py --model runs/NAME/model --input in.en --reference ref.es": (),
    "python translate.py --glossary terms.tsv --input page.html --output page.es.html": (),
    "python translate.py --engine ctranslate2 < in.en > out.es": (),
    'python translate.py --beam 10 --n-best 3 --json "The black cat drank the milk."': (),
    'python translate.py --sampling --top-p 0.9 --n-best 5 --seed 7 "The ball is blue."': (),
    "python translate.py --glossary terms.tsv --input in.en --output out.es": (),
    "python translate.py --model runs/a --model runs/b < in.en > out.es": (),
    "seq2seq shortlist --model runs/NAME --output en-es.shortlist": (),
    "seq2seq shortlist --model runs/tatoeba_cpu --best 50 --frequent 100 --output 50.shortlist": (),
    "python translate.py --engine ctranslate2 --quantization int8 < in.en > out.es": (),
    "python translate.py --input page.html --output page.es.html": (),
    'seq2seq attend "The black cat drank the milk." --output attention': (),
    'seq2seq attend "The black cat drank the milk." --model runs/tatoeba_cpu --output attention': (),
    'seq2seq attend "The black cat drank the milk." --without source.2 --output attention': (),
    'seq2seq attend "The black cat drank the milk." --rank-heads --output attention': (),
    'seq2seq attend "The ball is blue." --target "La bola es azul." --output attention': (),
    'seq2seq attend "The ball is blue." --target "La bola es azul." --over runs/slowly --output over': (),
    "python train.py name=slowly trainer.keep_last=100 trainer.checkpoint_every=50": (*BUNDLED, "name=slow"),
    "seq2seq runs": (),
    "seq2seq cache list": (),
    "seq2seq score --input in.en --translations out.es --json --per-token": (),
    "seq2seq export huggingface --output exported": (),
    "seq2seq export huggingface --model runs/latest --output exported": (),
    "seq2seq bulk-translate --model runs/reverse --input 'mono/*.es' --output mono.en --sampling --seed 1": (),
}  # fmt: skip
