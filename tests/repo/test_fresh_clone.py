"""Test of the README's two commands in a fresh clone, with an empty home and an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo import checkout

# Settings needed to reach a package index; no other environment variables are passed on.
NETWORK = re.compile(r"PIP_.*|.*_proxy|.*_PROXY|SSL_CERT_.*|REQUESTS_CA_BUNDLE")


def readme_commands() -> list[str]:
    """Return the commands in the README's shell blocks."""
    text = (checkout.ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def test_the_readme_has_exactly_two_commands() -> None:
    assert readme_commands() == ["python3 scripts/run.py demo", "python3 scripts/run.py test"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clone the committed state."""
    if checkout.tracked() is None:
        pytest.skip("git isn't installed, or this is no checkout of the user's own: there is nothing to clone")
    folder = tmp_path_factory.mktemp("fresh") / "vkjit"
    subprocess.run(["git", "clone", "--quiet", str(checkout.ROOT), str(folder)], check=True, capture_output=True)
    return folder


def run_as_newcomer(command: str, clone: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell line in the clone with only HOME, a plain PATH and the package index settings in the environment."""
    home = clone.parent / "home"
    home.mkdir(exist_ok=True)
    path = os.pathsep.join(
        [str(Path(sys.base_prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    )
    environment = {name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}
    environment |= {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}
    return subprocess.run(
        ["sh", "-c", command], cwd=clone, env=environment, capture_output=True, text=True, check=False, timeout=1500
    )


@pytest.mark.slow
def test_both_commands_work_in_a_fresh_clone(clone: Path) -> None:
    demo, test = readme_commands()
    done = run_as_newcomer(demo, clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "the demo printed nothing"

    # one file suffices to show that the command sets everything up
    done = run_as_newcomer(f"{test} -q tests/repo/test_files.py", clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout.splitlines()[-1])
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert status.stdout == "", "the commands left files that git doesn't ignore"


def test_an_unknown_job_is_explained(tmp_path: Path) -> None:
    script = checkout.ROOT / "scripts" / "run.py"
    done = subprocess.run([sys.executable, str(script), "fly"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "scripts/run.py test" in done.stderr


@pytest.mark.skipif(shutil.which("sh") is None, reason="no POSIX shell")
def test_a_python_without_venv_is_told_what_to_install(tmp_path: Path) -> None:
    shutil.copytree(checkout.ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(checkout.ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "ensurepip.py").write_text("raise ImportError('left out')\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "scripts/run.py", "demo"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "hidden"), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert re.search(r"apt-get install python3\.\d+-venv", done.stderr)
