"""`make setup`: a torch that is there is never replaced, and no CUDA build comes by accident.

pip is the real one; it sees only a folder of tiny wheels made here.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from setupenv import choose, machine
from setupenv.choose import Candidate, Request, SetupError
from setupenv.cli import ensure_torch
from setupenv.venv import STAMP, Venv, fingerprint

ROOT = Path(__file__).resolve().parents[2]
# One worker for all, so that one environment serves them.
pytestmark = pytest.mark.xdist_group("setup-env")


# --- the choice -----------------------------------------------------------------------------------


def test_without_a_gpu_the_cpu_build_is_asked_for_first_and_everything_is_looked_at() -> None:
    assert choose.candidates(Request(), has_gpu=False) == [
        Candidate(f"{choose.DEFAULT_TORCH}+cpu", None, guarded=True),
        Candidate(choose.DEFAULT_TORCH, None, guarded=True),
    ]


def test_an_index_given_is_used_and_still_looked_at() -> None:
    found = choose.candidates(Request(index_url="https://mirror.example/cpu"), has_gpu=False)
    assert all(c.guarded for c in found)
    assert all(c.pip_args()[1:] == ["--index-url", "https://mirror.example/cpu"] for c in found)


@pytest.mark.parametrize("request_, gpu", [(Request(), True), (Request(allow_cuda=True), False)])
def test_with_a_gpu_or_the_users_word_exactly_what_was_asked_for(request_: Request, gpu: bool) -> None:
    assert choose.candidates(request_, gpu) == [Candidate(choose.DEFAULT_TORCH, None, guarded=False)]


def test_a_range_has_no_local_version_to_ask_for() -> None:
    found = choose.candidates(Request(spec="torch>=2.6"), has_gpu=False)
    assert [c.spec for c in found] == ["torch>=2.6"]


def test_cuda_packages_are_told_from_nvidias_plain_ones() -> None:
    heavy = ["nvidia-cublas", "nvidia-cudnn-cu13", "nvidia_nccl_cu12", "triton", "cuda-bindings"]
    plain = ["torch", "nvidia-ml-py", "nvidia-resiliency-ext", "numpy", "tritonclient"]
    assert choose.cuda_packages([*heavy, *plain]) == sorted(heavy)


def test_the_refusal_names_every_way_out() -> None:
    error = choose.refusal(Request(), ["x"])
    for word in ("TORCH_INDEX_URL", "TORCH=", "PYTHON=", "TORCH_ALLOW_CUDA"):
        assert word in error.hint


def test_torch_is_held_and_old_glibc_gets_the_wheel_that_loads() -> None:
    assert choose.constraints("2.13.0+cpu", (2, 36)) == [
        "torch==2.13.0+cpu",
        "nvidia-resiliency-ext<0.5",
    ]
    assert choose.constraints(None, (2, 39)) == []


# --- with pip -------------------------------------------------------------------------------------


def wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> None:
    """An empty but installable wheel."""
    tag = "py3-none-any"
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {need}" for need in requires]
    files = {
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{name}.py": f"__version__ = {version!r}\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip can see: a CUDA build of torch and what it drags along."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "torch", "2.13.0", ("nvidia-cublas", "triton"))
    wheel(folder, "nvidia_cublas", "13.0")
    wheel(folder, "triton", "3.5")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # no nvidia-smi but one we put there
    return folder


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    made = Venv(tmp_path_factory.mktemp("blank") / "venv", ROOT)
    made.create([])
    return made


@pytest.fixture
def venv(blank: Venv, tmp_path: Path) -> Venv:
    """A copy: making one from nothing takes seconds."""
    shutil.copytree(blank.path, tmp_path / "venv", symlinks=True)
    return Venv(tmp_path / "venv", ROOT)


def test_a_cuda_build_is_refused_then_a_cpu_build_taken_then_kept(
    wheels: Path, venv: Venv, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SetupError, match=r"is a CUDA build: it brings nvidia-cublas, triton"):
        ensure_torch(venv, Request(), None)
    assert machine.torch_version(venv.python) is None

    wheel(wheels, "torch", "2.13.0+cpu")
    assert ensure_torch(venv, Request(), None) == "2.13.0+cpu"

    wheel(wheels, "torch", "2.14.0+cpu")
    own = machine.torch_version(venv.python)
    assert ensure_torch(venv, Request(spec="torch==2.14.0"), own) == "2.13.0+cpu"
    assert machine.torch_version(venv.python) == "2.13.0+cpu"


def test_a_gpu_gets_the_plain_build(wheels: Path, venv: Venv, tmp_path: Path) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-0)'\n")
    smi.chmod(0o755)
    assert ensure_torch(venv, Request(), None) == "2.13.0"


def test_a_driver_without_a_device_is_no_gpu(wheels: Path, tmp_path: Path) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    smi.chmod(0o755)
    assert machine.has_nvidia_gpu() is False


def test_the_torch_of_the_python_it_is_made_from_is_borrowed(
    wheels: Path, venv: Venv, tmp_path: Path
) -> None:
    """The hard case: that Python lives in a virtual environment itself."""
    wheel(wheels, "torch", "2.13.0+cpu")
    venv.install(["torch==2.13.0+cpu"])
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path;"
        "from setupenv import machine; from setupenv.venv import Venv;"
        "Venv(Path(sys.argv[2]), Path('/')).create(machine.site_folders(Path(sys.executable)))"
    )
    inner = Venv(tmp_path / "inner", ROOT)
    done = machine.run([str(venv.python), "-c", code, str(ROOT / "scripts"), str(inner.path)])
    assert done.returncode == 0, done.stderr
    assert machine.torch_version(inner.python) == "2.13.0+cpu"
    assert not list(inner.path.glob("lib/python*/site-packages/torch*"))


def test_a_stamp_counts_only_for_the_same_files_and_wishes(tmp_path: Path) -> None:
    venv = Venv(tmp_path, ROOT)
    mark = fingerprint(ROOT, ["torch==2.13.0"])
    assert venv.done(mark) is None
    venv.stamp(mark, {"train"})
    assert venv.done(mark) == {"train"}
    assert venv.done(fingerprint(ROOT, ["torch==2.14.0"])) is None
    (tmp_path / STAMP).write_text('{"fingerprint"')
    assert venv.done(mark) is None


def test_a_moved_environment_is_seen_to_be_broken(venv: Venv, tmp_path: Path) -> None:
    assert venv.usable()
    venv.python.unlink()
    venv.python.symlink_to(tmp_path / "gone")
    assert not venv.usable()
    venv.create([])
    assert venv.usable()
