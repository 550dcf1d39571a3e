"""The matrix products and convolutions in a graph, counted: their operations and their bytes."""

import math
import re
from typing import NamedTuple


class Products(NamedTuple):
    """What products cost at least.

    Attributes:
        flops: floating-point operations, two for each multiplication.
        bytes: of their operands and results, each read or written once.
    """

    flops: int
    bytes: int

    def __add__(self, other):
        return Products(self.flops + other.flops, self.bytes + other.bytes)


def count_products(graph, loop_steps=1):
    """The `Products` of one run of a graph whose shapes are known.

    Args:
        graph: `tf.Graph`, such as that of a concrete function.
        loop_steps: int, how often the body of a `tf.while_loop` runs.

    Example:
        >>> product = tf.function(tf.matmul).get_concrete_function(tf.ones((2, 3)), tf.ones((3, 4)))
        >>> count_products(product.graph)
        Products(flops=48, bytes=104)
    """
    total = Products(0, 0)
    for op in graph.get_operations():
        if op.type in _FLOPS:
            moved = sum(_bytes(tensor) for tensor in (*op.inputs, *op.outputs))
            total += Products(2 * _FLOPS[op.type](op), moved)
        for name in {"f", "body"} & set(op.node_def.attr):
            inner = _function(graph, op.get_attr(name).name)
            part = count_products(inner, loop_steps)
            times = loop_steps if name == "body" else 1
            total += Products(times * part.flops, times * part.bytes)
    return total


def _function(graph, name):
    """The graph of a function that an operation calls; one of the graphs around it knows it."""
    while name not in graph._functions:
        graph = graph.outer_graph
    return graph._functions[name].graph


def _bytes(tensor):
    return math.prod(tensor.shape) * tensor.dtype.size


def _of_matmul(op):
    left = op.inputs[0].shape
    flipped = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    return math.prod(op.outputs[0].shape) * left[-2 if flipped else -1]


def _of_einsum(op):
    letters = re.findall(r"\w+", op.get_attr("equation").decode().partition("->")[0])
    sizes = {s: n for names, x in zip(letters, op.inputs) for s, n in zip(names, x.shape)}
    return math.prod(sizes.values())


def _of_convolution(op):
    """Every number of the output is a sum over the kernel, whichever of the three is computed."""
    output = op.outputs[0] if op.type == "Conv2D" else op.inputs[2]
    kernel = op.outputs[0] if op.type == "Conv2DBackpropFilter" else op.inputs[1]
    return math.prod(output.shape) * math.prod(kernel.shape[:3])


_FLOPS = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _of_matmul),
    **dict.fromkeys(("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"), _of_convolution),
    "Einsum": _of_einsum,
}
