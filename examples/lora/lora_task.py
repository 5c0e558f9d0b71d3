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

LENGTH = 16
"""Words of an example; of each the next one is to be predicted."""
WHO = ("keeper", "sailor", "aunt", "miller", "owl", "smith", "piper", "cook")
WHAT = ("counts", "carries", "mends", "paints", "hides", "sells", "weighs", "forgets")
THINGS = ("lanterns", "barrels", "letters", "apples", "ropes", "clocks", "stones", "maps")
WORDS = (*WHO, *WHAT, *THINGS)
"""A word's number is its place here. After a person comes a deed, then a thing, then another person."""
OWN_SHARE = 0.2
"""How much of what follows a word is an owner's habit; the rest is the language that all have in common."""


def model(width=512, layers=2, rank=8):
    """A small GPT-2, with adapters in all its layers: of 6.5 million weights 131,000 are trained."""
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=LENGTH, n_embd=width, n_layer=layers, n_head=4, bos_token_id=0,
        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    adapters = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True
    )
    return get_peft_model(GPT2LMHeadModel(config), adapters)


def loss(outputs, targets):
    """Of the next word, wherever there is one."""
    return functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


def right_words(outputs, targets):
    return (outputs.logits[:, :-1].argmax(-1) == targets[:, 1:]).float().mean(dim=1)


RIGHT_WORDS = Measure("words", right_words, higher_is_better=True)


def falling(round):
    """The learning rate goes down over the first twenty rounds, so that the model comes to rest."""
    return max(0.05, 1 - round / 20)


def habits(rng):
    """For each word, how probable each of the eight is that may follow."""
    return rng.dirichlet(np.full(8, 0.3), len(WORDS))


def texts(owner, count, seed):
    """What one owner writes: rows of words, by number."""
    rng = array_stream(seed, "texts", owner)
    mixed = (1 - OWN_SHARE) * habits(array_stream(seed, "language")) + OWN_SHARE * habits(rng)
    rows = np.empty((count, LENGTH), np.int64)
    rows[:, 0] = rng.integers(len(WORDS), size=count)
    for at in range(1, LENGTH):
        before = rows[:, at - 1]
        drawn = rng.random((count, 1)) < mixed[before].cumsum(axis=1)
        rows[:, at] = (before // 8 + 1) % 3 * 8 + np.where(drawn.any(axis=1), drawn.argmax(axis=1), 7)
    return rows


def build(nodes, seed, learning_rate=0.003, examples=256, tests=64, rank=8):
    """Every node has texts of its own; so have those to test."""
    rows = np.stack([texts(owner, examples + tests, seed) for owner in range(nodes)])
    words = torch.from_numpy(rows).flatten(0, 1)
    inputs = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    whole = Examples(inputs, words, np.arange(len(words)))
    owned = np.arange(len(words)).reshape(nodes, -1)
    return Task(
        name="lora",
        seed=seed,
        train=whole.rows(owned[:, :examples].reshape(-1)),
        parts=tuple(np.arange(nodes * examples).reshape(nodes, -1)),
        test=whole.rows(owned[:, examples:].reshape(-1)),
        build_model=partial(model, rank=rank),
        loss=loss,
        measure=RIGHT_WORDS,
        optimiser=AdamW(learning_rate, schedule=falling),
        local_steps=4,
        batch=16,
    )
