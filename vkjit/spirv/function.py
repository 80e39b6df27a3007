"""Writers of the functions and basic blocks of a SPIR-V module.

`Module.function` returns a `FunctionWriter`, and its method `block` an `OpenBlock`, to which instructions are appended
in program order. The methods that emit a terminator return a `ClosedBlock`, which has only a label and can't be written
to.

The phis of a loop header refer to values that are defined later. A phi therefore accepts further operands until the
module is written. Phis precede the other instructions of their block, and function-scope variables are moved to the
first block, as SPIR-V requires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InternalError
from .requirements import typed_capability
from .words import Layout, Operand, encode_operands, instruction, layout_of

if TYPE_CHECKING:
    from .module import Module

__all__ = ["ClosedBlock", "FunctionWriter", "OpenBlock", "Phi"]

# Instructions that only move or convert values. For 8- and 16-bit values, they need no arithmetic capability.
_MOVES = frozenset({"OpLoad", "OpStore", "OpCopyObject", "OpFConvert", "OpUConvert", "OpSConvert"})


class Phi:
    """A phi instruction, to which operands can be added until the module is written; `id` is its result."""

    __slots__ = ("id", "operands", "result_type")

    def __init__(self, result_type: int, result: int) -> None:
        self.id = result
        self.result_type = result_type
        self.operands: list[int] = []

    def add(self, value: int, parent: int) -> None:
        """Add the value that the phi has if control comes from the block with the label `parent`."""
        self.operands += (value, parent)


class ClosedBlock:
    """A terminated block; phis refer to it by its `label`."""

    __slots__ = ("label",)

    def __init__(self, label: int) -> None:
        self.label = label


class OpenBlock:
    """A block under construction. All methods raise InternalError after the terminator.

    `_words` are the instructions so far, without the phis (`_phis`). `_merge` is (name, words) of a merge instruction
    that waits for the block's branch. `_line` is the current source location, as (id of the file's name, line, column).
    `_pending_line` is the location to emit before the next instruction.
    """

    __slots__ = ("_function", "_line", "_merge", "_module", "_pending_line", "_phis", "_words", "closed", "label")

    def __init__(self, function: FunctionWriter, label: int) -> None:
        self.label = label
        self.closed = False
        self._function = function
        self._module = function.module
        self._words: list[int] = []
        self._phis: list[Phi] = []
        self._merge: tuple[str, list[int]] | None = None
        self._line: tuple[int, int, int] | None = None
        self._pending_line: tuple[int, int, int] | None = None

    def emit(self, opname: str, result_type: int, *operands: Operand) -> int:
        """Append an instruction with a result of type `result_type`; return the result's id.

        `operands` are given in the order of the grammar (see `words`).
        """
        layout = layout_of(opname)
        if not layout.has_type:
            raise InternalError(f"{opname} has no typed result: use emit_void")
        self._begin(opname)
        module = self._module
        result = module.bound
        module.bound = result + 1
        self._append(layout, [result_type, result], operands)
        module.value_types[result] = result_type
        if module.small_types:
            self._note_small(layout, result_type, operands)
        if layout.name in _TYPED:
            self._note_typed(layout.name, result_type, operands)
        return result

    def emit_void(self, opname: str, *operands: Operand) -> None:
        """Append an instruction without a result."""
        layout = layout_of(opname)
        if layout.has_type or layout.has_result:
            raise InternalError(f"{opname} has a result: use emit")
        if layout.name in _REJECTED:
            raise InternalError(f"{opname} ends or merges a block: use the block's methods")
        self._begin(opname)
        self._append(layout, [], operands)
        if self._module.small_types:
            self._note_small(layout, 0, operands)
        if layout.name == "OpAtomicStore":
            self._note_typed(layout.name, 0, operands)

    def glsl(self, name: str, result_type: int, *operands: int) -> int:
        """Emit an instruction of GLSL.std.450, e.g. glsl("Exp", f32, x)."""
        return self.emit("OpExtInst", result_type, self._module.glsl_std_450(name, len(operands)), name, *operands)

    def phi(self, result_type: int, *operands: int) -> Phi:
        """Add a phi to the block. `operands` alternate: value, parent label, value, parent label..."""
        self._begin("OpPhi")
        module = self._module
        result = module.id()
        phi = Phi(result_type, result)
        phi.operands += operands
        self._phis.append(phi)
        module.value_types[result] = result_type
        module.required.update(module.small_types.get(result_type, ()))
        return phi

    def line(self, file: str, line: int, column: int = 0) -> None:
        """Set the source location of the following instructions. OpLine is emitted only if the location changes."""
        if self._module.debug:
            self._pending_line = (self._module.source_file(file), line, column)

    def no_line(self) -> None:
        """Clear the source location of the following instructions."""
        self._pending_line = None
        if self._line is not None:
            self._begin("OpNoLine")
            self._words += instruction("OpNoLine", [])
            self._line = None

    def selection_merge(self, merge: int, control: Operand = "None") -> None:
        """Declare the merge block of the following branch_conditional or switch."""
        self._set_merge("OpSelectionMerge", (merge, control))

    def loop_merge(self, merge: int, continue_target: int, control: Operand = "None", *parameters: int) -> None:
        """Make this block a loop header, with the labels of the merge block and the continue target.

        `control` is a loop control such as "Unroll". `parameters` are those of the control, as "MaxIterations" has one.
        """
        self._set_merge("OpLoopMerge", (merge, continue_target, control, *parameters))
        self._function.referenced.add(continue_target)

    def branch(self, target: int) -> ClosedBlock:
        return self._terminate("OpBranch", [target], (target,))

    def branch_conditional(self, condition: int, true_target: int, false_target: int) -> ClosedBlock:
        targets = (true_target, false_target)
        return self._terminate("OpBranchConditional", [condition, *targets], targets)

    def switch(self, selector: int, default: int, cases: list[tuple[int, int]]) -> ClosedBlock:
        """End the block with a switch. `cases` are (value, label) pairs. Values wrap to the width of the selector."""
        info = self._module.info(self._module.type_of(selector))
        words = [selector, default]
        for value, label in cases:
            bits = value & ((1 << info.bits) - 1)
            words += (bits, label) if info.bits <= 32 else (bits & 0xFFFFFFFF, bits >> 32, label)
        return self._terminate("OpSwitch", words, (default, *(label for _, label in cases)))

    def return_(self) -> ClosedBlock:
        return self._terminate("OpReturn", [], ())

    def return_value(self, value: int) -> ClosedBlock:
        return self._terminate("OpReturnValue", [value], ())

    def unreachable(self) -> ClosedBlock:
        return self._terminate("OpUnreachable", [], ())

    def _begin(self, opname: str) -> None:
        """Check that an instruction is allowed here and emit the pending source line."""
        if self.closed:
            raise InternalError(f"{opname} after the terminator of block %{self.label}")
        if self._merge is not None:
            raise InternalError(f"{opname} between a merge and its branch in block %{self.label}")
        if self._pending_line is not None:
            self._write_line()

    def _write_line(self) -> None:
        """Emit the pending source location as OpLine, unless it is the current one."""
        if self._pending_line is not None and self._pending_line != self._line:
            self._words += instruction("OpLine", list(self._pending_line))
            self._line = self._pending_line
        self._pending_line = None

    def _append(self, layout: Layout, prefix: list[int], operands: tuple[Operand, ...]) -> None:
        """Append the words of an instruction. `prefix` has the ids of the result type and the result, if there are any.

        If all operands are single ids, which is the usual case, they are appended without being encoded one by one.
        """
        module = self._module
        module.uses.add(layout.use)
        words = self._words
        if layout.id_count != len(operands):
            encode_operands(layout, operands, prefix, module.uses)
            words += instruction(layout.name, prefix)
            return
        bound = module.bound
        for operand in operands:
            if operand.__class__ is not int or not 0 < operand < bound:
                raise InternalError(f"{layout.name}: {operand!r} isn't an id of this module")
        words.append((1 + len(prefix) + len(operands)) << 16 | layout.opcode)
        words += prefix
        words += operands  # type: ignore[arg-type]  # checked above

    def _note_small(self, layout: Layout, result_type: int, operands: tuple[Operand, ...]) -> None:
        """Require the arithmetic capabilities for the 8- and 16-bit types among the types of the result and operands.

        Does nothing for instructions that only move or convert values.
        """
        if layout.name in _MOVES:
            return
        module = self._module
        small_types, value_types = module.small_types, module.value_types
        module.required.update(small_types.get(result_type, ()))
        last = len(layout.operands) - 1  # this operand may be repeated
        for position, operand in enumerate(operands):
            if not isinstance(operand, int) or not layout.operands[min(position, last)][0].startswith("Id"):
                continue
            module.required.update(small_types.get(value_types.get(operand, 0), ()))

    def _note_typed(self, opname: str, result_type: int, operands: tuple[Operand, ...]) -> None:
        """Require the capability that an instruction of `_TYPED` needs for its operand type (see `requirements`)."""
        module = self._module
        if opname == "OpAtomicStore":
            type_id = module.type_of(int(operands[3]))  # operands: pointer, scope, semantics, value
        else:  # a dot product is classified by the type of its first vector, an atomic by that of its result
            type_id = module.type_of(int(operands[0])) if opname.endswith(("Dot", "DotAccSat")) else result_type
        info = module.info(type_id)
        lanes = info.length or 1
        kind = module.info(info.members[0]).kind if info.kind == "vector" else info.kind
        capability = typed_capability(opname, kind, info.bits, lanes)
        if capability is not None:
            module.required.add(capability)

    def _set_merge(self, opname: str, operands: tuple[Operand, ...]) -> None:
        """Encode a merge instruction, to be emitted directly before the block's branch."""
        self._begin(opname)
        layout = layout_of(opname)
        words: list[int] = []
        encode_operands(layout, operands, words, self._module.uses)
        self._merge = (opname, instruction(opname, words))
        self._function.referenced.add(words[0])

    def _terminate(self, opname: str, words: list[int], targets: tuple[int, ...]) -> ClosedBlock:
        """Emit the merge instruction, if there is one, and a terminator with the operand words `words`.

        `targets` are the labels that the terminator may branch to.
        """
        if self.closed:
            raise InternalError(f"{opname} after the terminator of block %{self.label}")
        self._write_line()
        if self._merge is not None:
            merge, merge_words = self._merge
            allowed = ("OpBranchConditional", "OpSwitch" if merge == "OpSelectionMerge" else "OpBranch")
            if opname not in allowed:
                raise InternalError(f"{merge} in block %{self.label} takes one of {allowed} after it, not {opname}")
            self._words += merge_words
        layout = layout_of(opname)
        self._module.uses.add(layout.use)
        self._words += instruction(opname, words)
        self.closed = True
        self._function.note_branch(self.label, targets)
        return ClosedBlock(self.label)

    def finish(self, predecessors: set[int]) -> list[int]:
        """Return the block's words, starting with its label; `predecessors` are the labels of its predecessors.

        Raises InternalError for an open block, and for a phi whose parents aren't exactly the predecessors.
        """
        if not self.closed:
            raise InternalError(f"block %{self.label} has no terminator")
        words = instruction("OpLabel", [self.label])
        for phi in self._phis:
            parents = phi.operands[1::2]
            if len(parents) != len(predecessors) or set(parents) != predecessors or len(phi.operands) % 2:
                raise InternalError(
                    f"phi %{phi.id} of block %{self.label} has parents {parents}; "
                    f"the block's predecessors are {sorted(predecessors)}"
                )
            words += instruction("OpPhi", [phi.result_type, phi.id, *phi.operands])
        if self._function.is_first(self):
            words += self._function.variable_words
        return words + self._words


_REJECTED = frozenset(
    {
        "OpBranch", "OpBranchConditional", "OpLoopMerge", "OpReturn", "OpReturnValue", "OpSelectionMerge", "OpSwitch",
        "OpUnreachable", "OpLine", "OpNoLine", "OpFunctionEnd",
    }
)  # fmt: skip
"""Terminators, merges and other instructions that `emit_void` rejects, since other methods emit them."""
_TYPED = frozenset(
    {
        "OpAtomicLoad", "OpAtomicExchange", "OpAtomicCompareExchange", "OpAtomicIIncrement", "OpAtomicIDecrement",
        "OpAtomicIAdd", "OpAtomicISub", "OpAtomicSMin", "OpAtomicUMin", "OpAtomicSMax", "OpAtomicUMax", "OpAtomicAnd",
        "OpAtomicOr", "OpAtomicXor", "OpAtomicFAddEXT", "OpAtomicFMinEXT", "OpAtomicFMaxEXT", "OpDot", "OpSDot",
        "OpUDot", "OpSUDot", "OpSDotAccSat", "OpUDotAccSat", "OpSUDotAccSat",
    }
)  # fmt: skip
"""Instructions with a result that may need a capability for their operand type (see `typed_capability`)."""


class FunctionWriter:
    """A function under construction, with its `id`, the ids of its `parameters`, and its blocks in creation order.

    A block must be created after the blocks that dominate it. `referenced` has the labels to which branches and merges
    refer. `_predecessors` maps labels to those of the blocks that branch to them. `_head` has the words of OpFunction
    and of the parameters, `_variables` those of function-scope variables.
    """

    __slots__ = (
        "_blocks",
        "_head",
        "_predecessors",
        "_variables",
        "id",
        "module",
        "parameters",
        "referenced",
        "return_type",
    )

    def __init__(self, module: Module, return_type: int, parameters: tuple[int, ...], control: Operand) -> None:
        self.module = module
        self.return_type = return_type
        self.id = module.id()
        self.referenced: set[int] = set()
        self._blocks: list[OpenBlock] = []
        self._predecessors: dict[int, set[int]] = {}
        self._variables: list[int] = []
        words = [return_type, self.id]
        function_type = module.type_function(return_type, parameters)
        encode_operands(layout_of("OpFunction"), (control, function_type), words, module.uses)
        self._head = instruction("OpFunction", words)
        self.parameters = tuple(module.id() for _ in parameters)
        for parameter, type_id in zip(self.parameters, parameters, strict=True):
            module.value_types[parameter] = type_id
            module.required.update(module.small_types.get(type_id, ()))
            self._head += instruction("OpFunctionParameter", [type_id, parameter])

    def label(self) -> int:
        """Return a fresh label, for a block that is to be created later."""
        return self.module.id()

    def block(self, label: int | None = None) -> OpenBlock:
        """Start a block with the given label, by default a fresh one."""
        block = OpenBlock(self, self.module.id() if label is None else label)
        self._blocks.append(block)
        return block

    def variable(self, pointee: int, name: str = "", initializer: int | None = None) -> int:
        """Declare a function-scope variable in the first block. Returns its pointer."""
        module = self.module
        pointer = module.type_pointer("Function", pointee)
        result = module.id()
        words = [pointer, result]
        operands: tuple[Operand, ...] = ("Function",) if initializer is None else ("Function", initializer)
        encode_operands(layout_of("OpVariable"), operands, words, module.uses)
        self._variables += instruction("OpVariable", words)
        module.value_types[result] = pointer
        module.name(result, name)
        return result

    @property
    def variable_words(self) -> list[int]:
        return self._variables

    def is_first(self, block: OpenBlock) -> bool:
        return self._blocks[0] is block

    def note_branch(self, label: int, targets: tuple[int, ...]) -> None:
        """Record the CFG edges out of a block."""
        for target in targets:
            self.referenced.add(target)
            self._predecessors.setdefault(target, set()).add(label)

    def finish(self) -> list[int]:
        """Return the function's words.

        Raises InternalError if a block is missing, has the label of another block or has no terminator, and for an
        invalid phi.
        """
        labels = [block.label for block in self._blocks]
        if not labels:
            raise InternalError(f"function %{self.id} has no block")
        if len(set(labels)) != len(labels):
            raise InternalError(f"function %{self.id} opens a label twice: {sorted(labels)}")
        missing = self.referenced.difference(labels)
        if missing:
            raise InternalError(f"function %{self.id} branches to blocks that were never opened: {sorted(missing)}")
        words = list(self._head)
        for block in self._blocks:
            words += block.finish(self._predecessors.get(block.label, set()))
        return words + instruction("OpFunctionEnd", [])
