# SPDX-License-Identifier: Apache-2.0
"""A rank in TensorFlow that looks at each kind of gradient and variable that there is, in eager code and in a graph."""

from typing import Any

import numpy as np
import tensorflow as tf

import gradlane.tensorflow as gl
from tests.frameworks import problem


def gradients(sources: dict[str, Any]) -> dict[str, Any]:
    with gl.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        scale = tf.constant(gl.rank() + 1.0)
        loss = scale * tf.reduce_sum(tf.nn.embedding_lookup(sources["table"], [gl.rank(), 2, 2]))
        for dtype in (tf.float16, tf.bfloat16, tf.float64):
            loss += tf.cast(tf.cast(scale, dtype) * sources[dtype.name], tf.float32)
        loss += scale * sources["nested"][0]
    return tape.gradient(loss, sources)


def main() -> None:
    gl.init()
    rank = gl.rank()
    sources: dict[str, Any] = {
        dtype.name: tf.Variable(tf.zeros((), dtype)) for dtype in (tf.float16, tf.bfloat16, tf.float64)
    }
    sources |= {"table": tf.Variable(tf.zeros((4, 3))), "nested": (tf.Variable(0.0), tf.Variable(tf.zeros(2)))}
    for call in (gradients, tf.function(gradients)):
        for _ in range(2):
            found = call(sources)
            for dtype in (tf.float16, tf.bfloat16, tf.float64):
                assert found[dtype.name].dtype == dtype
                assert float(found[dtype.name]) == 1.5
            # Rank 0 has 1, 0, 2 of its rows, rank 1 has 0, 2, 4.
            assert found["table"].numpy().tolist() == [[0.5] * 3, [1.0] * 3, [3.0] * 3, [0.0] * 3]
            assert float(found["nested"][0]) == 1.5
            assert found["nested"][1] is None

    def spread() -> None:
        gl.broadcast_variables(variables, root_rank=1)
        gl.broadcast_variables(variables[:1], root_rank=0)

    for call in (spread, tf.function(spread)):
        variables = [tf.Variable(tf.cast([rank, 7 * rank], kind)) for kind in ("uint32", "int64", "bool", "complex64")]
        call()
        assert [variable.numpy().tolist() for variable in variables] == [[1, 7], [1, 7], [True, True], [1, 7]]
    for call in (gl.allreduce, tf.function(gl.allreduce)):
        value = tf.constant([[rank, 3 * rank]])
        assert call(value, gl.Sum).numpy().tolist() == [[1, 3]]
        assert call(value, gl.Max).numpy().tolist() == [[1, 3]]
        assert call(tf.cast(value, tf.float32)).numpy().tolist() == [[0.5, 1.5]]
    try:
        gl.DistributedOptimizer(gl.DistributedOptimizer(tf.keras.optimizers.SGD()))
    except ValueError as error:
        assert "distributed already" in str(error)  # noqa: PT017
    else:
        raise AssertionError("it was wrapped twice")
    gl.shutdown()
    problem.tell([], [np.zeros(1)])


if __name__ == "__main__":
    main()
