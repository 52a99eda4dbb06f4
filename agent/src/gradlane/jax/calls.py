# SPDX-License-Identifier: Apache-2.0
"""Functions on numpy arrays as parts of what JAX runs, in the order of the program."""

import logging
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from gradlane.jax import handler
from gradlane.jax.library import Primitive, io_callback, jax, mlir

log = logging.getLogger("gradlane")


def call(
    name: str,
    owner: Any,
    function: handler.Function,
    results: Sequence[Any],
    arrays: Sequence[Any],
    direct: handler.Direct | None = None,
) -> list[Any]:
    """The function on the arrays' values: at once, or each time that what is being traced is run.

    `results`: their shapes and types; `name`: of what it does with arrays of these, the same in all processes;
    `direct`: does the same with what XLA itself has, if it is XLA that calls. All
    calls of a process happen in the program's order, whichever of its jits they are in: no two ranks wait for one
    another. Raises what the function does; where it was traced, JAX raises a JaxRuntimeError that quotes it.
    """
    handler.name(name, owner, function, direct)
    # Where a function is traced, zeros are, too; so are calls on nothing but constants.
    if not any(isinstance(array, jax.core.Tracer) for array in (jax.numpy.zeros(()), *arrays)):
        jax.effects_barrier()
        return [jax.numpy.asarray(value) for value in _on_host(name, results, arrays)]
    why = refusal()
    if why is None and all(handler.has(it.dtype) for it in (*arrays, *results)):
        return _primitive().bind(*arrays, name=name, results=tuple(results))
    _say(why or "it has elements of a rare type")
    return _by_callback(*arrays, name=name, results=results)


@cache
def refusal() -> str | None:
    """Why the handler can't be called, by this version of JAX: None if it can."""
    try:
        handler.register()
        jax.jit(lambda: _primitive().bind(name="trial", results=())).trace().lower(lowering_platforms=("cpu",))
    except Exception as error:  # noqa: BLE001  # whatever a version of JAX does not have
        return f"{type(error).__name__}: {error}"
    return None


def _on_host(name: str, results: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    filled = [np.empty(it.shape, it.dtype) for it in results]
    handler.run(name, [np.asarray(array) for array in arrays], filled)
    return filled


def _by_callback(*arrays: Any, name: str, results: Sequence[Any]) -> Any:
    """Within what is traced, on any device: everything is copied once more in each direction."""

    def on_host(*values: Any) -> list[Any]:
        return _on_host(name, results, values)

    return io_callback(on_host, list(results), *arrays, ordered=True)


@cache
def _say(why: str) -> None:
    log.warning("a call from a program of JAX goes through its io_callback, which is slower: %s", why)


@cache
def _effect() -> Any:
    """That of an io_callback, so that all calls have one order, and happen wherever these may."""
    traced = jax.make_jaxpr(lambda: io_callback(lambda: None, None, ordered=True))()
    [effect] = traced.effects
    return effect


@cache
def _token() -> Any:
    """JAX's type of what orders calls."""
    return jax.make_jaxpr(jax.lax.create_token)().out_avals[0]


@cache
def _primitive() -> Any:
    primitive = Primitive("gradlane")
    primitive.multiple_results = True

    def run(*arrays: Any, **options: Any) -> Any:  # of what is evaluated without being compiled
        return jax.jit(partial(primitive.bind, **options))(*arrays)

    def shapes(*_: Any, results: Sequence[Any], **__: Any) -> Any:
        return [jax.core.ShapedArray(it.shape, it.dtype) for it in results], {_effect()}

    primitive.def_impl(run)
    primitive.def_effectful_abstract_eval(shapes)
    mlir.register_lowering(primitive, _lower_to_callback)
    mlir.register_lowering(primitive, _lower, platform="cpu")
    return primitive


def _lower(context: Any, *operands: Any, **options: Any) -> Any:
    """On the CPU, to a call of the handler that takes a token and gives one back."""
    devices = context.module_context.axis_context
    if not isinstance(devices, mlir.ShardingContext) or devices.num_devices != 1:
        return _lower_to_callback(context, *operands, **options)
    rule = jax.ffi.ffi_lowering(handler.TARGET, has_side_effect=True)
    ordered = context.replace(avals_in=(_token(), *context.avals_in), avals_out=(_token(), *context.avals_out))
    token, *values = rule(ordered, context.tokens_in.get(_effect()), *operands, name=options["name"])
    context.set_tokens_out(context.tokens_in.update_tokens(mlir.TokenSet({_effect(): token})))
    return values


def _lower_to_callback(context: Any, *operands: Any, **options: Any) -> Any:
    _say("it is not for one CPU device")
    return mlir.lower_fun(_by_callback)(context, *operands, **options)
