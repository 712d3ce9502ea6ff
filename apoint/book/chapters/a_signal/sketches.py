"""Diagrams of chapter A: one neuron, and a multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence

from apoint.book.picture import Arrow, Box, Diagram, Picture


def neuron() -> Picture:
    """Neuron j of layer l: a weighted sum, a bias, an activation."""
    names = ("$a_1$", "$a_k$", "$a_n$")
    weights = ("$w_{j1}$", "$w_{jk}$", "$w_{jn}$")
    inputs = [
        Box(f"in{place}", 0, 2.2 - 1.2 * place, name, shape="circle") for place, name in enumerate(names)
    ]
    boxes = [
        *inputs,
        Box("layer", 0, 2.9, "layer l − 1", shape="text"),
        Box("bias", 1.6, 2.2, "bias $b_j$", colour=2),
        Box("sum", 1.6, 1, "Σ", shape="circle", colour=1),
        Box("activation", 2.7, 1, "σ", colour=3),
        Box("out", 3.7, 1, "output $a_j$", shape="text"),
    ]
    arrows = [
        *(Arrow(one.name, "sum", weight) for one, weight in zip(inputs, weights, strict=True)),
        Arrow("bias", "sum"),
        Arrow("sum", "activation", "$z_j$"),
        Arrow("activation", "out"),
    ]
    description = (
        "The outputs of layer l-1 are multiplied by the weights of neuron j and added, with its bias, to z; "
        "the activation σ makes the neuron's output of it."
    )
    diagram = Diagram("Neuron j of layer l", description, boxes, arrows)
    return Picture("A neuron: an affine map of its inputs, then an activation.", [diagram], "notes fig. 1.1")


def perceptron(sizes: Sequence[int]) -> Picture:
    """A perceptron with all its connections.

    Args:
        sizes: Inputs, hidden units and outputs.
    """
    last, tallest = len(sizes) - 1, max(sizes)
    boxes, arrows = [], []
    for layer, size in enumerate(sizes):
        name = "$h_0=x$" if layer == 0 else f"$h_{layer}$"
        boxes.append(Box(f"name {layer}", layer, tallest * 0.6 + 0.1, name, shape="text"))
        for unit in range(size):
            y = (unit - (size - 1) / 2 + (tallest - 1) / 2) * 0.6
            colour = 0 if layer == 0 else 3 if layer == last else 1
            boxes.append(Box(f"{layer} {unit}", layer, y, "", shape="circle", colour=colour))
        if layer:
            boxes.append(Box(f"matrix {layer}", layer - 0.5, -0.7, f"$W_{layer}$", shape="text"))
            arrows += [
                Arrow(f"{layer - 1} {before}", f"{layer} {unit}", style="line")
                for before in range(sizes[layer - 1])
                for unit in range(size)
            ]
    layers = ", ".join(map(str, sizes))
    description = f"Layers of {layers} neurons, each joined to all of the layer before it."
    diagram = Diagram(f"A perceptron of depth {last}", description, boxes, arrows)
    caption = (
        "The network of the check: circles in a column are the coordinates of $h_i$, lines are the entries "
        "of $W_i$. Biases are not drawn."
    )
    return Picture(caption, [diagram], "theory fig. 1")


def two_neurons() -> Picture:
    """The network with one hidden layer of two rectifiers."""
    boxes = [
        Box("x", 0, 1, "$x$", shape="circle"),
        Box("first", 1.4, 1.7, "$\\max(0,z_1)$", colour=1),
        Box("second", 1.4, 0.3, "$\\max(0,z_2)$", colour=1),
        Box("sum", 2.7, 1, "Σ", shape="circle", colour=3),
        Box("y", 3.5, 1, "$\\hat y$", shape="text"),
    ]
    arrows = [
        Arrow("x", "first", "$w_1^1$"),
        Arrow("x", "second", "$w_2^1$"),
        Arrow("first", "sum", "$w_{11}^2$"),
        Arrow("second", "sum", "$w_{12}^2$"),
        Arrow("sum", "y"),
    ]
    description = "One input, two hidden neurons with ReLU, one linear output; four weights, no biases."
    diagram = Diagram("One hidden layer of two neurons", description, boxes, arrows)
    return Picture("The network whose loss has four weights.", [diagram], "notes fig. A.5")
