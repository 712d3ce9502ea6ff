"""The graph of a backward pass: which operations there are, and which of them take which parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import Node


@dataclass
class Graph:
    """What a gradient passes through in the backward pass.

    Attributes:
        nodes: Every operation.
        consumers: For each parameter, by id, the operations that take it directly.
        is_open: Whether the whole graph is visible; a function written in Python may hide parameters inside.
    """

    nodes: set[Node] = field(default_factory=set)
    consumers: dict[int, list[Node]] = field(default_factory=dict)
    is_open: bool = True


def graph_of(result: Tensor) -> Graph:
    """The graph behind a tensor."""
    graph, waiting = Graph(), [result.grad_fn] if result.grad_fn is not None else []
    while waiting:
        node = waiting.pop()
        if node in graph.nodes:
            continue
        graph.nodes.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            graph.is_open = False
        for following, _ in node.next_functions:
            if following is None:
                continue
            variable = getattr(following, "variable", None)
            if variable is not None:
                graph.consumers.setdefault(id(variable), []).append(node)
            waiting.append(following)
    return graph


def first_used(graph: Graph, parameter: Tensor) -> float:
    """When a parameter was first used, as a sequence number that gives only the order."""
    times = [node._sequence_nr() for node in graph.consumers.get(id(parameter), ())]
    return min(times, default=math.inf)
