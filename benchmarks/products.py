"""The matrix products and convolutions in a graph: their operations and their bytes."""

import math
import re
from typing import NamedTuple


class Products(NamedTuple):
    """The least cost of products.

    Attributes:
        flops: floating-point operations, two for each multiplication.
        bytes: bytes of operands and results, each read or written once.
    """

    flops: int
    bytes: int


def count_products(graph, loop_steps=1):
    """Return the `Products` of one run of a graph with known shapes.

    Args:
        graph: `tf.Graph`, such as that of a concrete function.
        loop_steps: int, iterations of the body of a `tf.while_loop`.

    Example:
        >>> product = tf.function(tf.matmul).get_concrete_function(tf.ones((2, 3)), tf.ones((3, 4)))
        >>> count_products(product.graph)
        Products(flops=48, bytes=104)
    """
    flops = moved = 0
    for op in graph.get_operations():
        if op.type in _MULTIPLICATIONS:
            flops += 2 * _MULTIPLICATIONS[op.type](op)
            moved += sum(math.prod(x.shape) * x.dtype.size for x in (*op.inputs, *op.outputs))
        for name in {"f", "body"} & set(op.node_def.attr):
            inner = count_products(_function(graph, op.get_attr(name).name), loop_steps)
            times = loop_steps if name == "body" else 1
            flops, moved = flops + times * inner.flops, moved + times * inner.bytes
    return Products(flops, moved)


def _function(graph, name):
    """Return the graph of a function that an operation calls, from one of the outer graphs."""
    while name not in graph._functions:
        graph = graph.outer_graph
    return graph._functions[name].graph


def _of_matmul(op):
    left = op.inputs[0].shape
    flipped = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    return math.prod(op.outputs[0].shape) * left[-2 if flipped else -1]


def _of_einsum(op):
    letters = re.findall(r"\w+", op.get_attr("equation").decode().partition("->")[0])
    sizes = {s: n for names, x in zip(letters, op.inputs) for s, n in zip(names, x.shape)}
    return math.prod(sizes.values())


def _of_convolution(op):
    """Each number of the output is a sum over the kernel, in a convolution and in its gradients."""
    output = op.outputs[0] if op.type == "Conv2D" else op.inputs[2]
    kernel = op.outputs[0] if op.type == "Conv2DBackpropFilter" else op.inputs[1]
    return math.prod(output.shape) * math.prod(kernel.shape[:3])


_MULTIPLICATIONS = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _of_matmul),
    **dict.fromkeys(("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"), _of_convolution),
    "Einsum": _of_einsum,
}
