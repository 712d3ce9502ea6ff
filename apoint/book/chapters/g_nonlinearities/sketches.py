"""Diagrams of chapter G: an LSTM cell, a gated linear unit, feed-forward blocks."""

from __future__ import annotations

from apoint.book.picture import Arrow, Box, Diagram, Picture


def lstm_cell() -> Picture:
    """The cell with its three gates."""
    boxes = [
        Box("cell", 2.45, 1.85, "", shape="frame", width=5.1, height=3.9),
        Box("memory", -0.75, 3.2, "$c_{t-1}$", shape="text"),
        Box("keep", 0.7, 3.2, "×", shape="circle", colour=3),
        Box("add", 2.6, 3.2, "+", shape="circle", colour=3),
        Box("branch", 4.4, 3.2, "", shape="dot"),
        Box("new memory", 5.65, 3.2, "$c_t$", shape="text"),
        Box("let in", 2.6, 2.25, "×", shape="circle", colour=3),
        Box("squash", 4.4, 2.25, "tanh", colour=1),
        Box("let out", 4.4, 1.2, "×", shape="circle", colour=3),
        Box("forget", 0.7, 1.2, "σ: f", colour=2),
        Box("input", 1.6, 1.2, "σ: i", colour=2),
        Box("value", 2.6, 1.2, "tanh: g", colour=1),
        Box("output", 3.6, 1.2, "σ: o", colour=2),
        Box("hidden", -0.75, 0.2, "$h_{t-1}$", shape="text"),
        Box("x", 0.2, -0.75, "$x_t$", shape="text"),
        Box("new hidden", 5.65, 0.2, "$h_t$", shape="text"),
    ]
    rail = 0.2
    boxes += [Box(f"tap {place}", x, rail, "", shape="dot") for place, x in enumerate((0.2, 0.7, 1.6, 2.6))]
    arrows = [
        Arrow("memory", "keep"), Arrow("keep", "add"), Arrow("add", "branch"), Arrow("branch", "new memory"),
        Arrow("branch", "squash"), Arrow("squash", "let out"),
        Arrow("hidden", "tap 0"), Arrow("x", "tap 0"),
        Arrow("tap 0", "tap 1"), Arrow("tap 1", "tap 2"), Arrow("tap 2", "tap 3"),
        Arrow("tap 1", "forget"), Arrow("tap 2", "input"), Arrow("tap 3", "value"),
        Arrow("tap 3", "output", via=[(3.6, rail)]),
        Arrow("forget", "keep"), Arrow("input", "let in", via=[(1.6, 2.25)]), Arrow("value", "let in"),
        Arrow("let in", "add"), Arrow("output", "let out"),
        Arrow("let out", "new hidden", via=[(4.4, rail)]),
    ]  # fmt: skip
    description = (
        "The old hidden state and the input feed four layers: forget gate f, input gate i, value g and "
        "output gate o. The old cell state is multiplied by f, the product of i and g is added, which gives "
        "the new cell state; its tanh, multiplied by o, is the new hidden state."
    )
    diagram = Diagram("An LSTM cell", description, boxes, arrows)
    caption = (
        "The cell state $c_t$ runs along the top and is changed by a product and a sum only; the hidden "
        "state $h_t$ is what is let out of it. The four layers in the lower row have weights for $h_{t-1}$ "
        "and $x_t$; the upper tanh has none."
    )
    return Picture(caption, [diagram], "llm 2.2, LSTM")


def gated_unit() -> Picture:
    """A gated linear unit."""
    boxes = [
        Box("x", 0, 1, "$X$", shape="text"),
        Box("branch", 0.5, 1, "", shape="dot"),
        Box("gate", 1.4, 1.6, "$XW+b$", colour=1),
        Box("activation", 2.4, 1.6, "a", colour=2),
        Box("value", 1.4, 0.4, "$XV+c$", colour=1),
        Box("product", 3.1, 1, "⊗", shape="circle", colour=3),
        Box("out", 3.8, 1, "output", shape="text"),
    ]
    arrows = [
        Arrow("x", "branch"),
        Arrow("branch", "gate", via=[(0.5, 1.6)]),
        Arrow("branch", "value", via=[(0.5, 0.4)]),
        Arrow("gate", "activation"),
        Arrow("activation", "product", via=[(3.1, 1.6)]),
        Arrow("value", "product", via=[(3.1, 0.4)]),
        Arrow("product", "out"),
    ]
    description = "The input passes two linear maps; one of them passes an activation; both are multiplied."
    diagram = Diagram("A gated linear unit with activation a", description, boxes, arrows)
    caption = (
        "a is the sigmoid for GLU, the identity for the bilinear unit, ReLU, GELU or SiLU for ReGLU, GEGLU "
        "and SwiGLU."
    )
    return Picture(caption, [diagram], "llm 2.2, GLU")


def feed_forward_blocks() -> Picture:
    """The plain and the gated block of a transformer."""
    plain = Diagram(
        "Plain block, hidden size H",
        "A linear map, an activation, a linear map back.",
        [
            Box("x", 0, 0, "$x$", shape="text"),
            Box("in", 0, 1, "$W$: D → H", colour=1),
            Box("a", 0, 2, "a", colour=2),
            Box("back", 0, 3, "$U$: H → D", colour=1),
            Box("out", 0, 4, "output", shape="text"),
        ],
        [Arrow("x", "in"), Arrow("in", "a"), Arrow("a", "back"), Arrow("back", "out")],
    )
    gated = Diagram(
        "Gated block, hidden size w = 2H/3, no biases",
        "Two linear maps, one of them with an activation, multiplied, and a linear map back.",
        [
            Box("x", 0.5, 0, "$x$", shape="text"),
            Box("branch", 0.5, 0.5, "", shape="dot"),
            Box("gate", -0.1, 1.1, "$W$: D → w", colour=1),
            Box("a", -0.1, 2, "a", colour=2),
            Box("value", 1.1, 1.1, "$V$: D → w", colour=1),
            Box("product", 0.5, 2, "⊗", shape="circle", colour=3),
            Box("back", 0.5, 3, "$U$: w → D", colour=1),
            Box("out", 0.5, 4, "output", shape="text"),
        ],
        [
            Arrow("x", "branch"), Arrow("branch", "gate", via=[(-0.1, 0.5)]),
            Arrow("branch", "value", via=[(1.1, 0.5)]), Arrow("gate", "a"), Arrow("a", "product"),
            Arrow("value", "product", via=[(1.1, 2)]), Arrow("product", "back"), Arrow("back", "out"),
        ],
    )  # fmt: skip
    caption = "The two blocks have the same number of weights: $2DH=3Dw$."
    return Picture(caption, [plain, gated], "llm 2.2, FFN")
