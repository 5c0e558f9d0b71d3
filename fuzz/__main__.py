"""`python -m fuzz [MINUTES] [READER]`: look for bytes that a reader neither reads nor refuses.

Guided by coverage, so it finds what hypothesis in `make test` would need luck for. Bytes that break a
reader are written to a temporary folder, never into the repository, and their path is printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def fuzz_one(name: str, seconds: int, scratch: Path) -> None:
    """In a process of its own: this does not return."""
    import atheris

    with atheris.instrument_imports(include=["plexus", "fuzz.readers"]):
        from fuzz.readers import READERS, check

    corpus, found = scratch / "corpus", scratch / "found"
    for folder in (corpus, found, scratch / "files"):
        folder.mkdir()
    for number, data in enumerate(READERS[name].valid):
        (corpus / str(number)).write_bytes(data)

    def one(data: bytes) -> None:
        with tempfile.TemporaryDirectory(dir=scratch / "files") as folder:
            check(name, data, Path(folder))

    options = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={found}/",
        "-max_len=4096",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


def main() -> int:
    try:
        import atheris  # noqa: F401
    except ImportError:
        print("fuzz: atheris is not installed here (pip install atheris); nothing was fuzzed")
        return 0
    from fuzz.readers import READERS

    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    names = sys.argv[2:] or list(READERS)
    unknown = set(names) - set(READERS)
    if unknown:
        print(f"fuzz: no reader {', '.join(sorted(unknown))}; there are {', '.join(READERS)}")
        return 2
    broken = 0
    for name in names:
        scratch = Path(tempfile.mkdtemp(prefix="plexus-fuzz-"))
        program = (
            "import sys, pathlib; from fuzz.__main__ import fuzz_one;"
            "fuzz_one(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]))"
        )
        arguments = [name, str(max(1, round(60 * minutes))), str(scratch)]
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
        )
        said = done.stdout + done.stderr
        runs = re.findall(r"number_of_executed_units: *(\d+)", said)
        if done.returncode == 0:
            print(f"{name}: {runs[-1] if runs else 'some'} inputs read or refused", flush=True)
        else:
            broken += 1
            print(f"{name}: broken by {scratch / 'found'}\n{said[-2000:]}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
