"""LLVM IR around a kernel's code: the entry point, stack probes, and conversions that the CPU lacks.

The entry point sets the CPU's default floating-point mode, and restores the caller's at the end. Other libraries may
have changed the mode of the calling thread (flushing of subnormals, rounding, traps); results must not depend on it.
"""

from __future__ import annotations

from .llvm_text import Text

__all__ = ["BODY", "PARAMETERS", "entry_point", "missing_conversions", "probed", "rooted"]

BODY = "groups"
"""Name of the function with the kernel's code, which the entry point calls."""
PARAMETERS = "ptr noalias %block, i64 %begin, i64 %end, i64 %x, i64 %y, i64 %z, ptr %watch"
_ARGUMENTS = "ptr %block, i64 %begin, i64 %end, i64 %x, i64 %y, i64 %z, ptr %watch"
_DEFAULT_MXCSR = 0x1F80
"""Default value of MXCSR: round to nearest, no flushing of subnormals, no traps."""


def entry_point(name: str, family: str) -> list[str]:
    """Return the lines of the exported function."""
    head = f"define void @{name}({PARAMETERS}) nounwind {{"
    call = f"  call void @{BODY}({_ARGUMENTS})"
    if family == "x86_64":
        return [
            "declare void @llvm.x86.sse.stmxcsr(ptr)",
            "declare void @llvm.x86.sse.ldmxcsr(ptr)",
            head,
            "  %callers = alloca i32",
            "  %usual = alloca i32",
            "  call void @llvm.x86.sse.stmxcsr(ptr %callers)",
            f"  store i32 {_DEFAULT_MXCSR}, ptr %usual",
            "  call void @llvm.x86.sse.ldmxcsr(ptr %usual)",
            call,
            "  call void @llvm.x86.sse.ldmxcsr(ptr %callers)",
            "  ret void",
            "}",
        ]
    if family == "aarch64":
        return [
            "declare i64 @llvm.aarch64.get.fpcr()",
            "declare void @llvm.aarch64.set.fpcr(i64)",
            head,
            "  %callers = call i64 @llvm.aarch64.get.fpcr()",
            "  call void @llvm.aarch64.set.fpcr(i64 0)",
            call,
            "  call void @llvm.aarch64.set.fpcr(i64 %callers)",
            "  ret void",
            "}",
        ]
    return [head, call, "  ret void", "}"]


def probed(family: str) -> str:
    """Return the function attribute for inline stack probes, or an empty string.

    The prologue then touches each page of the frame in turn, so an overflow hits the stack's guard page.
    """
    return '"probe-stack"="inline-asm"' if family in ("x86_64", "aarch64") else ""


def rooted(family: str) -> list[str]:
    """Return the first lines of a `probed` function: a volatile store to the stack, against shrink wrapping.

    It keeps the prologue in the entry block. In a later block, the scratch register of LLVM's probe loop may be live.
    """
    return ["  %root = alloca i8", "  store volatile i8 0, ptr %root"] if probed(family) else []


def missing_conversions(text: Text, features: frozenset[str], family: str) -> list[str]:
    """Return the functions that LLVM calls to convert f16 on CPUs without F16C; not every process provides them."""
    if family != "x86_64" or "f16c" in features or not any("half" in line for line in text.lines):
        return []
    return [_EXTEND, _TRUNCATE]


_EXTEND = """
define float @__extendhfsf2(half %x) nounwind {
  %bits = bitcast half %x to i16
  %word = zext i16 %bits to i32
  %size = and i32 %word, 32767
  %signbit = and i32 %word, 32768
  %sign = shl i32 %signbit, 16
  %moved = shl i32 %size, 13
  %normal = add i32 %moved, 939524096
  %special = icmp uge i32 %size, 31744
  %nan = icmp ugt i32 %size, 31744
  %infinite = or i32 %moved, 2139095040
  %quiet = or i32 %infinite, 4194304
  %top = select i1 %nan, i32 %quiet, i32 %infinite
  %integer = uitofp i32 %size to float
  %small = fmul float %integer, 0x3E70000000000000
  %smallbits = bitcast float %small to i32
  %subnormal = icmp ult i32 %size, 1024
  %low = select i1 %subnormal, i32 %smallbits, i32 %normal
  %all = select i1 %special, i32 %top, i32 %low
  %signed = or i32 %all, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}"""

_TRUNCATE = """
define half @__truncsfhf2(float %x) nounwind {
  %word = bitcast float %x to i32
  %size = and i32 %word, 2147483647
  %signbit = lshr i32 %word, 16
  %sign = and i32 %signbit, 32768
  %nan = icmp ugt i32 %size, 2139095040
  %payload = lshr i32 %size, 13
  %kept = and i32 %payload, 511
  %quiet = or i32 %kept, 32256
  %large = icmp uge i32 %size, 1199566848
  %number = bitcast i32 %size to float
  %shifted = fadd float %number, 0.5
  %shiftedbits = bitcast float %shifted to i32
  %small = sub i32 %shiftedbits, 1056964608
  %subnormal = icmp ult i32 %size, 947912704
  %last = and i32 %payload, 1
  %rebased = sub i32 %size, 939520001
  %tied = add i32 %rebased, %last
  %normal = lshr i32 %tied, 13
  %low = select i1 %subnormal, i32 %small, i32 %normal
  %finite = select i1 %large, i32 31744, i32 %low
  %all = select i1 %nan, i32 %quiet, i32 %finite
  %signed = or i32 %all, %sign
  %short = trunc i32 %signed to i16
  %result = bitcast i16 %short to half
  ret half %result
}"""
