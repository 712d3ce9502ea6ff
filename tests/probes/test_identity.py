"""Training under all probes at once is training without any, bit for bit."""

from __future__ import annotations

import copy
import random

import numpy
import pytest
import torch

from apoint.probes import Subject
from apoint.probes.observer import Observer
from apoint.probes.reading import Reading
from apoint.registry import registry
from tests.probes.zoo import case

STEPS, EVERY = 20, 7
EVERYTHING = dict.fromkeys([*registry("probe"), *registry("track")], EVERY)


def trained(name: str, probes: bool) -> tuple[dict[str, torch.Tensor], list[torch.Tensor], list[Reading]]:
    """Weights and buffers, what the optimizer holds and PyTorch draws next, and what was measured."""
    torch.manual_seed(5)
    random.seed(5)
    numpy.random.seed(5)
    patient = case(name)
    model, batch = patient.model, patient.batch
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    observer = Observer(model, patient.loss, optimizer, EVERYTHING, budget=1.0, test=copy.deepcopy(batch))
    observer.timetable.budget = 1e9  # so that none is left out
    if probes:
        observer.begin(batch)
    for _ in range(STEPS):
        optimizer.zero_grad()
        Subject(model, batch, patient.loss).loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if probes:
            observer(batch)
    held = [value for state in optimizer.state.values() for value in state.values()]
    drawn = [torch.randn(3), torch.tensor([random.random(), float(numpy.random.rand())])]
    taken = [one.reading for readings in observer.readings.values() for one in readings]
    return dict(model.state_dict()), [*held, *drawn], taken


@pytest.mark.parametrize("name", ["mlp", "cnn-batch-norm", "vit", "encoder-layer", "lstm", "own-loss"])
def test_twenty_steps_with_all_probes_are_twenty_steps_without(name: str) -> None:
    plain, its_rest, nothing = trained(name, probes=False)
    watched, rest, readings = trained(name, probes=True)
    assert not nothing
    assert {reading.probe for reading in readings} == set(EVERYTHING)
    assert len(readings) >= 2 * len(EVERYTHING)
    for key, tensor in plain.items():
        assert torch.equal(tensor, watched[key]), key
    assert len(rest) == len(its_rest) > 2
    assert all(torch.equal(one, other) for one, other in zip(rest, its_rest, strict=True))
