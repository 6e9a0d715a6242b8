"""Vectors of `WIDTH` numbers as values inside numba functions: one CPU instruction for all of them.

LLVM turns some loops over arrays into vector instructions, but only where it can prove that no two
arrays overlap, and it leaves a scalar remainder. The recurrence is short enough that both cost more
than the arithmetic, so its kernels name the vectors themselves:

    store(states, s, maximum(load(states, s - 1) + load(scores, c), load(states, s)))

Numba does not notice changes of this file when it looks into its cache: touch `max_plus.py` too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numba.extending
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import models, overload, register_model

from sopa_plugin.wfsa.kernels.plan import WIDTH

# An intrinsic is called without the typing context that it is defined with.
intrinsic: Any = numba.extending.intrinsic


class Vector(types.Type):
    """`WIDTH` numbers of one type, or (`types.boolean`) a mask over them."""

    def __init__(self, dtype: types.Type) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype}, {WIDTH})")


_ELEMENTS: dict[Any, Any] = {
    types.float32: ir.FloatType(),
    types.int32: ir.IntType(32),
    types.uint8: ir.IntType(8),
    types.boolean: ir.IntType(1),
}


def _llvm(dtype: types.Type) -> ir.VectorType:
    return ir.VectorType(_ELEMENTS[dtype], WIDTH)


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A vector is held as LLVM's own vector type."""

    def __init__(self, data_model_manager: Any, vector: Vector) -> None:
        super().__init__(data_model_manager, vector, _llvm(vector.dtype))


@intrinsic
def address(typing: Any, array: Any, offset: Any) -> Any:
    """Pointer to element `offset` of a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.gep(array.data, [arguments[1]])

    return types.CPointer(array.dtype)(array, types.int64), generate


@intrinsic
def hold(typing: Any, array: Any) -> Any:
    """Keeps an array that is used through its `address` only: numba frees it after its last use."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_dummy_value()

    return types.void(array), generate


@intrinsic
def load(typing: Any, pointer: Any, offset: Any) -> Any:
    """The vector that starts `offset` elements after `pointer`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(arguments[0], [arguments[1]])
        vector = _llvm(signature.return_type.dtype)
        return builder.load(builder.bitcast(place, vector.as_pointer()), align=1)

    return Vector(pointer.dtype)(pointer, types.int64), generate


@intrinsic
def store(typing: Any, pointer: Any, offset: Any, vector: Any) -> Any:
    """Writes `vector` to the elements from `offset` after `pointer` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(arguments[0], [arguments[1]])
        place = builder.bitcast(place, arguments[2].type.as_pointer())
        builder.store(arguments[2], place, align=1)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vector), generate


@intrinsic
def splat(typing: Any, number: Any) -> Any:
    """The vector of `WIDTH` times `number`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = _llvm(signature.return_type.dtype)
        zero = ir.Constant(ir.IntType(32), 0)
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[0], zero)
        mask = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)

    return Vector(number)(number), generate


@intrinsic
def select(typing: Any, mask: Any, chosen: Any, other: Any) -> Any:
    """Number by number `chosen` where `mask` is set, else `other`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return chosen(mask, chosen, other), generate


@intrinsic
def maximum(typing: Any, alternative: Any, kept: Any) -> Any:
    """Number by number `alternative` where it is strictly greater, or NaN, else `kept`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        alternative, kept = arguments
        greater = builder.fcmp_ordered(">", alternative, kept)
        missing = builder.fcmp_unordered("uno", alternative, alternative)
        return builder.select(builder.or_(greater, missing), alternative, kept)

    return kept(alternative, kept), generate


@intrinsic
def flag(typing: Any, mask: Any, bit: Any) -> Any:
    """Bytes with `bit` (a literal) set where `mask` is, else 0."""
    if not isinstance(bit, types.IntegerLiteral):
        return None
    value = bit.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = _llvm(types.uint8)
        set_, clear = (ir.Constant(vector, [number] * WIDTH) for number in (value, 0))
        return builder.select(arguments[0], set_, clear)

    return Vector(types.uint8)(mask, bit), generate


@intrinsic
def power_of_two(typing: Any, exponent: Any) -> Any:
    """2 to the power of whole numbers, float32, from -126 to 127."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = _llvm(types.int32)
        bias, bits = (ir.Constant(vector, [number] * WIDTH) for number in (127, 23))
        whole = builder.fptosi(arguments[0], vector)
        return builder.bitcast(builder.shl(builder.add(whole, bias), bits), arguments[0].type)

    return exponent(exponent), generate


@intrinsic
def truncated(typing: Any, numbers: Any) -> Any:
    """Whole numbers, float32: those next to `numbers` towards zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sitofp(builder.fptosi(arguments[0], _llvm(types.int32)), arguments[0].type)

    return numbers(numbers), generate


def _define(symbol: Any, instruction: Callable[[Any, Any, Any], Any], mask: bool = False) -> None:
    """Gives vectors an operator, beside other vectors and beside numbers."""

    @intrinsic
    def compute(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return instruction(builder, *arguments)

        return (Vector(types.boolean) if mask else a)(a, b), generate

    @overload(symbol)
    def operate(a, b):  # type: ignore[no-untyped-def]  # numba compares signatures, types too
        if isinstance(a, Vector) and isinstance(b, Vector):
            return lambda a, b: compute(a, b)
        if isinstance(a, Vector) and isinstance(b, types.Float):
            return lambda a, b: compute(a, splat(b))
        if isinstance(a, types.Float) and isinstance(b, Vector):
            return lambda a, b: compute(splat(a), b)
        return None


# "contract" lets a product be fused with a sum.
_define(operator.add, lambda builder, a, b: builder.fadd(a, b, flags=("contract",)))
_define(operator.sub, lambda builder, a, b: builder.fsub(a, b, flags=("contract",)))
_define(operator.mul, lambda builder, a, b: builder.fmul(a, b, flags=("contract",)))
_define(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))
_define(operator.or_, lambda builder, a, b: builder.or_(a, b))
_define(operator.gt, lambda builder, a, b: builder.fcmp_ordered(">", a, b), mask=True)
_define(operator.eq, lambda builder, a, b: builder.fcmp_ordered("==", a, b), mask=True)
