"""Errata of chapter A that belong to no claim: indices and conditions of the first pages."""

from __future__ import annotations

import torch
from torch import nn

from apoint.book.claim import erratum
from apoint.book.evidence import Evidence, at_most, close
from apoint.book.running import Running


@erratum(
    "A2.1",
    "The chain rule for the bias",
    place="notes ex. 1.1, solution 1",
    quote=r"$\frac{\partial C}{\partial b_j^l}=\frac{\partial C}{\partial b_j^l}"
    r"\frac{\partial b_j^l}{\partial z_j^l}$ mais $\frac{\partial b_j^l}{\partial z_j^l}=1$",
    written=r"$\frac{\partial C}{\partial b}=\frac{\partial C}{\partial b}\,\frac{\partial b}{\partial z}$",
    corrected=r"$\frac{\partial C}{\partial b}=\frac{\partial C}{\partial z}\,\frac{\partial z}{\partial b}$",
    why=r"""
    The printed line is no chain rule: it multiplies the derivative that is asked for by a second one, which
    must then be 1. It happens to be 1 because the bias enters $z$ with the factor 1. With $z=wa+2b$ the rule
    still holds and the printed line is off by the factor 2.
    """,
)
def chain_rule(run: Running) -> Evidence:
    """Derivatives of C = tanh(z)² with z = wa + 2b, by automatic differentiation."""
    factor = 2.0
    bias = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    z = 0.7 * 0.5 + factor * bias
    cost = torch.tanh(z) ** 2
    by_z, by_bias = (float(torch.autograd.grad(cost, one, retain_graph=True)[0]) for one in (z, bias))
    written = [close("right side over left side, for z = wa + 2b", by_bias / factor / by_bias, 1.0)]
    return Evidence(
        [close("right side over left side, for z = wa + 2b", by_z * factor / by_bias, 1.0, relative=1e-12)],
        written,
    )


@erratum(
    "A2.2",
    "How many terms a neuron sums",
    place="notes ex. 1.1, solution 3",
    quote=r"$z_j^l=\sum_{k=1}^{N_l}w_{j,k}^la_k^{l-1}+b_j^l$ […] "
    r"$z_k^{l+1}=\sum_{i=1}^{N_{l+1}}w_{k,i}^{l+1}f(z_i^l)+b_k^{l+1}$",
    written="The sum in a neuron of layer $l$ has as many terms as layer $l$ has neurons.",
    corrected="It has as many terms as layer $l-1$ has neurons.",
    why=r"""
    A neuron sums over its inputs, which are the outputs of the layer before: $w^l_{j,k}$ has $k\le N_{l-1}$,
    as the same exercise says in its first question.
    """,
)
def terms_of_a_neuron(run: Running) -> Evidence:
    """A layer of 3 neurons with 5 inputs, summed over 3 and over 5 terms."""
    layer = nn.Linear(5, 3, dtype=torch.float64)
    with torch.no_grad():
        for values in layer.parameters():
            values.copy_(torch.randn(values.shape, generator=run.generator(), dtype=torch.float64))
        a = torch.randn(5, generator=run.generator("input"), dtype=torch.float64)
        off = {
            terms: float((layer.weight[:, :terms] @ a[:terms] + layer.bias - layer(a)).abs().max())
            for terms in (3, 5)
        }
    name = "largest error of z over the neurons"
    return Evidence(
        [at_most(f"{name}, 5 terms", off[5], 1e-12)], [at_most(f"{name}, 3 terms", off[3], 1e-12)]
    )


@erratum(
    "A3.1",
    "The sign of the cross-entropy's terms",
    place="llm 1.1",
    quote=r"$\mathcal{L}(\theta)=-\frac{1}{n}\sum_{i=1}^ny_i\ln(\hat{y}_i)+(1-y_i)\ln(1-\hat{y}_i)"
    r"=-\frac{1}{n}\sum_{i=1}^n\ell_i(\theta)$",
    written=r"$\mathcal{L}=-\frac1n\sum_i\ell_i$ for classification, and the step is "
    r"$\theta_{t+1}=\theta_t-\eta_t\nabla\ell_{i_t}(\theta_t)$.",
    corrected=r"$\ell_i=-\left[y_i\ln\hat y_i+(1-y_i)\ln(1-\hat y_i)\right]$ and "
    r"$\mathcal{L}=\frac1n\sum_i\ell_i$, as for regression.",
    why=r"""
    With the sign outside the sum, $\nabla\ell_i$ is an unbiased estimate of $-\nabla\mathcal{L}$: the printed
    step climbs, and the second point of the course's hypothesis 1 does not hold. The brackets around the two
    terms are missing, too.
    """,
)
def sign_of_the_terms(run: Running) -> Evidence:
    """Logistic regression by 500 steps on single examples, with either sign of ℓ."""
    random = run.random()
    x = random.standard_normal((100, 2))
    y = (x @ [1.0, -2.0] + random.standard_normal(100) > 0).astype(float)
    order = random.integers(0, 100, 500)

    def loss(theta: torch.Tensor) -> float:
        scores = torch.from_numpy(x) @ theta
        return float(nn.functional.binary_cross_entropy_with_logits(scores, torch.from_numpy(y)))

    ratios = {}
    for sign in (1, -1):
        theta = torch.zeros(2, dtype=torch.float64)
        before = loss(theta)
        for index in order:
            example = torch.from_numpy(x[index])
            slope = y[index] - torch.sigmoid(example @ theta)  # of y ln ŷ + (1 − y) ln(1 − ŷ)
            theta = theta - 0.05 * sign * slope * example
        ratios[sign] = loss(theta) / before
    name = "loss after 500 steps over that before"
    return Evidence([at_most(name, ratios[-1], 0.9)], [at_most(name, ratios[1], 1.0)])


@erratum(
    "A6.1",
    "Which layers the product runs over",
    place="notes 1.1.2",
    quote=r"$\mathbb{V}[z_k^l]=n_{\text{input}}\mathbb{V}[w_{k,j}^l]\mathbb{V}[z_k^{l-1}]"
    r"=\prod_{i=1}^{l-1}(n_{\text{input}}\mathbb{V}[w_{k,j}^i])\mathbb{V}[z_k^1]$",
    written=r"$\mathbb{V}[z^l]=\prod_{i=1}^{l-1}\left(n_i\mathbb{V}[w^i]\right)\mathbb{V}[z^1]$",
    corrected=r"$\mathbb{V}[z^l]=\prod_{i=2}^{l}\left(n_i\mathbb{V}[w^i]\right)\mathbb{V}[z^1]$",
    why=r"""
    The recursion of the same line multiplies by the factor of layer $l$ and goes down to layer 2; that of
    layer 1 is already in $\mathbb{V}[z^1]$. The condition drawn from it, all factors equal to 1, is not
    affected.
    """,
)
def layers_of_the_product(run: Running) -> Evidence:
    """A linear network of 4 layers whose factors n·V[w] are 2, 1/2, 3 and 1/4."""
    width, factors = 500, (2.0, 0.5, 3.0, 0.25)
    draw = run.generator()
    values, squares = torch.randn(50, width, generator=draw), []
    for factor in factors:
        weights = torch.randn(width, width, generator=draw) * (factor / width) ** 0.5
        values = values @ weights.T
        squares.append(float((values**2).mean()))
    measured = squares[-1] / squares[0]
    printed = factors[0] * factors[1] * factors[2]
    right = factors[1] * factors[2] * factors[3]
    tolerance = "a network of 500 units has an error of a few per cent"
    return Evidence(
        [close("V[z⁴]/V[z¹], measured over formula", measured / right, 1.0, absolute=0.3, remark=tolerance)],
        [close("V[z⁴]/V[z¹], measured over formula", measured / printed, 1.0, absolute=0.3)],
    )


@erratum(
    "A7.1",
    "Which layer the way back counts",
    place="notes 1.1.2",
    quote=r"sauf que cette fois $n_{\text{input}}$ représente le nombre de neurones de la couche inférieure",
    written="On the way back $n$ is the number of neurons of the layer below.",
    corrected="It is the number of neurons of the layer that follows: the fan out.",
    why=r"""
    An error comes back to a neuron from all neurons that it feeds. The number of neurons below is the fan in,
    which the way forward already has; there would then be nothing to average for Glorot.
    """,
)
def way_back(run: Running) -> Evidence:
    """Errors through a layer from 100 to 400 neurons, with V[w] = 1/100 and 1/400."""
    below, above, draw = 100, 400, run.generator()
    errors = torch.randn(500, above, generator=draw)
    back = {
        n: float((errors @ (torch.randn(above, below, generator=draw) / n**0.5)).pow(2).mean())
        for n in (below, above)
    }
    name = "variance of the errors below over that above"
    return Evidence(
        [close(f"{name}, V[w] = 1/{above}", back[above], 1.0, absolute=0.1)],
        [close(f"{name}, V[w] = 1/{below}", back[below], 1.0, absolute=0.1)],
    )


@erratum(
    "A7.2",
    "What Glorot averages",
    place="notes 1.1.2",
    quote="les auteurs proposent de prendre la moyenne entre les deux conditions",
    written=r"$\mathbb{V}[w]$ is the mean of $1/n_{\text{in}}$ and $1/n_{\text{out}}$.",
    corrected=r"$\mathbb{V}[w]=2/(n_{\text{in}}+n_{\text{out}})$: the numbers of neurons are averaged.",
    why=r"""
    The conditions are given as variances, and the mean of the two variances is larger than Glorot's, unless
    both layers have the same width. The solution of exercise 1.2 has the right formula.
    """,
    citation="Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward neural "
    "networks",
)
def glorot_mean(run: Running) -> Evidence:
    """The two means for 100 and 400 neurons, against the weights that PyTorch draws."""
    below, above = 100, 400
    drawn = nn.init.xavier_normal_(torch.empty(above, below), generator=run.generator())
    variance = float(drawn.pow(2).mean())
    name = "variance drawn by PyTorch over the formula"
    return Evidence(
        [close(name, variance / (2 / (below + above)), 1.0, absolute=0.05)],
        [close(name, variance / ((1 / below + 1 / above) / 2), 1.0, absolute=0.05)],
    )
