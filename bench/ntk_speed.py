"""Tangent kernels: against the Jacobian contraction of PyTorch's tutorial, and analytic ones by themselves.

Times are the best of several interleaved rounds in one thread, in processor time of this process. Memory is
what the resident set of a fresh process grows by at its peak in one call of an arm (Linux). neural-tangents
is timed only where it can be imported, in a process of its own; current JAX lacks what it needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from apoint.theory import ntk
from bench.timing import interleaved, table

CASES = {
    "mlp": "MLP 784-256-256-1, n = 200",
    "cnn": "the tutorial's CNN, 3 convolutions of 32 and 21632-10, 3x32x32, n = 20",
}


def make(name: str) -> tuple[nn.Module, Tensor]:
    """A model and examples."""
    torch.manual_seed(0)
    if name == "mlp":
        layers = (nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
        return nn.Sequential(*layers), torch.randn(200, 784)
    convolutions = [part for c in (3, 32, 32) for part in (nn.Conv2d(c, 32, 3), nn.ReLU())]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(21632, 10)), torch.randn(20, 3, 32, 32)


def jacobians(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The gradients of every example and output, by parameter, [N, O, entries]."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def single(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        return functional_call(model, parameters, (one[None],))[0]

    return [one.flatten(2) for one in vmap(jacrev(single), (None, 0))(parameters, x).values()]


def contraction(model: nn.Module, x1: Tensor, x2: Tensor) -> Tensor:
    """The tutorial's first method, as published: Jacobians of both sets, multiplied layer by layer."""
    pairs = zip(jacobians(model, x1), jacobians(model, x2), strict=True)
    return torch.stack([torch.einsum("Naf,Mbf->NMab", one, other) for one, other in pairs]).sum(0)


def shared_contraction(model: nn.Module, x: Tensor) -> Tensor:
    """The same where both sets are one, whose Jacobians are then made once: harder to beat."""
    return torch.stack([torch.einsum("Naf,Mbf->NMab", one, one) for one in jacobians(model, x)]).sum(0)


ARMS: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "tutorial": lambda model, x: contraction(model, x, x),
    "tutorial, one Jacobian": shared_contraction,
    "apoint": lambda model, x: ntk.empirical(model, x),
}


def peak(arm: str, name: str) -> float:
    """Megabytes that a fresh process grows by during one call."""
    command = [sys.executable, "-m", "bench.ntk_speed", arm, name]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent
    )
    return float(done.stdout)


def measure_peak(arm: str, name: str) -> None:
    """Print the megabytes; a small call comes first, so that libraries are loaded."""
    torch.set_num_threads(1)
    model, x = make(name)
    ARMS[arm](model, x[:2])
    before = resident("VmRSS")
    ARMS[arm](model, x)
    print((resident("VmHWM") - before) / 1024)


def resident(field: str) -> int:
    """Kilobytes of this process's memory: `VmRSS` now, `VmHWM` at most (`getrusage` counts a parent too)."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def finite(name: str) -> None:
    """Both arms on one model."""
    model, x = make(name)
    one, _, other = (arm(model, x) for arm in ARMS.values())
    apart = float((one - other).abs().max() / one.abs().max())
    seconds = interleaved({key: lambda arm=arm: arm(model, x) for key, arm in ARMS.items()}, rounds=5)  # type: ignore[misc]
    memory = {arm: peak(arm, name) for arm in ARMS}
    rows = [(arm, f"{seconds[arm] * 1e3:8.2f} ms  +{memory[arm]:6.1f} MB") for arm in ARMS]
    for arm in list(ARMS)[:2]:
        faster, less = seconds[arm] / seconds["apoint"], memory["apoint"] / memory[arm]
        rows.append((f"apoint to {arm}", f"{faster:.1f} times faster, {less:.3f} of the memory"))
    rows.append(("largest difference, of the largest entry", f"{apart:.0e}"))
    table(f"Empirical tangent kernel: {CASES[name]}", rows)


def analytic() -> None:
    """Infinite width: dense in both precisions, and convolutional."""
    x = torch.randn(2000, 784, generator=torch.Generator().manual_seed(0))
    images = torch.randn(10, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    dense = ntk.infinite_width(3)
    arms: dict[str, Callable[[], object]] = {
        "dense, 3 hidden layers, n = 2000, float32": lambda: dense(x),
        "dense, 3 hidden layers, n = 2000, float64": lambda: dense(x.double()),
        "pooled, 4 convolutions, 12x12, n = 10": lambda: ntk.infinite_convolution(4, readout="pool")(images),
        "flattened, 4 convolutions, 12x12, n = 10": lambda: ntk.infinite_convolution(4)(images),
    }
    rows = [(name, f"{value * 1e3:8.2f} ms") for name, value in interleaved(arms, rounds=5).items()]
    single, double = dense(x), dense(x.double())
    gaps = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(single, double, strict=True)]
    rows.append(("float32 from float64, of the largest entry", f"NTK {gaps[0]:.0e}, NNGP {gaps[1]:.0e}"))
    blocked = ntk.infinite_width(3, budget_bytes=2**20)(x.double())
    gap = max(float((a - b).abs().max()) for a, b in zip(blocked, double, strict=True))
    rows.append(("blocks of 1 MB from the usual ones, float64", f"{gap:.0e}"))
    table("Infinite width, ReLU", rows)


def neural_tangents() -> None:
    """The same dense kernel by neural-tangents, where it can be imported."""
    script = (
        "import time, jax, neural_tangents as nt; from neural_tangents import stax;"
        "x = jax.random.normal(jax.random.PRNGKey(0), (2000, 784));"
        "layers = [stax.Dense(1, 2**.5, 0.), stax.Relu()] * 3 + [stax.Dense(1, 2**.5, 0.)];"
        "f = jax.jit(lambda x: stax.serial(*layers)[2](x, None, ('ntk', 'nngp')));"
        "f(x).ntk.block_until_ready(); best = 1e9\n"
        "for _ in range(5):\n"
        "    t = time.process_time(); f(x).ntk.block_until_ready(); best = min(best, time.process_time()-t)\n"
        "print(best)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    said = (
        f"{float(done.stdout) * 1e3:8.2f} ms"
        if done.returncode == 0
        else "not timed: it cannot be imported here"
    )
    table("The same dense kernel by a peer", [("neural-tangents, jit, float32", said)])


def main() -> None:
    """Print milliseconds, megabytes and ratios."""
    torch.set_num_threads(1)
    for name in CASES:
        finite(name)
    analytic()
    neural_tangents()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure_peak(sys.argv[1], sys.argv[2])
    else:
        main()
