"""Which launches a warm spawner can make, and which of them may share one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..marks import PREFIX

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?(t|-intel64)?$")
# Flags of the interpreter that only change what a fork inherits. -i and -x are for people
# and scripts, -c and a script's path are no module.
_LONE_FLAGS = re.compile(r"-[bBdEIOPqsSuv]+$")
_FLAGS_WITH_VALUE = ("-X", "-W")

# What an interpreter, its dynamic loader or a package reads once, when it starts or is
# imported. Kernels that differ in one of these do not share a template.
# fmt: off
_PREFIXES = (
    "ABSL_", "ARROW_", "ASAN_", "BLIS_", "BOKEH_", "CONDA_", "COVERAGE_", "CUBLAS_", "CUDA_",
    "CUDNN_", "DASK_", "DEBUGPY_", "DNNL_", "ETS_", "FONTCONFIG_", "GDAL_", "GOMP_", "GOTO_",
    "GRPC_", "HF_", "HIP_", "HSA_", "IPYTHON", "JAX_", "JOBLIB_", "JUPYTER_", "KERAS_",
    "KINETO_", "KMP_", "LC_", "LD_", "LOGURU_", "MALLOC_", "MATPLOTLIB", "MKL_", "MPL",
    "NCCL_", "NPY_", "NUMBA_", "NUMEXPR_", "NUMPY_", "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_",
    "OPENCV_", "OPENSSL_", "PANDAS_", "PLOTLY_", "POLARS_", "PROJ_", "PROTOCOL_BUFFERS_",
    "PYDEVD_", "PYTENSOR_", "PYTHON", "PYTORCH_", "QT_", "RAYON_", "RAY_", "ROCR_", "SCIPY_",
    "SETUPTOOLS_", "SKLEARN_", "SSL_", "SYMPY_", "TCMALLOC_", "TF_", "THEANO_", "TORCH",
    "TQDM_", "TRANSFORMERS_", "TRITON_", "UBSAN_", "VECLIB_", "VTK_", "XDG_", "XLA_", "ZMQ_",
)
_NAMES = frozenset((
    "DISPLAY", "GLIBC_TUNABLES", "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "TMPDIR", "TZ",
    "USER", "VIRTUAL_ENV", "WAYLAND_DISPLAY",
))
# fmt: on
# Of one launch, whatever their prefix.
_OF_A_LAUNCH = frozenset({"JPY_PARENT_PID", "JPY_SESSION_NAME", "JPY_INTERRUPT_EVENT"})


@dataclass(frozen=True)
class Choice:
    """One kind of launch: what a template must be started with. Equal ones share it."""

    executable: str
    interpreter: str
    """The first word of the command, as the kernelspec has it."""
    flags: tuple[str, ...]
    module: str
    environment: tuple[tuple[str, str], ...] = field(repr=False)
    """The part of the environment that must be equal. Never to be logged."""
    preload: tuple[str, ...] = ()


def choose(
    argv: Sequence[str],
    environment: Mapping[str, str],
    connection_file: str,
    preload: Sequence[str] = (),
) -> Choice | None:
    """The kind of this launch; None when only exec can make it."""
    if not argv or not connection_file or not _PYTHON.match(os.path.basename(argv[0])):
        return None
    executable = _found(argv[0], environment)
    parsed = _flags_and_module(argv)
    if executable is None or parsed is None or _depends_on_folder(environment):
        return None
    flags, module, arguments = parsed
    if not any(connection_file in part for part in arguments):
        return None
    return Choice(executable, argv[0], flags, module, significant(environment), tuple(preload))


def significant(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What of the environment counts when an interpreter starts."""
    return tuple(
        sorted(
            (name, value)
            for name, value in environment.items()
            if (name in _NAMES or name.startswith(_PREFIXES))
            and name not in _OF_A_LAUNCH
            and not name.startswith(PREFIX)
        )
    )


def of_template(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment to start a template with: this one, without what is a launch's own."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_A_LAUNCH and not name.startswith(PREFIX)
    }


def _found(program: str, environment: Mapping[str, str]) -> str | None:
    if os.path.isabs(program):
        return program if os.access(program, os.X_OK) else None
    if os.path.dirname(program):
        return None  # relative to a folder that the template is not in
    found = shutil.which(program, path=environment.get("PATH", os.defpath))
    return found if found is not None and os.path.isabs(found) else None


def _flags_and_module(argv: Sequence[str]) -> tuple[tuple[str, ...], str, tuple[str, ...]] | None:
    index = 1
    while index < len(argv):
        part = argv[index]
        if part == "-m" and index + 1 < len(argv):
            return tuple(argv[1:index]), argv[index + 1], tuple(argv[index + 2 :])
        if part.startswith("-m") and len(part) > 2:
            return tuple(argv[1:index]), part[2:], tuple(argv[index + 1 :])
        if part in _FLAGS_WITH_VALUE:
            index += 2
        elif part.startswith(_FLAGS_WITH_VALUE) or _LONE_FLAGS.match(part):
            index += 1
        else:
            return None
    return None


def _depends_on_folder(environment: Mapping[str, str]) -> bool:
    """A relative entry means another folder in each kernel's working folder."""
    entries = environment.get("PYTHONPATH", "")
    return bool(entries) and not all(map(os.path.isabs, entries.split(os.pathsep)))
