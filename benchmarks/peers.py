"""One runtime on one workload in a process of its own, which need not know mlaot: reads JSON lines, writes JSON lines.

    python peers.py PEER FOLDER        # PEER is a key of PEERS; outputs go to FOLDER/PEER.npz, then it times on request
    python peers.py --make FILE FOLDER # FILE is a key of MAKERS

FOLDER holds ``workload.json``, ``inputs.npz`` and ``weights.npz``, and what the peer needs of ``nn.abi3.so``,
``model.onnx`` and ``model.tflite``. Every runtime gets one thread.
"""

import importlib
import importlib.machinery
import importlib.util
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[..., Any]


def mlaot(folder: Path, work: dict[str, Any]) -> Run:
    spec = importlib.util.spec_from_file_location("nn", folder / "nn.abi3.so")
    assert spec is not None and spec.loader is not None
    nn = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nn)
    if not work["batch"]:
        return nn.forward

    def epoch(x: Any, label: Any) -> Any:
        nn.fit(x, label, batch=work["batch"], lr=work["rate"], shuffle=False)
        return [np.array(nn.parameters[name]) for name in work["parameters"]]

    return epoch


def ort(folder: Path, work: dict[str, Any]) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    names, run = [value.name for value in session.get_inputs()], session.run
    return lambda *arrays: run(None, dict(zip(names, arrays, strict=True)))


def openvino(folder: Path, work: dict[str, Any]) -> Run:
    import openvino

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": "1", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(folder / "model.onnx", "CPU", settings)
    infer, places = compiled.create_infer_request().infer, range(len(compiled.outputs))

    def run(*arrays: Any) -> Any:
        found = infer(arrays, share_inputs=True, share_outputs=True)
        return [found[i] for i in places]

    return run


def litert(folder: Path, work: dict[str, Any]) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(folder / "model.tflite"), num_threads=1)
    interpreter.allocate_tensors()
    given = sorted(interpreter.get_input_details(), key=lambda detail: detail["name"])
    inputs = [(detail["index"], detail["dtype"]) for detail in given]
    outputs = [d["index"] for d in sorted(interpreter.get_output_details(), key=lambda detail: detail["name"])]

    def run(*arrays: Any) -> Any:
        for (index, dtype), array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(index, array.astype(dtype, copy=False))
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return run


def torch(folder: Path, work: dict[str, Any], compiled: bool = False) -> Run:
    import torch

    torch.set_num_threads(1)
    net = torch_network(folder, work)
    if work["batch"]:
        return torch_epoch(net, work, compiled)
    if compiled:
        importlib.import_module("torch._inductor.config").freezing = True
        net = torch.compile(net)

    def run(*arrays: Any) -> Any:
        with torch.no_grad():
            found = net(*[torch.from_numpy(array) for array in arrays])
        return [part.numpy() for part in (found if isinstance(found, tuple) else (found,))]

    return run


def torch_epoch(net: Any, work: dict[str, Any], compiled: bool) -> Run:
    import torch

    optimizer, size = torch.optim.SGD(net.parameters(), lr=work["rate"]), work["batch"]

    def loss(x: Any, label: Any) -> Any:
        return torch.nn.functional.cross_entropy(net(x), label)

    loss_of = torch.compile(loss) if compiled else loss

    def epoch(x: Any, label: Any) -> Any:
        for i in range(0, len(x), size):
            optimizer.zero_grad()
            loss_of(torch.from_numpy(x[i : i + size]), torch.from_numpy(label[i : i + size])).backward()
            optimizer.step()
        return [parameter.detach().numpy().copy() for parameter in net.parameters()]

    return epoch


def torch_compile(folder: Path, work: dict[str, Any]) -> Run:
    return torch(folder, work, compiled=True)


def jax_scan(folder: Path, work: dict[str, Any]) -> Run:
    """An epoch as one compiled call, a scan over its batches."""
    import jax
    import jax.numpy as jnp

    made = {"mnist": jax_mlp, "lenet": jax_lenet}
    if work["network"] not in made:
        raise NotImplementedError(f"jax-scan has {' and '.join(made)}")
    net, size = made[work["network"]], work["batch"]
    weights = {key: jnp.asarray(value) for key, value in np.load(folder / "weights.npz").items()}

    def loss(weights: Any, x: Any, label: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(net(weights, x)), label[:, None], 1).mean()

    def step(weights: Any, batch: Any) -> Any:
        gradients = jax.grad(loss)(weights, *batch)
        return jax.tree.map(lambda weight, gradient: weight - work["rate"] * gradient, weights, gradients), None

    @jax.jit
    def epoch(weights: Any, x: Any, label: Any) -> Any:
        batches = x.reshape(-1, size, *x.shape[1:]), label.reshape(-1, size)
        return jax.lax.scan(step, weights, batches)[0]

    def run(x: Any, label: Any) -> Any:
        nonlocal weights
        weights = epoch(weights, x, label)
        return [np.asarray(weights[name]) for name in work["parameters"]]

    return run


def jax_mlp(weights: Any, x: Any) -> Any:
    import jax

    layers = len(weights) // 2
    for i in range(layers):
        x = x @ weights[f"layers.{i}.weight"].T + weights[f"layers.{i}.bias"]
        x = jax.nn.relu(x) if i < layers - 1 else x
    return x


def jax_lenet(weights: Any, x: Any) -> Any:
    """Channels last inside, as JAX likes them on CPUs."""
    import jax
    import jax.numpy as jnp

    def convolution(x: Any, name: str, padding: int) -> Any:
        kernel, pad = weights[f"{name}.weight"].transpose(2, 3, 1, 0), [(padding, padding)] * 2
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), pad, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + weights[f"{name}.bias"])
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    x = convolution(convolution(x.transpose(0, 2, 3, 1), "c1", 2), "c2", 0)
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    for name in ("f1", "f2", "f3"):
        x = x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        x = jax.nn.relu(x) if name != "f3" else x
    return x


def torch_network(folder: Path, work: dict[str, Any]) -> Any:
    import torch
    from networks import networks

    made = networks(torch.nn, torch)
    if work["network"] not in made:
        raise NotImplementedError("trees: --data has them as <workload>.onnx")
    net = made[work["network"]]()
    weights = np.load(folder / "weights.npz")
    net.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights}, strict=False)
    return net if work["batch"] else net.eval().requires_grad_(False)


def examples(folder: Path) -> tuple[Any, ...]:
    import torch

    return tuple(torch.from_numpy(array) for array in np.load(folder / "inputs.npz").values())


def make_onnx(folder: Path, work: dict[str, Any]) -> None:
    import torch

    given = examples(folder)
    options = {"input_names": [f"in{i}" for i in range(len(given))], "opset_version": 17, "dynamo": False}
    torch.onnx.export(torch_network(folder, work), given, folder / "model.onnx", **options)


def make_tflite(folder: Path, work: dict[str, Any]) -> None:
    import litert_torch

    litert_torch.convert(torch_network(folder, work), examples(folder)).export(str(folder / "model.tflite"))


# The package that each needs, and the file.
PEERS: dict[str, tuple[Callable[[Path, dict[str, Any]], Run], str, str]] = {
    "mlaot": (mlaot, "numpy", "nn.abi3.so"),
    "ort": (ort, "onnxruntime", "model.onnx"),
    "openvino": (openvino, "openvino", "model.onnx"),
    "litert": (litert, "ai_edge_litert", "model.tflite"),
    "torch": (torch, "torch", "weights.npz"),
    "torch-compile": (torch_compile, "torch", "weights.npz"),
    "jax-scan": (jax_scan, "jax", "weights.npz"),
}
TRAINING = ("mlaot", "torch", "torch-compile", "jax-scan")
TREES = ("mlaot", "ort")
MAKERS = {"model.onnx": (make_onnx, "torch"), "model.tflite": (make_tflite, "litert_torch")}


def serve(peer: str, folder: Path, work: dict[str, Any]) -> None:
    """Run on each input and keep the outputs; then, for each number of milliseconds read, time the calls in it."""
    arrays = list(np.load(folder / "inputs.npz").values())
    turns = [[array[i : i + 1] for array in arrays] for i in range(len(arrays[0]))] if work["rows"] else [arrays]
    run = PEERS[peer][0](folder, work)
    outputs = [[np.array(array) for array in several(run(*given))] for given in turns]
    np.savez(folder / f"{peer}.npz", *[np.stack(parts) for parts in zip(*outputs, strict=True)])
    answer({"ready": True})
    clock, calls = time.perf_counter_ns, itertools.cycle(turns)
    for line in sys.stdin:
        times: list[int] = []
        end = clock() + int(float(line) * 1e6)
        while len(times) < 3 or clock() < end:
            given = next(calls)
            start = clock()
            run(*given)
            times.append(clock() - start)
        answer({"median": statistics.median(times[1:]), "best": min(times)})  # the first one finds cold caches


def several(found: Any) -> Any:
    return found if isinstance(found, list | tuple) else [found]


def answer(words: dict[str, Any]) -> None:
    os.write(OUT, f"{json.dumps(words)}\n".encode())


if __name__ == "__main__":
    OUT = os.dup(1)
    os.dup2(2, 1)  # what a runtime prints is no answer
    *making, what, where = sys.argv[1:]
    described = json.loads(Path(where, "workload.json").read_text())
    if making:
        MAKERS[what][0](Path(where), described)
    else:
        serve(what, Path(where), described)
