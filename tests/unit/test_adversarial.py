"""Hostile lines, five hundred of them in CI: each gives one line, the one that it gives alone."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LINES = 20
EXAMPLES = settings().max_examples  # 15; in CI 200
ANY = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=60)
CONTROLS = st.text(
    st.sampled_from([chr(code) for code in range(32) if code != 10] + ["\x7f", "\x85", "\u2028"]), max_size=20
)
EMOJI = st.text(st.sampled_from("😀👩‍👩‍👧🏳️‍🌈🇪🇸👍🏽\ufe0f\u200d"), max_size=20)
RIGHT_TO_LEFT = st.text(st.sampled_from("שלום مرحبا\u202e\u202d\u200f abc"), max_size=30)
MARKS = st.text(st.sampled_from("¿?¡!.,;:…—-'\"«»()[]{}<>|/\\@#$%^&*_+=~`"), max_size=40)
COMBINING = st.text(st.sampled_from("aeñ\u0301\u0303\u0308\u0336"), max_size=40)
SPECIAL = st.sampled_from(
    ["<s>", "</s>", "<pad>", "<unk>", "▁", "<0x0A>", "\ufeffhola", "a\x00b", "\r", "hola\r", "\t", " "]
)
HOSTILE = st.one_of(ANY, CONTROLS, EMOJI, RIGHT_TO_LEFT, MARKS, COMBINING, SPECIAL)


@pytest.mark.slow
@settings(max_examples=max(2, EXAMPLES // 8))
@given(lines=st.lists(HOSTILE, min_size=LINES, max_size=LINES))
def test_hostile_lines_give_one_line_each_and_do_not_touch_each_other(translator, lines):
    fast = {"beam": 2, "max_length": 3}
    together = translator.translate(lines, **fast)
    assert len(together) == LINES
    assert not any("\n" in line or "\r" in line for line in together)
    alone = [translator.translate([line], **fast)[0] for line in dict.fromkeys(lines)]
    assert dict(zip(lines, together, strict=True)) == dict(zip(dict.fromkeys(lines), alone, strict=True))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=max(3, EXAMPLES // 4))
@given(lines=st.lists(HOSTILE, min_size=5, max_size=5))
def test_the_filter_gives_a_line_for_every_line_of_bytes(run, translator, lines):
    stdin = "".join(f"{line}\n" for line in lines).encode()
    status, out, err = run("--beam", 1, "--max-length", 2, stdin=stdin)
    assert (status, err) == (0, "")
    assert out == "".join(f"{line}\n" for line in translator.translate(lines, beam=1, max_length=2))
