"""A training run on a real GPU, recorded whole, that ends in an out of memory which the program catches.

    python -m bench.gpu_training RUNS_DIR --seconds 60

Two phases take turns, `epoch` and `evaluate`; device memory is tracked every 100 ms and the machine, its GPUs
included, sampled every second. At the end memory is asked for until there is none, which leaves a bundle in
the run. With `--small` the model is a toy that a CPU trains too; there, nothing runs out of memory, and that
is said.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import flightlog
from flightlog.record.device.oom import bundles

INTERVAL_S = 0.1
SNAPSHOT_BYTES = 256 << 10


class Transformer:
    """A few attention blocks over random tokens; built where it is trained."""

    def __init__(self, torch: Any, device: str, *, small: bool) -> None:
        self.torch, self.device = torch, device
        self.width, self.tokens, self.batch = (64, 32, 8) if small else (1024, 512, 32)
        nn = torch.nn
        layer = nn.TransformerEncoderLayer(
            self.width, 4 if small else 16, self.width * 4, batch_first=True, dropout=0.0
        )
        self.embed = nn.Embedding(1000, self.width).to(device)
        self.body = nn.TransformerEncoder(layer, 2 if small else 8, enable_nested_tensor=False).to(device)
        self.head = nn.Linear(self.width, 1000).to(device)
        parts = (self.embed, self.body, self.head)
        self.optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=1e-4)

    def loss(self, batch: int) -> Any:
        words = self.torch.randint(0, 1000, (batch, self.tokens + 1), device=self.device)
        with self.torch.autocast(self.device, dtype=self.torch.bfloat16, enabled=self.device == "cuda"):
            said = self.head(self.body(self.embed(words[:, :-1])))
            return self.torch.nn.functional.cross_entropy(said.flatten(0, 1), words[:, 1:].flatten())

    def train(self) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.batch)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def evaluate(self) -> float:
        with self.torch.no_grad():
            return float(self.loss(self.batch * 4))


def work(torch: Any, run: Any, device: str, seconds: float, small: bool) -> dict[str, Any]:
    """Train and evaluate in turn until the time is up; gives how often."""
    with flightlog.span("build"):
        model = Transformer(torch, device, small=small)
    until = time.monotonic() + seconds
    share = max(seconds / 8, 0.5)
    epochs = steps = 0
    while time.monotonic() < until:
        with flightlog.span("epoch", number=epochs):
            ends = time.monotonic() + share * 0.75
            while time.monotonic() < ends:
                loss = model.train()
                if steps % 20 == 0:  # a run that is kept in the repository stays small
                    run.metric("loss", loss, step=steps)
                steps += 1
        with flightlog.span("evaluate", number=epochs):
            ends = time.monotonic() + share * 0.25
            losses = []
            while time.monotonic() < ends:
                losses.append(model.evaluate())
            run.metric("evaluation_loss", sum(losses) / len(losses) if losses else float("nan"), step=steps)
        epochs += 1
    return {"epochs": epochs, "steps": steps}


def run_out(torch: Any) -> str:
    """Ask for memory until there is none, catch what comes of it, and say it."""
    _, total = torch.cuda.mem_get_info()
    held = []
    try:
        with flightlog.span("provoke"):
            for _ in range(100):
                held.append(torch.empty(total // 12, dtype=torch.uint8, device="cuda"))
                time.sleep(INTERVAL_S * 2)  # so that the rise is seen, and not its end alone
    except torch.cuda.OutOfMemoryError as error:
        held.clear()
        torch.cuda.empty_cache()
        return str(error).splitlines()[0]
    return "the device had more memory than was asked for"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs_dir", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--snapshot-kib", type=int, default=SNAPSHOT_BYTES >> 10, help="room for the snapshot"
    )
    parser.add_argument("--small", action="store_true", help="a toy, for a CPU")
    given = parser.parse_args()

    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with (
        flightlog.record("gpu-training", runs_dir=given.runs_dir, tags={"device": device}) as run,
        flightlog.track_device_memory("torch", INTERVAL_S, snapshot_bytes=given.snapshot_kib << 10),
    ):
        done = work(torch, run, device, given.seconds, given.small)
        done["oom"] = run_out(torch) if device == "cuda" else "skipped: there is no CUDA device"
    closed = flightlog.open_run(run.path)
    kinds: dict[str, int] = {}
    for event in closed.events("devices"):
        kinds[event.event_type] = kinds.get(event.event_type, 0) + 1
    done |= {
        "run": str(run.path),
        "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu",
        "events": kinds,
        "bundles": [str(folder) for folder in bundles(run.path)],
        "run_bytes": sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file()),
    }
    print(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
