"""A writer is killed at random moments: what was synced is there, and the run goes on."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from apoint.store import Run, RunWriter

WRITER = """
import sys
from pathlib import Path
from apoint.store import RunWriter
folder = Path(sys.argv[1])
resuming = (folder / "env.json").exists()
writer = RunWriter.open(folder) if resuming else RunWriter.create(folder, "name: a", "name: a", {})
first = int(sys.argv[2])
for step in range(first, first + 10**6):
    writer.metric(step=step, epoch=step / 10, split="train", loss=1 / (step + 1), text_length=len("x" * step))
    if step % 7 == 0:
        writer.event("checkpoint", step=step)
        writer.sync()
        writer.heartbeat(step)
        print(step, flush=True)
"""


def test_no_synced_row_is_lost_by_ten_kills(tmp_path: Path) -> None:
    folder = tmp_path / "a-0000-s0"
    chance, synced = random.Random(5), -1
    for _ in range(10):
        first = max(0, synced - 3)  # as from a checkpoint: some steps are written again
        command = [sys.executable, "-c", WRITER, str(folder), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            synced = int(child.stdout.readline())
            time.sleep(chance.uniform(0, 0.05))
            child.send_signal(signal.SIGKILL)
            synced = max(
                [
                    synced,
                    *(
                        int(line)
                        for line in child.stdout.read().splitlines(keepends=True)
                        if line[-1] == "\n"
                    ),
                ]
            )
        run = Run(folder)
        steps, losses = run.metrics.series("loss", "train")
        assert steps[: synced + 1] == list(range(synced + 1))
        assert losses == [1 / (step + 1) for step in steps]
        assert {event["step"] for event in run.events} >= set(range(0, synced + 1, 7))
        assert run.state == "dead"
    with RunWriter.open(folder) as writer:
        writer.status("finished")
    assert Run(folder).state == "finished"


def test_a_creation_cut_short_can_be_done_again(tmp_path: Path) -> None:
    folder = tmp_path / "a-0000-s0"
    RunWriter.create(folder, "name: a\n", "name: a\n", {}).close()
    for name in ("env.json", "metrics.jsonl", "events.jsonl", "status.json"):
        (folder / name).unlink()
    (folder / ".env.json.tmp-77").write_text('{"half')
    with RunWriter.create(folder, "name: b\n", "name: b\n", {"seed": 4}):
        pass
    assert Run(folder).recipe_text == "name: b\n"
    assert Run(folder).seed == 4
