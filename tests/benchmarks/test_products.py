"""The counts of products equal the formulas of linear algebra."""

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.products import Products, count_products

pytestmark = pytest.mark.tf_only

size = st.integers(1, 9)


def counted(function, *shapes, loop_steps=1, **options):
    inputs = [tf.TensorSpec(shape) for shape in shapes]
    graph = tf.function(function, **options).get_concrete_function(*inputs).graph
    return count_products(graph, loop_steps)


@settings(max_examples=10)
@given(b=size, n=size, m=size, k=size, flip=st.booleans())
def test_matrix_product_has_its_flops_and_bytes(b, n, m, k, flip):
    right = (b, k, m) if flip else (b, m, k)
    found = counted(lambda x, y: tf.matmul(x, y, transpose_b=flip), (b, n, m), right)
    assert found == Products(2 * b * n * m * k, 4 * b * (n * m + m * k + n * k))
    assert found == counted(lambda x, y: tf.einsum("bnm,bmk->bnk", x, y), (b, n, m), (b, m, k))


@settings(max_examples=5)
@given(n=st.integers(3, 9), features=size, filters=size)
def test_convolution_and_its_gradients_have_the_same_flops(n, features, filters):
    def gradients(x, kernel):
        return tf.gradients(tf.nn.conv2d(x, kernel, 1, "VALID") ** 2, [x, kernel])

    shapes = (2, n, n, features), (3, 3, features, filters)
    one = counted(lambda x, kernel: tf.nn.conv2d(x, kernel, 1, "VALID"), *shapes)
    assert one.flops == 2 * 2 * (n - 2) ** 2 * filters * 9 * features
    assert counted(gradients, *shapes).flops == 3 * one.flops


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}])
def test_functions_and_loops_are_counted(options):
    square = tf.function(lambda x: x @ x)

    def power(x):
        return tf.while_loop(lambda i, x: i < 7, lambda i, x: (i + 1, square(x)), (0, x))[1]

    def gradient(x):
        return tf.gradients(power(x), x)

    one = counted(square, (4, 4), **options)
    assert one.flops == 2 * 4**3
    assert counted(power, (4, 4), loop_steps=7, **options).flops == 7 * one.flops
    assert counted(gradient, (4, 4), loop_steps=7, **options).flops == 3 * 7 * one.flops
