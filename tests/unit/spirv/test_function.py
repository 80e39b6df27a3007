"""Tests of functions and blocks: instructions that a block refuses, phis and variables, line information."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vkjit.errors import InternalError
from vkjit.spirv import FunctionWriter, Module, OpenBlock
from vkjit.spirv.disassemble import disassemble


@pytest.fixture
def m() -> Module:
    return Module()


@pytest.fixture
def f(m: Module) -> FunctionWriter:
    writer = m.function(m.type_void(), name="f")
    m.entry_point(writer)
    return writer


def body(m: Module) -> list[str]:
    """Return the lines of the functions, without result ids."""
    lines = disassemble(m.to_bytes(), header=False, indent=False).splitlines()
    start = next(index for index, line in enumerate(lines) if "OpFunction " in line)
    return [line.split(" = ")[-1] for line in lines[start:]]


LATE: dict[str, Callable[[Module, OpenBlock], object]] = {
    "emit": lambda m, b: b.emit("OpIAdd", m.type_int(32), m.constant(m.type_int(32), 1), m.constant(m.type_int(32), 1)),
    "emit_void": lambda m, b: b.emit_void("OpMemoryBarrier", m.scope("Workgroup"), m.semantics("None")),
    "phi": lambda m, b: b.phi(m.type_int(32)),
    "merge": lambda _, b: b.selection_merge(b.label),
    "branch": lambda _, b: b.branch(b.label),
    "return": lambda _, b: b.return_(),
}


@pytest.mark.parametrize("what", LATE)
def test_a_closed_block_takes_nothing(m: Module, f: FunctionWriter, what: str) -> None:
    block = f.block()
    assert block.return_().label == block.label
    with pytest.raises(InternalError, match="after the terminator"):
        LATE[what](m, block)


def test_an_open_block_is_an_error(m: Module, f: FunctionWriter) -> None:
    f.block()
    with pytest.raises(InternalError, match="has no terminator"):
        m.to_words()


def test_a_function_without_blocks_is_an_error(m: Module, f: FunctionWriter) -> None:
    with pytest.raises(InternalError, match="has no block"):
        m.to_words()


def test_a_missing_block_is_an_error(m: Module, f: FunctionWriter) -> None:
    target = f.label()
    f.block().branch(target)
    with pytest.raises(InternalError, match=rf"never opened: \[{target}\]"):
        m.to_words()


def test_a_missing_merge_block_is_an_error(m: Module, f: FunctionWriter) -> None:
    block, target = f.block(), f.label()
    block.selection_merge(f.label())
    block.branch_conditional(m.constant(m.type_bool(), True), target, target)
    f.block(target).return_()
    with pytest.raises(InternalError, match="never opened"):
        m.to_words()


def test_a_label_opened_twice_is_an_error(m: Module, f: FunctionWriter) -> None:
    block = f.block()
    block.branch(block.label)
    f.block(block.label).return_()
    with pytest.raises(InternalError, match="opens a label twice"):
        m.to_words()


def test_a_merge_stands_right_before_its_branch(m: Module, f: FunctionWriter) -> None:
    block, merge = f.block(), f.label()
    block.selection_merge(merge)
    with pytest.raises(InternalError, match="between a merge and its branch"):
        block.emit_void("OpMemoryBarrier", m.scope("Workgroup"), m.semantics("None"))
    with pytest.raises(InternalError, match="takes one of"):
        block.branch(merge)


def test_a_loop_merge_takes_no_switch(m: Module, f: FunctionWriter) -> None:
    block = f.block()
    block.loop_merge(f.label(), f.label())
    with pytest.raises(InternalError, match="not OpSwitch"):
        block.switch(m.constant(m.type_int(32), 1), f.label(), [])


@pytest.mark.parametrize("parents", ["none", "foreign", "twice"])
def test_a_phi_names_each_predecessor_once(m: Module, f: FunctionWriter, parents: str) -> None:
    u32 = m.type_int(32)
    one = m.constant(u32, 1)
    block, target = f.block(), f.label()
    block.branch(target)
    end = f.block(target)
    phi = end.phi(u32)
    for parent in {"none": [], "foreign": [target], "twice": [block.label] * 2}[parents]:
        phi.add(one, parent)
    end.return_()
    with pytest.raises(InternalError, match="predecessors"):
        m.to_words()


def test_both_ways_to_one_block_are_one_predecessor(m: Module, f: FunctionWriter) -> None:
    u32 = m.type_int(32)
    block, target = f.block(), f.label()
    block.selection_merge(target)
    block.branch_conditional(m.constant(m.type_bool(), True), target, target)
    end = f.block(target)
    end.phi(u32, m.constant(u32, 7), block.label)
    end.return_()
    assert "OpPhi %uint %uint_7 %" in "\n".join(body(m))


def test_variables_move_to_the_first_block(m: Module, f: FunctionWriter) -> None:
    f32 = m.type_float(32)
    first, second = f.block(), f.label()
    first.branch(second)
    block = f.block(second)
    variable = f.variable(f32, "late", m.constant(f32, 2.0))
    block.emit("OpLoad", f32, variable)
    block.return_()
    assert body(m)[1:4] == ["OpLabel", "OpVariable %_ptr_Function_float Function %float_2", f"OpBranch %{second}"]


def test_equal_lines_are_written_once(m: Module, f: FunctionWriter) -> None:
    u32 = m.type_int(32)
    one = m.constant(u32, 1)
    block = f.block()
    block.line("k.py", 1)
    block.line("k.py", 2, 4)
    block.emit("OpIAdd", u32, one, one)
    block.line("k.py", 2, 4)
    block.emit("OpISub", u32, one, one)
    block.line("k.py", 3)
    block.emit("OpIMul", u32, one, one)
    block.no_line()
    block.no_line()
    block.return_()
    opnames = [line.split()[0] for line in body(m)[2:-1]]
    assert opnames == ["OpLine", "OpIAdd", "OpISub", "OpLine", "OpIMul", "OpNoLine", "OpReturn"]
    assert sum("OpString" in line for line in disassemble(m.to_bytes()).splitlines()) == 1


def test_a_line_is_written_again_in_the_next_block(m: Module, f: FunctionWriter) -> None:
    block, target = f.block(), f.label()
    block.line("k.py", 1)
    block.branch(target)
    end = f.block(target)
    end.line("k.py", 1)
    end.return_()
    assert [line.split()[0] for line in body(m)].count("OpLine") == 2


def test_emit_wants_a_result_and_emit_void_none(m: Module, f: FunctionWriter) -> None:
    block = f.block()
    u32 = m.type_int(32)
    with pytest.raises(InternalError, match="use emit_void"):
        block.emit("OpStore", u32, u32, u32)
    with pytest.raises(InternalError, match="use emit"):
        block.emit_void("OpIAdd", u32, u32)
    with pytest.raises(InternalError, match="use the block's methods"):
        block.emit_void("OpReturn")
    with pytest.raises(InternalError, match="no SPIR-V instruction"):
        block.emit("OpAdd", u32, u32, u32)


@pytest.mark.parametrize("operand", [0, -1, 10**6, None, "x", 1.5])
def test_an_operand_that_is_no_id_is_an_error(m: Module, f: FunctionWriter, operand: object) -> None:
    u32 = m.type_int(32)
    with pytest.raises(InternalError, match="isn't an id of this module"):
        f.block().emit("OpIAdd", u32, u32, operand)  # type: ignore[arg-type]  # the error being tested


def test_wrong_operand_counts_are_errors(m: Module, f: FunctionWriter) -> None:
    u32 = m.type_int(32)
    one = m.constant(u32, 1)
    with pytest.raises(InternalError, match="OpIAdd takes"):
        f.block().emit("OpIAdd", u32, one)
    with pytest.raises(InternalError, match="left over"):
        f.block().emit("OpIAdd", u32, one, one, one)


def test_results_and_parameters_have_types(m: Module) -> None:
    f32, u32 = m.type_float(32), m.type_int(32)
    f = m.function(f32, (f32, u32))
    assert [m.type_of(parameter) for parameter in f.parameters] == [f32, u32]
    block = f.block()
    value = block.emit("OpFNegate", f32, f.parameters[0])
    assert m.type_of(value) == f32
    block.return_value(value)
    assert body(m)[1:3] == ["OpFunctionParameter %float", "OpFunctionParameter %uint"]


def test_unreachable_ends_a_block(m: Module, f: FunctionWriter) -> None:
    f.block().unreachable()
    assert body(m)[-2] == "OpUnreachable"
