"""What a user's editor sees of the public names: checked by `make lint`, not run."""

from typing import assert_type

import torch
from torch import nn

import apoint
from apoint.inspection.report import Report
from apoint.store import Run
from apoint.trials.improver import Improvement
from apoint.verdict import Verdict

model = apoint.models.create("mlp", in_features=4, num_classes=2)
assert_type(model, nn.Module)
optimizer = apoint.optim.Lion(model.parameters(), lr=1e-4, weight_decay=1.0)
as_torch: torch.optim.Optimizer = optimizer
assert_type(apoint.schedules.cosine(peak=1.0, warmup=0.05, floor=0.1)(0.5), float)

assert_type(apoint.train("digits-mlp", changes={"epochs": 3}, device="cpu"), Run)
assert_type(apoint.compare("digits-mlp", changes={"optimizer.lr": 3e-4}, max_pairs=8, threads=1), Verdict)
assert_type(apoint.improve("digits-mlp", budget="20m", metric="test_loss", backend="pool"), Improvement)
assert_type(apoint.inspect(model, "digits", optimizer=optimizer), Report)
assert_type(apoint.verdict.decide([0.9], [0.8], margin=0.1), Verdict)

apoint.train("digits-mlp", devise="cpu")  # type: ignore[call-arg]
apoint.compare("digits-mlp", max_pairs="8")  # type: ignore[arg-type]
apoint.improve("digits-mlp", looks=(6,))  # type: ignore[call-arg]
