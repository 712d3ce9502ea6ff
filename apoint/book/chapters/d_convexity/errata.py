"""Errata of chapter D that belong to no claim: definitions, and what is promised of descent."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.claim import erratum
from apoint.book.evidence import Evidence, at_least, at_most, same
from apoint.book.running import Running
from apoint.theory import descent

GRID = np.linspace(-1.0, 1.0, 41)


@erratum(
    "D1.1",
    "Where the gradient sign stands",
    place="notes A.1.2, theorem A.1",
    quote=r"$\forall x,y\in A,f(y)\geq f(x)+\nabla\langle f(x),y-x\rangle$",
    written=r"$f(y)\ge f(x)+\nabla\langle f(x),y-x\rangle$",
    corrected=r"$f(y)\ge f(x)+\langle\nabla f(x),y-x\rangle$",
    why=r"""
    $f(x)$ is a number and has no scalar product with a vector. On the line the printed term can be read as
    $\frac{d}{dx}\left[f(x)(y-x)\right]=f'(x)(y-x)-f(x)$, and then the inequality fails for the convex
    function $x^2-1$. The proof below the theorem has the right term.
    """,
)
def gradient_sign(run: Running) -> Evidence:
    """Both right sides for f(x) = x² − 1 on a grid."""
    x, y = np.meshgrid(GRID, GRID)
    value, slope = x**2 - 1, 2 * x
    name = "least f(y) minus right side for f(x) = x² − 1"
    right = y**2 - 1 - (value + slope * (y - x))
    printed = y**2 - 1 - (value + slope * (y - x) - value)
    return Evidence([at_least(name, right.min(), -1e-12)], [at_least(name, printed.min(), -1e-12)])


@erratum(
    "D1.2",
    "When the inequality can be strict",
    place="notes A.1.1, definition A.2",
    quote="On dira que f est strictement convexe si l'inégalité est stricte",
    written=r"$f$ is strictly convex if $f(ta+(1-t)b)<tf(a)+(1-t)f(b)$ for all $a,b$ and all $t\in[0,1]$.",
    corrected=r"For all $a\ne b$ and all $t\in\,]0,1[$.",
    why="""
    With $a=b$, and at both ends of $[0,1]$, the two sides are equal whatever the function is: by the printed
    definition none is strictly convex, not even $x^4$, the example of exercise A.1.
    """,
)
def strictly_convex(run: Running) -> Evidence:
    """Places on a grid where the inequality for x⁴ is not strict."""
    a, b, t = np.meshgrid(GRID, GRID, np.linspace(0, 1, 11), indexing="ij")
    gap = t * a**4 + (1 - t) * b**4 - (t * a + (1 - t) * b) ** 4
    inner = (a != b) & (t > 0) & (t < 1)
    name = "places on a grid where the inequality for x⁴ is not strict"
    return Evidence(
        [same(f"{name}, a ≠ b and 0 < t < 1", int((gap[inner] <= 0).sum()), 0)],
        [same(f"{name}, all", int((np.abs(gap) <= 1e-15).sum()), 0)],
    )


@erratum(
    "D1.3",
    "A division by 0",
    place="notes A.1.2, proof of theorem A.1",
    quote=r"$\forall t\in[0,1],f(y)-f(x)\geq\frac{f(x+t(y-x))-f(x)}{t}$",
    written=r"The quotient is below $f(y)-f(x)$ for all $t\in[0,1]$.",
    corrected=r"For all $t\in\,]0,1]$.",
    why="At $t=0$ the quotient is $0/0$. The limit $t\\downarrow0$ of the next line is what is needed.",
)
def division_by_zero(run: Running) -> Evidence:
    """The quotient for f(x) = x², x = 0 and y = 1 on a grid of t."""
    t = np.linspace(0, 1, 101)
    with np.errstate(invalid="ignore"):
        quotient = t**2 / t
    name = "values of t at which the quotient is no number"
    return Evidence(
        [
            same(f"{name}, ]0, 1]", int(np.isnan(quotient[1:]).sum()), 0),
            at_most("largest quotient, which must not exceed f(y) − f(x)", quotient[1:].max(), 1.0),
        ],
        [same(f"{name}, [0, 1]", int(np.isnan(quotient).sum()), 0)],
    )


@erratum(
    "D2.1",
    "Infinitely many stationary points, all of them minima",
    place="notes ex. A.2, solution 3",
    quote=r"La fonction $x\mapsto\cos(x)$ contient une infinité de point x tel que $f'(x)=0$ […] mais "
    r"seulement "
    "la moitié sont des minimums",
    written=r"$\cos$ is an example of infinitely many points with $f'(x)=0$ that are all local minima.",
    corrected="A constant function is one.",
    why="""
    Every second stationary point of the cosine is a maximum, as the solution itself says. The cosine answers
    a weaker question: infinitely many minima among its stationary points.
    """,
)
def all_minima(run: Running) -> Evidence:
    """The share of stationary points that are local minima, by comparison with both neighbours."""
    places, h = np.arange(1, 41) * math.pi, 1e-3

    def share(values: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
        return float(((values <= left) & (values <= right)).mean())

    cosine = share(np.cos(places), np.cos(places - h), np.cos(places + h))
    constant = share(np.ones(40), np.ones(40), np.ones(40))
    name = "share of 40 stationary points that are minima"
    return Evidence([at_least(f"{name}, constant", constant, 1)], [at_least(f"{name}, cosine", cosine, 1)])


@erratum(
    "D2.2",
    "What convexity promises of descent",
    place="notes A.2",
    quote="elles nous garantissent qu'en suivant une descente de gradient, nous atteindrons bien un minimum "
    "global",
    written="On a convex loss gradient descent reaches a global minimum.",
    corrected="If there is a minimum and the rate is small enough, the loss tends to it.",
    why=r"""
    $e^x$ is convex and has no minimum: descent never ends. And $x^2$ with $\eta>1$ runs away. Section A.3
    adds both conditions without saying that they were missing.
    """,
)
def promise_of_convexity(run: Running) -> Evidence:
    """Descent on x² with rates 0.4 and 1.1, and on eˣ."""
    small, large = (
        descent.descend(lambda x: 2 * x, np.ones(1), rate, 100)[-1, 0] ** 2 for rate in (0.4, 1.1)
    )
    path = descent.descend(np.exp, np.zeros(1), 0.5, 4000)[:, 0]
    return Evidence(
        [at_most("x² after 100 steps with η = 0.4", small, 1e-6)],
        [
            at_most("x² after 100 steps with η = 1.1", large, 1e-6),
            at_most("way on eˣ between steps 2000 and 4000", abs(path[4000] - path[2000]), 1e-3),
        ],
    )


@erratum(
    "D3.1",
    "What comes near: the height, not the point",
    place="notes A.3.1, proposition A.3",
    quote=r"l'algorithme converge vers $x^*$ avec une erreur de $\varepsilon$",
    written=r"After $T=L^2R^2/\varepsilon^2$ steps $x$ is within $\varepsilon$ of $x^*$.",
    corrected=r"$f(x)\le f(x^*)+\varepsilon$; nothing is said about the distance to $x^*$.",
    why="On a nearly flat function the height is near its minimum long before the point is.",
)
def height_not_point(run: Running) -> Evidence:
    """Descent on |x|/1000, which is 1-Lipschitz, from x = 1 with ε = 0.1: 100 steps of 1/10,000."""
    error, slope = 0.1, 1e-3
    path = descent.descend(lambda x: slope * np.sign(x), np.ones(1), descent.lipschitz_rate(1.0, error), 100)
    last = abs(float(path[-1, 0]))
    return Evidence(
        [at_most("f(x) − f(x*) after T steps, in ε", slope * last / error, 1.0)],
        [at_most("|x − x*| after T steps, in ε", last / error, 1.0)],
    )


@erratum(
    "D3.2",
    "The best point, not the last",
    place="notes A.3.1",
    quote=r"le point que l'on obtient à la suite de la descente de gradient, on a "
    r"$f(\tilde{x})\leq f(x^*)+\varepsilon$",
    written=r"The last of $T$ points is within $\varepsilon$ of the minimum.",
    corrected=r"The best of them is.",
    why=r"""
    The proof shows that not all of the points are above $\varepsilon$. One that is below may be left again:
    here $f=\max(-m,\max_i\langle h_i,x\rangle)$ with $h_i=(a_1,\dots,a_{i-1},-1,0,\dots)$ and small
    $a_j>0$. Descent starts below $\varepsilon$, meets one $h_i$ after the other, and each step raises all
    pieces that it has not yet met.
    """,
    citation="after a construction of Harvey, Liaw, Plan and Randhawa (2019), Tight analyses for non-smooth "
    "stochastic gradient descent, COLT",
)
def best_not_last(run: Running) -> Evidence:
    """Descent for T points on a maximum of linear functions; ties go to the first of them."""
    error, low, count = 0.1, 0.06, 60
    steps = count
    for _ in range(20):  # T depends on L and R, and these on the slopes, which depend on T
        slopes = np.array([0.15 / (steps - j) if j < steps else 0.0 for j in range(count)])
        pieces = np.tril(np.tile(slopes, (count, 1)), -1) - np.eye(count)
        minimiser = np.linalg.solve(pieces, np.full(count, -low))
        lipschitz = float(np.linalg.norm(pieces, axis=1).max())
        steps = math.floor((lipschitz * float(np.linalg.norm(minimiser)) / error) ** 2)

    def height(x: np.ndarray) -> float:
        return max(-low, float((pieces @ x).max())) + low

    def gradient(x: np.ndarray) -> np.ndarray:
        along = pieces @ x
        first = int(np.argmax(along > along.max() - 1e-12))
        return np.asarray(pieces[first]) if along[first] > -low else np.zeros(count)

    path = descent.descend(gradient, np.zeros(count), descent.lipschitz_rate(lipschitz, error), steps - 1)
    heights = [height(x) / error for x in path]
    return Evidence(
        [at_most(f"f(x) − f(x*) at the best of T = {steps} points, in ε", min(heights), 1.0)],
        [at_most(f"f(x) − f(x*) at the last of T = {steps} points, in ε", heights[-1], 1.0)],
    )


@erratum(
    "D6.1",
    "A falling function after a convex one",
    place="notes ex. A.7",
    quote=r"si g est strictement décroissante, alors $g\circ f$ n'est pas une fonction convexe",
    written=r"If $g$ is strictly decreasing, $g\circ f$ is not convex.",
    corrected=r"If $g$ is strictly decreasing, $g\circ f$ need not be convex.",
    why=r"""
    The solution's example, $e^{-x^2}$, shows that it can fail. It does not always: with $f(x)=x$ and
    $g(x)=e^{-x}$ all is convex.
    """,
)
def falling_function(run: Running) -> Evidence:
    """Least second difference of e^{-f} for f(x) = x and f(x) = x²."""
    least = {name: float(np.diff(np.exp(-f), 2).min()) for name, f in (("x", GRID), ("x²", GRID**2))}
    name = "least second difference of g∘f, negative unless convex"
    return Evidence(
        [
            at_least(f"{name}, f(x) = x", least["x"], 0.0),
            at_most(f"{name}, f(x) = x²", least["x²"], -1e-6),
        ],
        [at_most(f"{name}, f(x) = x", least["x"], -1e-6)],
    )
