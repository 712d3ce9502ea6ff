"""Open-ended decays: inverse powers of time, as used for the first transformers.

They do not depend on the length of training, as long as their own lengths are given in steps.
"""

from __future__ import annotations

import math

from apoint.errors import UsageError
from apoint.schedules.base import Length, Schedule, register_schedule, share_of_training, some_of_training
from apoint.schedules.phases import blend
from apoint.settings import Count, Positive, Real
from apoint.units import Horizon


@register_schedule("inverse-root", course="F3 F5")
def inverse_root(
    horizon: Horizon | None = None,
    *,
    peak: Real = 1.0,
    start: Real = 0.0,
    warmup: Length = "5%",
    timescale: Length | None = None,
    power: Positive = 0.5,
) -> Schedule:
    """Warm-up, then a decay with the inverse square root of time.

    For open-ended training. At progress p, lengths as shares:

        decayed = peak * (1 + (p - warmup) / timescale) ** -power
        v = start + (peak - start) * p / warmup if p < warmup else decayed

    With `timescale` equal to `warmup`, its default, the decay is peak · sqrt(warmup / p), that of the
    first transformer. With a `power` above 1/2 and up to 1 the steps have a divergent sum and summable
    squares, as the convergence of stochastic gradient descent requires; the square root misses this.

    Args:
        peak: The value at the end of the warm-up.
        start: The value at the beginning of the warm-up.
        warmup: The length of the warm-up.
        timescale: The time over which the decay sets in; by default, the length of the warm-up.
        power: The exponent of the decay.

    Reference:
        Vaswani et al., Attention is all you need, 2017, eq. 3; Zhai et al., Scaling vision transformers,
        2022, for the time scale; Robbins and Monro, A stochastic approximation method, 1951.
    """
    rise = share_of_training(warmup, horizon, "warmup")
    if rise > 0 and start > peak:
        raise UsageError(f"start must be at most peak, got start {start} and peak {peak}")
    if timescale is None and rise == 0:
        raise UsageError("timescale is needed when there is no warm-up; write for example timescale '5%'")
    scale = rise if timescale is None else some_of_training(timescale, horizon, "timescale")

    def curve(progress: float) -> float:
        if progress < rise:
            return blend(start, peak, progress / rise)
        decayed: float = peak * (1 + (progress - rise) / scale) ** -power
        return decayed

    return Schedule(curve)


@register_schedule("noam", course="F5")
def noam(
    horizon: Horizon | None = None,
    *,
    model_dim: Count = 512,
    warmup: Length = "4%",
    factor: Positive = 1.0,
) -> Schedule:
    """The schedule of the original transformer, whose height depends on the model's width.

    It rises linearly and decays with the inverse square root of t, which counts steps from 1.
    At progress p of `total_steps`, with the warm-up in steps:

        t = p * total_steps + 1
        v = factor * model_dim ** -0.5 * min(t ** -0.5, t * warmup_steps ** -1.5)

    The peak, factor / sqrt(model_dim · warmup_steps), is reached where t equals the warm-up: a shorter
    warm-up is also a higher one. To set the two separately, use `inverse-root`. Without a warm-up only the
    first term of the minimum remains. Some texts count t in epochs; the paper counts steps.

    Args:
        model_dim: The width d of the model.
        warmup: The length of the warm-up; the paper's 4000 of 100 000 steps are the default 4%.
        factor: A factor on all values.

    Reference:
        Vaswani et al., Attention is all you need, 2017, eq. 3.
    """
    if horizon is None:
        raise UsageError(
            "its values depend on the number of steps; pass horizon=Horizon(total_steps=…, steps_per_epoch=…)"
        )
    total_steps = horizon.total_steps
    warmup_steps = share_of_training(warmup, horizon, "warmup") * total_steps
    height = factor / math.sqrt(model_dim)

    def curve(progress: float) -> float:
        t = progress * total_steps + 1
        # The smaller of the two terms: they meet where t is the warm-up.
        return height * t / warmup_steps**1.5 if t < warmup_steps else height / math.sqrt(t)

    return Schedule(curve)
