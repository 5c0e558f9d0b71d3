"""examples/lora for real: eight peers, of which one is killed and one joins late; only adapters travel."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import plexus
from plexus.learn.tasks import build_task
from plexus.live.fleet.fleet import Fleet
from plexus.live.worker.client import Evaluated
from plexus.runs.tables import read
from plexus.spec.experiment import load_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "lora"
ROUNDS, MOST_S = 20, 1200.0
pytestmark = [pytest.mark.live, pytest.mark.timeout(2400)]


async def session(out: Path) -> tuple[Evaluated, float]:
    """What the newest model after twenty rounds is worth, and the bytes of a message that carries one."""
    spec = load_spec(EXAMPLE / "session.toml")
    out.mkdir()
    fleet = Fleet(spec, out, None, EXAMPLE)
    try:
        await fleet.prepare()
        until = time.monotonic() + MOST_S

        async def reach(number: int) -> None:
            while fleet.round < number:
                await asyncio.sleep(0.3)
                for member in fleet.members:
                    member.log.read()
                assert time.monotonic() < until, f"round {fleet.round} of {number}"

        *first, late = fleet.members
        await asyncio.gather(*(member.start() for member in first))
        await reach(5)
        await first[2].end(signal.SIGKILL)
        await late.start()
        await reach(ROUNDS)
        await fleet.end_members()
        assert late.log.counts["TrainingStarted"] and not first[2].is_running
        sent = [read(member.home / "run" / "traffic.csv") for member in fleet.members]
        models, views, count = (
            sum(each[key][-1] for each in sent) for key in ("model_bytes", "view_bytes", "model_count")
        )
        _, evaluated = await fleet.evaluate()
        return evaluated, (models + views) / count
    finally:
        await fleet.close()


def reference(task: plexus.Task) -> tuple[float, float]:
    """Loss on the test set before and after, with all data in one process: torch and peft alone.

    As many steps with the same schedule; a step's batch is as large as those of all peers together.
    """
    assert task.optimiser is not None
    torch.set_num_threads(1)
    module, rows = task.initial_model(), np.random.default_rng(1)

    def loss(examples: plexus.Examples) -> torch.Tensor:
        return task.loss(module(**examples.inputs), examples.targets)

    with torch.no_grad():
        before = loss(task.test).item()
    trained = [each for each in module.parameters() if each.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=task.optimiser.learning_rate)
    for number in range(1, ROUNDS + 1):
        optimiser.param_groups[0]["lr"] = task.optimiser.learning_rate * task.optimiser.scale(number)
        for _ in range(task.local_steps):
            batch = rows.choice(len(task.train), task.nodes * task.batch, replace=False)
            optimiser.zero_grad()
            loss(task.train.rows(batch)).backward()
            optimiser.step()
    with torch.no_grad():
        return before, loss(task.test).item()


def test_eight_peers_adapt_a_transformer(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    pytest.importorskip("transformers")
    found, message_bytes = asyncio.run(session(tmp_path / "fleet"))
    final = tmp_path / "fleet" / "model-final.safetensors"
    whole = load_file(final)
    weights = sum(tensor.numel() for tensor in whole.values())
    share = message_bytes / (4 * weights)
    assert weights >= 5_000_000 and share <= 0.03

    spec = load_spec(EXAMPLE / "session.toml")
    task = build_task(spec.task.parameters, spec.nodes, spec.seed, EXAMPLE)
    before, alone = reference(task)
    print(
        f"loss {before:.4f} -> {found.loss:.4f}, in one process {alone:.4f}; a message is {share:.2%} of it"
    )
    assert abs(found.loss - alone) <= 0.02 * alone
    assert alone < 0.6 * before

    command = [sys.executable, str(EXAMPLE / "adapter.py"), str(final), "adapter"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    from peft import PeftModel
    from transformers import GPT2LMHeadModel

    base = GPT2LMHeadModel.from_pretrained(tmp_path / "adapter" / "base")
    adapted = PeftModel.from_pretrained(base, tmp_path / "adapter")
    name = "base_model.model.transformer.h.0.attn.c_attn.lora_B.default.weight"
    assert (dict(adapted.named_parameters())[name] == whole[name]).all() and whole[name].any()
    module = task.initial_model()
    module.load_state_dict(whole, strict=False)
    words = torch.arange(16)[None]
    with torch.no_grad():
        outputs = [each.eval()(input_ids=words).logits for each in (module, adapted)]
    assert torch.allclose(*outputs, atol=1e-4)
