"""examples/lora for real: eight peers, of which one is killed and one joins late; only adapters travel."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import plexus
from plexus.live.fleet.fleet import Fleet
from plexus.live.state import newest_model, taken_home
from plexus.spec.experiment import load_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "lora"
ROUNDS, MOST_S = 20, 600.0
pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]


async def session(out: Path) -> tuple[int, float, Path]:
    """Round and loss of the newest model, and the home of who holds it."""
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
        held = [(found[0], member.home) for member in fleet.members if (found := newest_model(member.home))]
        number, home = max(held)
        _, evaluated = await fleet.evaluate()
        return number, evaluated.loss, home
    finally:
        await fleet.close()


def test_eight_peers_adapt_a_transformer(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    pytest.importorskip("transformers")
    number, loss, home = asyncio.run(session(tmp_path / "fleet"))
    held = newest_model(home)
    assert held is not None
    (tmp_path / "lora.safetensors").write_bytes(taken_home(home, held[1], {"round": str(number)}))
    whole = load_file(tmp_path / "lora.safetensors")
    weights = sum(tensor.numel() for tensor in whole.values())
    share = len(held[1]) / (4 * weights)
    assert weights >= 5_000_000 and share <= 0.03

    # The same session in one process, for as many rounds.
    rounds = {"evaluation.every_rounds": 1, "hours": 0.08}
    run = plexus.simulate(EXAMPLE / "session.toml", changes=rounds, out=tmp_path / "run", engine="inline")
    losses = dict(zip(run.metrics["round"].tolist(), run.metrics["loss"].tolist(), strict=True))
    reference = losses[min(number, max(losses))]
    print(
        f"round {number}: loss {loss:.4f}, reference {reference:.4f}, a message is {share:.2%} of the model"
    )
    # Who takes part in a round differs, and the loss still falls: two such sessions are some percent apart.
    assert abs(loss - reference) <= 0.1 * reference
    assert reference < 0.8 * losses[min(losses)]

    command = [sys.executable, str(EXAMPLE / "adapter.py"), "lora.safetensors", "adapter"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    from peft import PeftModel
    from transformers import GPT2LMHeadModel

    base = GPT2LMHeadModel.from_pretrained(tmp_path / "adapter" / "base")
    adapted = PeftModel.from_pretrained(base, tmp_path / "adapter")
    name = "base_model.model.transformer.h.0.attn.c_attn.lora_B.default.weight"
    assert (dict(adapted.named_parameters())[name] == whole[name]).all() and whole[name].any()
    module = plexus.load(tmp_path / "run").model()
    module.load_state_dict(whole, strict=False)
    letters = torch.arange(32, 64)[None]
    with torch.no_grad():
        outputs = [each.eval()(input_ids=letters).logits for each in (module, adapted)]
    assert torch.allclose(*outputs, atol=1e-4)
