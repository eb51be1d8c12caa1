import subprocess
import sys

IN_THE_READING_PROCESS = """
import sys
import seq2seq.text.epochs, seq2seq.workers
print("torch" in sys.modules)
"""


def test_the_reading_process_loads_no_pytorch() -> None:
    """It would cost it some 180 MB, and seconds to start."""
    done = subprocess.run([sys.executable, "-c", IN_THE_READING_PROCESS], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
