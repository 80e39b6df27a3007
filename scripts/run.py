#!/usr/bin/env python3
"""Set up a fresh checkout and run a job: create .venv, install the job's dependencies, run it.

    python3 scripts/run.py demo          install vkjit and run `python -m vkjit demo`
    python3 scripts/run.py test [ARGS]   install the test dependencies, including a Vulkan driver, and run the tests
    python3 scripts/run.py test --fast   run a sample of the tests, in two to three minutes
    python3 scripts/run.py validate [ARGS]  run the tests on Vulkan devices under Khronos' validation layer
    python3 scripts/run.py lint          install the linters and run ruff, mypy, pyright and import-linter

Requires only Python 3.10 or newer. Arguments after the job's name are passed to the demo or to pytest. The exit code is
the job's, and nothing is printed after the job's own output. Everything is installed into .venv, except the Vulkan
driver, which is installed with apt if none is found.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
DRIVER_PACKAGES = ["libvulkan1", "mesa-vulkan-drivers"]
LAYER_PACKAGES = ["vulkan-validationlayers"]
WORKERS = ["-n", "auto", "--maxprocesses=8", "--dist", "worksteal"]  # a file mostly runs on one worker: shared caches

# Runs in a separate process, since a broken driver may crash it. Exits with 0 if a device is found.
PROBE = r"""
import ctypes, sys
names = {"win32": ["vulkan-1.dll"], "darwin": ["libvulkan.1.dylib", "libMoltenVK.dylib"]}
for name in names.get(sys.platform, ["libvulkan.so.1"]):
    try:
        vulkan = ctypes.CDLL(name)
        break
    except OSError:
        pass
else:
    sys.exit(2)
class InstanceInfo(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint32), ("next", ctypes.c_void_p), ("flags", ctypes.c_uint32),
                ("application", ctypes.c_void_p), ("layer_count", ctypes.c_uint32), ("layers", ctypes.c_void_p),
                ("extension_count", ctypes.c_uint32), ("extensions", ctypes.c_void_p)]
info, instance, count = InstanceInfo(type=1), ctypes.c_void_p(), ctypes.c_uint32()
if vulkan.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance)) != 0:
    sys.exit(3)
vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
sys.exit(0 if count.value else 4)
"""


# Exits with 0 if the validation layer is present and a device works with it.
LAYER_PROBE = """
import os, sys
os.environ["VKJIT_VALIDATE"] = "1"
from vkjit.backends.vulkan.runtime import instance
found = instance.get_instance()
sys.exit(0 if found.validating and found.physical_devices() else 1)
"""


def say(text: str) -> None:
    """Print a progress message on standard error, so that standard output holds only the job's output."""
    print(f"[run.py] {text}", file=sys.stderr, flush=True)


def stop(text: str) -> None:
    """Exit with a message that says what to do."""
    say(text)
    sys.exit(2)


def make_environment() -> None:
    """Create .venv unless a working one exists."""
    if PYTHON.exists() and call(str(PYTHON), "-m", "pip", "--version", quiet=True) == 0:
        return
    try:
        import ensurepip  # noqa: F401  Debian and Ubuntu leave it out of python3
        import venv  # noqa: F401
    except ImportError:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        stop(
            f"{sys.executable} has no complete venv module. Install it and run this again:\n"
            f"    sudo apt-get install python{version}-venv      (Debian, Ubuntu; or: python3-venv)"
        )
    say(f"creating {VENV}")
    if call(sys.executable, "-m", "venv", "--clear", str(VENV)) != 0:
        stop(f"`{sys.executable} -m venv {VENV}` failed (see above): is the folder writable, is the disk full?")


def install(extras: str) -> None:
    """Install the checkout in editable mode with `extras`; does nothing if already done for this pyproject.toml."""
    make_environment()
    wanted = hashlib.sha256(f"{ROOT}\n{(ROOT / 'pyproject.toml').read_text(encoding='utf-8')}".encode()).hexdigest()
    stamp = VENV / f".installed-{extras.replace(',', '-')}"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    say(f"installing vkjit[{extras}] into .venv (a minute or two the first time)")
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if call(*pip, "--editable", f".[{extras}]") != 0:
        stop("pip could not install the packages (see above); it needs a connection to a Python package index")
    stamp.write_text(wanted, encoding="utf-8")


def has_vulkan_device() -> bool:
    """True if a Vulkan loader is present and finds a device."""
    return call(sys.executable, "-c", PROBE, quiet=True) == 0


def ensure_driver() -> None:
    """Install a software Vulkan driver if none is found and apt may be used; else print instructions."""
    if has_vulkan_device():
        return
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *DRIVER_PACKAGES]
    skipped = "no Vulkan device found: the tests that need one are skipped. To run them, install\n    "
    if platform.system() != "Linux" or shutil.which("apt-get") is None:
        say(f"{skipped}your GPU's Vulkan driver, or Mesa's lavapipe")
        return
    advice = f"{skipped}your GPU's driver, or Mesa's software driver: sudo apt-get install {' '.join(DRIVER_PACKAGES)}"
    prefix = root_prefix()
    if prefix is None:
        say(advice)
        return
    say(f"no Vulkan device found, installing Mesa's software driver: {' '.join(command)}")
    call(*prefix, "apt-get", "update", "-qq", quiet=True)
    call(*prefix, *command, quiet=True)
    if not has_vulkan_device():
        say(advice)


def root_prefix() -> list[str] | None:
    """Return the command prefix for root privileges; None if they require a password."""
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    if os.geteuid() == 0:
        return environment
    if shutil.which("sudo") and call("sudo", "-n", "true", quiet=True) == 0:
        return ["sudo", "-n", *environment]
    return None


def call(*command: str, quiet: bool = False) -> int:
    """Run a command in the checkout and return its exit code. `quiet` discards its output."""
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, check=False).returncode


def demo(arguments: list[str]) -> int:
    """Run the demo."""
    install("demo")
    return call(str(PYTHON), "-m", "vkjit", "demo", *arguments)


def test(arguments: list[str]) -> int:
    """Run all tests, on every device found, in several processes; with --fast, a sample of them."""
    install("test")
    ensure_driver()
    return call(str(PYTHON), "-m", "pytest", *WORKERS, *arguments)


def validate(arguments: list[str]) -> int:
    """Run the tests on Vulkan devices under the validation layer.

    A test fails on any message of the layer; messages at process exit are reported at the end.
    """
    install("test")
    ensure_driver()
    if call(str(PYTHON), "-c", LAYER_PROBE, quiet=True) != 0:
        prefix = root_prefix() if shutil.which("apt-get") else None
        if prefix is not None:
            say(f"installing the validation layer: {' '.join(LAYER_PACKAGES)}")
            call(*prefix, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *LAYER_PACKAGES, quiet=True)
    if call(str(PYTHON), "-c", LAYER_PROBE, quiet=True) != 0:
        say(f"skipped: no device under VK_LAYER_KHRONOS_validation; sudo apt-get install {' '.join(LAYER_PACKAGES)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="vkjit-validation-") as folder:
        os.environ |= {"VKJIT_VALIDATE": "1", "VKJIT_VALIDATE_LOG": f"{folder}/messages"}
        code = call(str(PYTHON), "-m", "pytest", *WORKERS, "--vkjit-device=vulkan", *arguments)
        rows = [line for file in sorted(Path(folder).iterdir()) for line in file.read_text("utf-8").splitlines()]
    for row in rows:
        print(row)
    print(f"validation layer: {len(rows)} messages")
    return code or (1 if rows else 0)


def lint(arguments: list[str]) -> int:
    """Run all linters, so that one run shows every problem; fails if any of them does."""
    install("test,lint")
    tools = str(PYTHON.parent)
    codes = [
        call(f"{tools}/ruff", "check", *arguments, "."),
        call(f"{tools}/ruff", "format", "--check", "."),
        call(str(PYTHON), "-m", "mypy"),
        call(str(PYTHON), "-m", "pyright"),
        call(f"{tools}/lint-imports"),
    ]
    return max(codes)


def main() -> int:
    """Run the job named on the command line."""
    if sys.version_info < (3, 10):
        stop(f"vkjit needs Python 3.10 or newer, this is {platform.python_version()} ({sys.executable})")
    jobs = {"demo": demo, "test": test, "validate": validate, "lint": lint}
    if len(sys.argv) < 2 or sys.argv[1] not in jobs:
        print(__doc__, file=sys.stderr)
        return 2
    return jobs[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
