"""LoRA on a transformer: `transformers` builds the model, `peft` adds adapters, Plexus trains these.

The model comes from a configuration and the seed, so nothing is downloaded. A pretrained one is built with
`from_pretrained`; the hash of frozen weights sees to it that all peers have the same. Only adapters travel.
Needs: pip install 'plexus-learning[lora]'
"""

from functools import partial

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from plexus import AdamW, Examples, Measure, Task, array_stream

LENGTH = 48
"""Letters of an example; of each the next one is to be predicted."""
WHO = ("the keeper", "a sailor", "my aunt", "the miller", "one owl", "the smith", "a piper", "our cook")
WHAT = ("counts", "carries", "mends", "paints", "hides", "sells", "weighs", "forgets")
THINGS = ("lanterns", "barrels", "letters", "apples", "ropes", "clocks", "stones", "maps")
KINDS = (WHO, WHAT, THINGS)


def model(width=320, layers=4, rank=8):
    """A small GPT-2 over letters, with adapters in its attention: of 5 million weights 41,000 are trained."""
    config = GPT2Config(
        vocab_size=128, n_positions=LENGTH, n_embd=width, n_layer=layers, n_head=4, bos_token_id=0,
        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["c_attn"], fan_in_fan_out=True)
    return get_peft_model(GPT2LMHeadModel(config), adapters)


def loss(outputs, targets):
    """Of the next letter, wherever there is one."""
    return functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


def right_letters(outputs, targets):
    return (outputs.logits[:, :-1].argmax(-1) == targets[:, 1:]).float().mean(dim=1)


LETTERS = Measure("letters", right_letters, higher_is_better=True)


def falling(round):
    """The learning rate goes down over the first twenty rounds, so that the model comes to rest."""
    return max(0.05, 1 - round / 20)


def texts(owner, count, seed):
    """What one owner writes: about some people and things more than about others."""
    rng = array_stream(seed, "texts", owner)
    taste = [rng.dirichlet(np.full(8, 0.7)) for _ in range(3)]
    for _ in range(count):
        words = [kind[rng.choice(8, p=taste[at])] for _ in range(3) for at, kind in enumerate(KINDS)]
        line = " ".join(words)
        yield [min(ord(letter), 127) for letter in line[:LENGTH].ljust(LENGTH)]


def build(nodes, seed, learning_rate=0.01, examples=64, rank=8):
    """Every node has texts of its own; half as many again are to test."""
    rows = [row for owner in range(nodes) for row in texts(owner, examples + examples // 4, seed)]
    letters = torch.tensor(rows)
    everything = {"input_ids": letters, "attention_mask": torch.ones_like(letters)}
    whole = Examples(everything, letters, np.arange(len(rows)))
    owned = np.arange(len(rows)).reshape(nodes, -1)
    train = owned[:, :examples]
    return Task(
        name="lora",
        seed=seed,
        train=whole.rows(train.reshape(-1)),
        parts=tuple(np.arange(nodes * examples).reshape(nodes, -1)),
        test=whole.rows(owned[:, examples:].reshape(-1)),
        build_model=partial(model, rank=rank),
        loss=loss,
        measure=LETTERS,
        optimiser=AdamW(learning_rate, schedule=falling),
        local_steps=4,
        batch=8,
    )
