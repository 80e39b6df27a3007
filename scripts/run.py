#!/usr/bin/env python3
"""One entry for a fresh checkout: makes .venv, installs what a job needs, runs the job.

    python3 scripts/run.py demo          installs vkjit and runs `python -m vkjit demo`
    python3 scripts/run.py test [ARGS]   installs what the tests need, a Vulkan driver included, and runs them
    python3 scripts/run.py test --fast   a cut through all of them, in two or three minutes
    python3 scripts/run.py validate [ARGS]  the tests on Vulkan devices under Khronos' validation layer
    python3 scripts/run.py lint          installs the linters and runs ruff, mypy, pyright and import-linter

Needs nothing but Python 3.10 or newer. Arguments after the job's name go to the demo or to pytest. The exit code is the
job's; nothing is printed after the job's own output. What is installed stays in .venv, apart from the Vulkan driver:
that comes through apt, and only where none is found.
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
WORKERS = [
    "-n",
    "auto",
    "--maxprocesses=8",
    "--dist",
    "worksteal",
]  # neighbours share caches: mostly one worker runs a file

# Run in a process of its own: a broken driver may take the process down. Exits with 0 when a device is there.
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


# Exits with 0 when the validation layer is there and a device works under it.
LAYER_PROBE = """
import os, sys
os.environ["VKJIT_VALIDATE"] = "1"
from vkjit.runtime import instance
found = instance.get_instance()
sys.exit(0 if found.validating and found.physical_devices() else 1)
"""


def say(text: str) -> None:
    """One line about what is being done, on standard error so that a job's output stays its own."""
    print(f"[run.py] {text}", file=sys.stderr, flush=True)


def stop(text: str) -> None:
    """Ends with a message that says what to do."""
    say(text)
    sys.exit(2)


def make_environment() -> None:
    """Creates .venv, unless a working one is there."""
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
    """Installs the checkout, editable, with `extras`; does nothing when that was done for this pyproject.toml."""
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
    """Whether a Vulkan loader is there and finds a device."""
    return call(sys.executable, "-c", PROBE, quiet=True) == 0


def ensure_driver() -> None:
    """Installs a software Vulkan driver where none is found and apt may be used; else says what to install."""
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
    """What to put before a command that needs root; None when root isn't to be had without a password."""
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    if os.geteuid() == 0:
        return environment
    if shutil.which("sudo") and call("sudo", "-n", "true", quiet=True) == 0:
        return ["sudo", "-n", *environment]
    return None


def call(*command: str, quiet: bool = False) -> int:
    """Runs a command in the checkout; its exit code. `quiet` drops what it prints."""
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, check=False).returncode


def demo(arguments: list[str]) -> int:
    """The main job."""
    install("demo")
    return call(str(PYTHON), "-m", "vkjit", "demo", *arguments)


def test(arguments: list[str]) -> int:
    """All tests, on every device found, in several processes; with --fast a few cases of each."""
    install("test")
    ensure_driver()
    return call(str(PYTHON), "-m", "pytest", *WORKERS, *arguments)


def validate(arguments: list[str]) -> int:
    """The tests on Vulkan devices, each failing for what the validation layer says about it; then what it says at exits."""
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
    """All linters, so that one run shows everything; fails when one of them does."""
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
    """Runs the job that the command line names."""
    if sys.version_info < (3, 10):
        stop(f"vkjit needs Python 3.10 or newer, this is {platform.python_version()} ({sys.executable})")
    jobs = {"demo": demo, "test": test, "validate": validate, "lint": lint}
    if len(sys.argv) < 2 or sys.argv[1] not in jobs:
        print(__doc__, file=sys.stderr)
        return 2
    return jobs[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
