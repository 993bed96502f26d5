"""What becomes of a training whose disk is full? One line of JSON.

    python benchmarks/soak_disk.py

A file system of 250 MB, in a name space of its own (`unshare`, `mount -t tmpfs`). `spellonce train`
runs on it until a file that grows beside it has taken all of the space; then there is room again,
and it is resumed. Bars: it ends with a line that says so, and the resumed run has the weights of
one that always had room.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import bar, begin_command, finish_command, write_topics

SIZE = 250 << 20
OWN = ["unshare", "--user", "--map-root-user", "--mount"]
SETTINGS = ["checkpoint_every=5", "vocab_size=5000"]
STEPS = 100


def mount(folder: str) -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder]


def within(folder: Path) -> dict[str, object]:
    """In a name space of our own, with a small file system on the folder."""
    subprocess.run(mount(str(folder)), check=True)
    text = write_topics(folder)
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    command = ["train", str(text), "--recipe", "small", "--steps", str(STEPS), *settings]
    finish_command(*command, "--out", str(folder / "alone"))
    expected = (folder / "alone" / "model.safetensors").read_bytes()
    for path in sorted((folder / "alone").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    run = folder / "run"
    process = begin_command(*command, "--out", str(run))
    while not any(run.glob("checkpoint/step-*")) and process.poll() is None:
        time.sleep(0.05)
    with (folder / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(1 << 16))
        except OSError:
            _, said = process.communicate()
    (folder / "filler").unlink()
    told = said.strip().split("\n")[-1]
    finish_command("train", "--resume", "--out", str(run))
    same = (run / "model.safetensors").read_bytes() == expected
    return {"code": process.returncode, "told": told, "same": same}


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(within(Path(sys.argv[1]))))
        return
    with tempfile.TemporaryDirectory() as scratch:
        can = subprocess.run([*OWN, *mount(scratch)], capture_output=True, text=True, check=False)
        if can.returncode:
            reason = f"no file system can be made here: {can.stderr.strip()}"
            print(json.dumps({"benchmark": "disk", "skipped": reason}))
            return
        done = subprocess.run(
            [*OWN, sys.executable, __file__, scratch], stdout=subprocess.PIPE, text=True, check=True
        )
    found = json.loads(done.stdout.strip().split("\n")[-1])
    is_told = found["code"] == 1 and "space" in found["told"] and "Traceback" not in found["told"]
    print(json.dumps({
        "benchmark": "disk", **found,
        "bars": [
            bar("ends with a line that says what is wrong", int(is_told), "at least", 1),
            bar("resumed, it has the same weights", int(found["same"]), "at least", 1),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
