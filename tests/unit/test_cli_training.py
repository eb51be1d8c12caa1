from seq2seq.bundle import load_bundle
from seq2seq.cli import app
from seq2seq.translator import Translator


def test_average_makes_a_model_that_translates(run, bundle_folder, tmp_path):
    out = tmp_path / "mean"
    options = ("--model", bundle_folder, "--output", out)
    status, _, err = run(*options, command=("average", "--model", str(bundle_folder)), application=app)
    assert (status, err) == (0, f"{out}: the mean of {bundle_folder}, {bundle_folder}\n")
    assert load_bundle(out).model.state_dict().keys() == load_bundle(bundle_folder).model.state_dict().keys()
    texts = ["The cat drank the milk."]
    assert Translator.load(out, "cpu").translate(texts) == Translator.load(bundle_folder, "cpu").translate(texts)
    status, _, err = run(*options, command=("average", "--model", str(bundle_folder)), application=app)
    assert (status, err) == (1, f"error: --output {out} is there already: choose another folder\n")
    for wrong in (
        (),
        ("--run", "runs/x"),
        ("--last", "3", "--model", "a"),
        ("--run", "x", "--last", "2", "--model", "a"),
    ):
        assert run("--output", tmp_path / "new", *wrong, command=("average",), application=app)[0] == 2
