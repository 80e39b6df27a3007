"""Tests of failing checks: messages, the decorator, user-written tests, and behavior without hypothesis."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.testing.explain.script import array_text

pytestmark = pytest.mark.usefixtures("long_repair_search")

EVEN = 8


@vk.kernel(over="y")
def tenth_is_wrong(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    value = x[i] * 2.0
    if i % 10 == 9:
        value = value + 1.0
    y[i] = value


@vk.kernel(over="y")
def double(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    y[vk.global_id(0)] = x[vk.global_id(0)] * 2.0


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], EVEN), local=EVEN)
def in_a_function(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    store(y, vk.global_id(0), x.get(vk.global_id(0), pad=0))


@vk.func
def store(array: Any, i: Any, value: Any) -> None:
    if i != 4:
        array.put(i, value)
    else:
        array.put(i, -value)


@pytest.fixture(scope="module")
def failure() -> vk.testing.CheckFailure:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(tenth_is_wrong, lambda x: 2 * x, devices="interpreter", seed=1)
    return caught.value


def test_failure_has_its_parts_as_attributes(failure: vk.testing.CheckFailure) -> None:
    assert failure.kind == "reference" and failure.kernel == "tenth_is_wrong" and failure.device == "interpreter"
    assert failure.dims == {"N": 10} and failure.array == "y" and failure.index == (9,)
    assert failure.arguments["x"].tolist() == [0.0] * 10 and failure.arguments["y"] is None
    assert (failure.found, failure.expected) == (1.0, 0.0) and failure.ulps is not None and failure.ulps > 1e6
    assert failure.bad == 1 and failure.total == 10 and failure.pattern == "only the last one"
    mended, line = failure.lines
    assert "i % 10 == 9" in Path(__file__).read_text().splitlines()[mended.line - 1]
    assert line.file == __file__ and Path(__file__).read_text().splitlines()[line.line - 1] == "    y[i] = value"
    assert failure.write is not None and failure.write.invocation == (9, 0, 0)


def test_text_shows_input_line_and_pattern(failure: vk.testing.CheckFailure) -> None:
    text = str(failure)
    for part in (
        "tenth_is_wrong: y[9] is 1.0, the reference says 0.0",
        "written by invocation (9, 0, 0) of workgroup (0, 0, 0) here:",
        "    y[i] = value\n",
        "    N = 10\n    x = [0., 0., 0., 0., 0., 0., 0., 0., 0., 0.]  (vk.f32, shape (10,))\n    y = an Out",
        "every 10th one, from 9 on",
        "vk.testing.array(np.full((10,), 0.0, np.float32), vk.f32)",
    ):
        assert part in text, part


def test_line_is_that_of_the_store_inside_a_device_function() -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(in_a_function, lambda x: x, devices="interpreter", seed=1)
    assert caught.value.dims == {"N": 5}
    source = Path(__file__).read_text().splitlines()
    mended, line = (source[loc.line - 1] for loc in caught.value.lines)
    assert line == mended == "        array.put(i, -value)"


def test_decorated_reference_is_a_test() -> None:
    @vk.testing.check(double, devices="interpreter", max_examples=10)
    def test_double(x: Any) -> Any:
        """Twice."""
        return 2 * x

    assert (test_double.__name__, test_double.__doc__) == ("test_double", "Twice.")
    assert test_double.kernel is double  # type: ignore[attr-defined]
    test_double()


def test_a_test_may_assert_more_than_the_reference() -> None:
    seen = []

    @vk.testing.check(double, reference=lambda x: 2 * x, devices="interpreter", max_examples=10)
    def test_even(x: Any, y: Any) -> None:
        seen.append(len(y))
        assert not len(y) or y.max() < 6

    with pytest.raises(vk.testing.CheckFailure) as caught:
        test_even()
    assert caught.value.kind == "property" and caught.value.dims == {"N": 1} and len(seen) > 1
    assert caught.value.arguments["x"][0] >= 3


def test_decorator_above_a_kernel() -> None:
    @vk.testing.check(reference=lambda x: x + 1, devices="interpreter", max_examples=10)
    @vk.kernel(over="y")
    def test_increment(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)] + 1

    test_increment()
    assert test_increment.kernel.name == "test_increment"  # type: ignore[attr-defined]


def test_kernel_inside_a_function_is_written_into_the_script(tmp_path: Path) -> None:
    offset = 2

    @vk.kernel(over="y")
    def local_kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = x[i] + offset

    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(local_kernel, lambda x: x + 1, devices="interpreter", seed=1)
    path = caught.value.write_script(tmp_path / "failure.py")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert "AssertionError" in done.stderr, done.stderr
    path.write_text(path.read_text().replace("offset = 2", "offset = 1"))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "values",
    [
        np.array([np.nan, -np.inf, 1.5], np.float32), np.zeros((0, 3), np.int8), np.full((4,), -0.0, np.float16),
        np.arange(6, dtype=np.uint64).reshape(2, 3), np.random.default_rng(0).random(1000), np.array([True, False]),
        np.array(3, np.int16),
    ],
    ids=lambda values: f"{values.dtype}-{values.size}",
)  # fmt: skip
def test_arrays_are_written_exactly(values: Any) -> None:
    program = f"import numpy as np\nprint({array_text(values)}.tobytes().hex())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == values.tobytes().hex()


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        (lambda x: (x, x), "expected"),
        (lambda x: x[:-1] if len(x) else np.zeros(3), "the shape"),
        (lambda p, q, r: p + q + r, "the reference takes (p, q, r)"),
        (lambda x: None, "the reference returns nothing and takes no output: return y"),
        (lambda x: {"z": x}, "which is no output"),
    ],
)
def test_a_reference_that_does_not_fit_is_refused(reference: Any, text: str) -> None:
    with pytest.raises(vk.ArgumentError) as caught:
        vk.testing.check_kernel(double, reference, devices="interpreter", max_examples=5)
    assert text in str(caught.value)


def test_a_reference_may_fill_the_outputs() -> None:
    def fill(x: Any, y: Any) -> None:
        y[...] = 2 * x

    vk.testing.check_kernel(double, fill, devices="interpreter", max_examples=10)


def test_an_error_of_the_reference_is_passed_on() -> None:
    def broken(x: Any) -> Any:
        raise RuntimeError("no idea")

    with pytest.raises(RuntimeError, match="no idea"):
        vk.testing.check_kernel(double, broken, devices="interpreter", max_examples=5)


def test_a_given_tolerance_is_all_that_counts() -> None:
    def nearly(x: Any) -> Any:
        return 2.01 * x

    with pytest.raises(vk.testing.CheckFailure):
        vk.testing.check_kernel(double, nearly, devices="interpreter")
    vk.testing.check_kernel(double, nearly, devices="interpreter", tolerance=0.01)


def test_partial_kernels_are_allowed_on_demand() -> None:
    @vk.kernel(over="y")
    def some(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        if x[vk.global_id(0)] > 0.0:
            y[vk.global_id(0)] = 1.0

    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(some, devices="interpreter")
    assert caught.value.kind == "unwritten"
    vk.testing.check_kernel(some, devices="interpreter", partial=True, max_examples=20)


def test_without_hypothesis_the_error_says_what_to_install() -> None:
    program = textwrap.dedent("""
        import sys
        sys.modules["hypothesis"] = None
        import vkjit as vk

        @vk.kernel(over="y")
        def copy(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
            y[vk.global_id(0)] = x[vk.global_id(0)]

        vk.testing.tolerance(vk.f32)
        try:
            vk.testing.check_kernel(copy)
        except vk.VkjitError as error:
            print(error)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'vkjit[test]'" in done.stdout


def test_importing_the_package_needs_no_hypothesis() -> None:
    program = "import sys, vkjit; vkjit.testing; print('hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_settings_of_the_decorator_are_checked_at_once() -> None:
    with pytest.raises(vk.ArgumentError, match="no argument 'examples'"):
        vk.testing.check(double, examples=3)
    with pytest.raises(vk.ArgumentError, match="takes a kernel"):
        vk.testing.check(lambda x: x)  # type: ignore[arg-type]


@pytest.mark.slow
def test_failing_inputs_are_remembered_between_runs(tmp_path: Path) -> None:
    program = tmp_path / "limited_test.py"
    program.write_text(
        textwrap.dedent("""
            import vkjit as vk

            @vk.kernel(over="y")
            def limited(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
                i = vk.global_id(0)
                y[i] = x[i] if i < 600 or x.shape[0] >= 650 else 0

            sizes = []

            @vk.testing.check(limited, devices="interpreter", max_examples=500)
            def test_limited(x):
                sizes.append(len(x))
                return x

            try:
                test_limited()
            except vk.testing.CheckFailure as failure:
                assert failure.dims == {"N": 601} and failure.seed is None
                print(next(i for i, n in enumerate(sizes) if n > 600))
        """),
        encoding="utf-8",
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "GITHUB_ACTIONS")}  # no database in CI
    runs = [
        subprocess.run(
            [sys.executable, str(program)], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
        )
        for _ in range(2)
    ]
    assert runs[1].stdout.strip() == "0", "the second run begins with what failed in the first one"


@vk.func
def negated(x: Any) -> Any:
    return -x


@vk.kernel(local=EVEN)
def applied(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], F: vk.Const[Any], SHAPE: vk.Const[Any]):
    i = vk.global_id(0)
    y.put(i, F(x.get(i, pad=0)) + SHAPE[0])


def test_script_knows_grids_and_functions(tmp_path: Path) -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(
            applied, lambda x: x, devices="interpreter", groups=lambda x: vk.cdiv(x.shape[0], EVEN),
            elements={"F": [negated], "SHAPE": [(1, 2)]}, seed=1,
        )  # fmt: skip
    assert "groups=1" in caught.value.script and "'SHAPE': (1, 2)" in caught.value.script
    module = Path(__file__).stem
    path = caught.value.write_script(tmp_path / "failure.py")
    text = path.read_text().replace(f"import_module('{__name__}')", f"import_module('{module}')")
    path.write_text(text.replace(f"from {__name__} import", f"from {module} import"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]])}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, env=environment)
    assert "AssertionError" in done.stderr, done.stderr


def test_an_error_of_the_reference_names_the_shapes() -> None:
    def broken(x: Any) -> Any:
        raise RuntimeError("no idea")

    with pytest.raises(RuntimeError) as caught:
        vk.testing.check_kernel(double, broken, devices="interpreter", max_examples=5)
    notes = getattr(caught.value, "__notes__", ["for arrays of shapes x"])  # notes came with Python 3.11
    assert any("for arrays of shapes x" in note for note in notes)


def test_files_about_a_failure(tmp_path: Path) -> None:
    """The same seed finds the same error, the program reproduces it, the SPIR-V is valid, the report names devices."""
    from vkjit.spirv import tools

    found = []
    for _ in range(2):
        with pytest.raises(vk.testing.CheckFailure) as caught:
            vk.testing.check_kernel(tenth_is_wrong, lambda x: 2 * x, devices="interpreter", seed=5)
        found.append(caught.value)
    assert str(found[0]) == str(found[1]) and "seed=5" in str(found[0])
    paths = {path.name: path for path in found[0].write_artifacts(tmp_path / "new" / "folder")}
    assert set(paths) == {f"tenth_is_wrong{end}" for end in (".py", ".txt", ".ir.txt", ".spv")}
    done = subprocess.run(
        [sys.executable, str(paths["tenth_is_wrong.py"])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "AssertionError" in done.stderr
    code = paths["tenth_is_wrong.spv"].read_bytes()
    assert code[:4] == bytes.fromhex("03022307")
    if tools.available():
        tools.validate(code)
    report = paths["tenth_is_wrong.txt"].read_text(encoding="utf-8")
    assert "smallest failing input" in report and "device 0" in report and "seed=5" in report
    assert "==== IR of the front end" in paths["tenth_is_wrong.ir.txt"].read_text(encoding="utf-8")


def test_a_failure_without_code_for_a_device_still_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vkjit.testing.explain import artifacts

    def refused(*_: object) -> bytes:
        raise vk.FeatureError("no such type here")

    monkeypatch.setattr(artifacts, "_spirv", refused)
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(tenth_is_wrong, lambda x: 2 * x, devices="interpreter", seed=5)
    names = {path.name for path in caught.value.write_artifacts(tmp_path)}
    assert names == {"tenth_is_wrong.py", "tenth_is_wrong.txt", "tenth_is_wrong.ir.txt"}
    assert "no code: no such type here" in (tmp_path / "tenth_is_wrong.txt").read_text(encoding="utf-8")
