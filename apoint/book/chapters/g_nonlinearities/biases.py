"""G5: does a feed-forward block need its biases?"""

from __future__ import annotations

from typing import Any

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, ruled
from apoint.book.running import Running

MARGIN = 0.03


@claim(
    "G5c",
    "Feed-forward blocks do without biases",
    kind="direction",
    statement=r"""
    Leaving the biases out of the SwiGLU block of a small transformer costs no more than 0.03 nats of test
    loss.
    """,
    refuted_by="a verdict of worse for the block without biases, by more than the margin of 0.03 nats",
    seconds={"quick": 14, "standard": 400},
    planted={"linear": True},
    details=r"""
    The source says that more and more language models drop them; that is a fact about models, and this a
    check of what it costs. A transformer of one block and 32 units reads characters of Python's language
    reference. Both arms share seeds, data, order and rate, and differ by the block's biases alone; the
    hidden size stays that of the block with as many parameters as the plain one. The margin was declared
    before any run: it is a small part of the tenth of a nat that a block without any activation loses, which
    is the planted error. Norms and attention keep their biases.
    """,
    references=("Chowdhery et al. (2022), PaLM: scaling language modeling with pathways, section 2",),
)
def without_biases(run: Running, linear: bool = False) -> Evidence:
    """Paired training without against with biases; `linear` takes the activation away instead."""
    plain: dict[str, Any] = {"name": "swiglu", "bias": True}
    other: dict[str, Any] = {"name": "swiglu", "bias": False}
    if linear:
        other = {"name": "plain", "activation": "identity", "bias": False}
    recipe = {
        "name": "biases",
        "data": {"name": "python-docs", "context": 32, "stride": 256},
        "model": {"name": "char-transformer", "depth": 1, "width": 32, "num_heads": 2, "feed_forward": plain},
        "init": {"name": "standard", "std": 0.1},
        "optimizer": {"name": "adamw", "lr": 1e-2},
        "schedule": "cosine",
        "batch_size": 32,
        "steps": run.pick(200, 1000),
        "evaluate_every": "100%",
    }
    verdict = run.compare(
        recipe,
        {"model.feed_forward": other},
        metric="test_loss",
        margin=MARGIN,
        looks=run.pick((6, 12), (8, 16, 32)),
        first_seed=100,
    )
    return Evidence(
        [ruled("test loss saved by leaving biases out (nats)", verdict, "equivalent", "better")],
        would_take=f"about {verdict.further_pairs} further pairs of seeds" if verdict.further_pairs else "",
    )
