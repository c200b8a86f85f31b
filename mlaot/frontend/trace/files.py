"""``mlaot.load``: read a safetensors file, such as ``save`` of a compiled module writes, into parameters of a model.

Models call it while they are declared. (``mlaot/files.py`` has the files that mlaot writes.)
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace import draws
from mlaot.frontend.trace.tensor import Buffer, Parameter
from mlaot.ir.module import OPTIMIZER
from mlaot.ir.types import DTYPES, DType, bf16


def load(path: str | Path) -> dict[str, Parameter | Buffer]:
    """Return the arrays of a safetensors file by name: floating-point numbers as parameters, others as buffers.

    A relative path is searched beside the calling module, then in the current folder. The state of the optimizer and of
    the random numbers, which a module stores for further training, is left out.
    """
    # The module of the user's that calls this: nothing of mlaot's may stand between.
    caller = sys._getframe(1).f_code.co_filename
    beside = Path(caller).parent / path
    file = beside if beside.exists() else Path(path)
    if not file.exists():
        raise MlaotError(f"no file {path}; looked in {Path(caller).parent} and {Path.cwd()}")
    sys.audit("mlaot.load", str(file))  # a build notes it as a source of the model (build/sources.py), wherever it is
    return {name: array for name, array in read(file).items() if not is_for_training(name)}


def is_for_training(name: str) -> bool:
    """Tell whether an array of this name is only for further training, and not read by the model."""
    return name == draws.NAME or name.startswith(OPTIMIZER)


def read(path: Path) -> dict[str, Parameter | Buffer]:
    """Read all arrays of a file, by name."""
    import safetensors

    try:
        tensors = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except OSError as error:
        raise MlaotError(f"cannot read {path}: {error.strerror}") from None
    except safetensors.SafetensorError as error:
        raise MlaotError(f"{path} is not a safetensors file, or damaged: {error}") from None
    dtypes = {name.upper(): dtype for name, dtype in DTYPES.items()}
    arrays: dict[str, Parameter | Buffer] = {}
    for name, tensor in tensors:
        dtype = dtypes.get(tensor["dtype"])
        if dtype is None:
            raise MlaotError(f"{path}: {name}: expected an array of {', '.join(dtypes)}, got {tensor['dtype']}")
        arrays[name] = array_of(name, dtype, tensor["shape"], tensor["data"])
    return arrays


def array_of(name: str, dtype: DType, shape: list[int], data: bytes) -> Parameter | Buffer:
    """Convert bytes in little-endian order to a parameter or buffer."""
    if dtype is bf16:  # the upper half of a float32, as NumPy has no bfloat16
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        parameter = Parameter(name, wide.view(np.float32).reshape(shape))
        parameter.dtype_ = bf16
        return parameter
    array = np.frombuffer(data, np.dtype(dtype.numpy).newbyteorder("<")).astype(dtype.numpy).reshape(shape)
    return Parameter(name, array) if dtype.kind == "f" else Buffer(array, name)
