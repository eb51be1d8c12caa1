"""The C code of the search compiles without a warning, and sanitizers find nothing in the tests of its results."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.searches import NEEDS_COMPILER

SANITIZED = "cc -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
TESTS = Path(__file__).with_name("test_native_decoder.py")


@pytest.mark.slow
@NEEDS_COMPILER
def test_the_compiled_search_has_no_warning_and_stays_within_its_memory() -> None:
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    library = Path(found.stdout.strip())
    if not library.is_absolute():
        pytest.skip("this C compiler has no address sanitizer")
    environment = os.environ | {
        "CC": SANITIZED,
        "LD_PRELOAD": str(library),  # before Python, which is not sanitized
        "ASAN_OPTIONS": "detect_leaks=0,protect_shadow_gap=0",  # Python and PyTorch keep memory until the end
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", str(TESTS)]
    ended = subprocess.run(
        [*command, "-k", "not compiler and not cache"], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
