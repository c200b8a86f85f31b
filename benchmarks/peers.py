"""One runtime on one workload in a process of its own, which need not know mlaot: reads JSON lines, writes JSON lines.

    python peers.py PEER FOLDER          # PEER is a key of PEERS; outputs to FOLDER/PEER.npz, then it times on request
    python peers.py --first PEER FOLDER  # says so once the first output is there, and ends
    python peers.py --make FILE FOLDER   # FILE is a key of MAKERS

FOLDER holds ``workload.json``, ``inputs.npz`` and ``weights.npz``, and what the peer needs of ``nn.abi3.so``,
``model.onnx`` and ``model.tflite``; that of a forest ``forest.joblib``. Every runtime gets one thread.
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
        return nn.predict if work.get("network") == "forest" else nn.forward

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


def aoti(folder: Path, work: dict[str, Any]) -> Run:
    import torch

    torch.set_num_threads(1)
    model = torch._inductor.aoti_load_package(str(folder / "model.pt2"))

    def run(*arrays: Any) -> Any:
        with torch.no_grad():
            return [part.numpy() for part in several(model(*[torch.from_numpy(array) for array in arrays]))]

    return run


def executorch(folder: Path, work: dict[str, Any]) -> Run:
    import torch
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(folder / "model.pte")
    method = program.load_method("forward")
    return lambda *arrays: [part.numpy() for part in method.execute([torch.from_numpy(array) for array in arrays])]


def iree(folder: Path, work: dict[str, Any]) -> Run:
    from iree import runtime

    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    module = runtime.VmModule.mmap(context.instance, str(folder / "model.vmfb"))
    context.add_vm_module(module)
    run = context.modules[module.name].main_graph
    return lambda *arrays: [part.to_host() for part in several(run(*arrays))]


def tvm(folder: Path, work: dict[str, Any]) -> Run:
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type] # which TVM imports where it is, and does not need
    import tvm

    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(folder / "model.tvm.so")), tvm.cpu())
    run, tensor = machine["main"], tvm.runtime.tensor
    return lambda *arrays: [part.numpy() for part in several(run(*[tensor(array) for array in arrays]))]


def sklearn(folder: Path, work: dict[str, Any]) -> Run:
    import joblib

    return joblib.load(folder / "forest.joblib").predict


def tl2cgen(folder: Path, work: dict[str, Any]) -> Run:
    import tl2cgen

    predictor = tl2cgen.Predictor(str(folder / "forest.so"), nthread=1)
    return lambda x: predictor.predict(tl2cgen.DMatrix(x))


def emlearn(folder: Path, work: dict[str, Any]) -> Run:
    """The C that emlearn writes, which is meant to be part of a program in C, called through ctypes."""
    import ctypes

    predict = ctypes.CDLL(str(folder / "emlearn.so")).forest_predict
    predict.argtypes, predict.restype = [ctypes.c_void_p, ctypes.c_int32], ctypes.c_float
    return lambda x: np.float32([predict(row.ctypes.data, len(row)) for row in x])


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


def make_aoti(folder: Path, work: dict[str, Any]) -> None:
    import torch

    exported = torch.export.export(torch_network(folder, work), examples(folder))
    settings = {"freezing": True}  # as PyTorch advises for CPUs
    torch._inductor.aoti_compile_and_package(
        exported, package_path=str(folder / "model.pt2"), inductor_configs=settings
    )


def make_executorch(folder: Path, work: dict[str, Any]) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(torch_network(folder, work), examples(folder))
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    (folder / "model.pte").write_bytes(program.buffer)


def make_iree(folder: Path, work: dict[str, Any]) -> None:
    """From ``model.onnx``."""
    import subprocess

    from iree import compiler

    text = folder / "model.mlir"
    importing = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(folder / "model.onnx"), "-o", str(text)]
    subprocess.run(importing, check=True)
    flags = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
    options = {"input_type": "onnx", "target_backends": ["llvm-cpu"], "extra_args": flags}
    compiler.compile_file(str(text), output_file=str(folder / "model.vmfb"), **options)


def make_tvm(folder: Path, work: dict[str, Any]) -> None:
    """From ``model.onnx``, without tuning."""
    import onnx
    import tvm
    from tvm.relax.frontend.onnx import from_onnx

    module = tvm.relax.get_pipeline("zero")(from_onnx(onnx.load(folder / "model.onnx")))
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    compiled = tvm.compile(module, tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1}))
    compiled.export_library(str(folder / "model.tvm.so"))


def make_tl2cgen(folder: Path, work: dict[str, Any]) -> None:
    import joblib
    import tl2cgen
    import treelite

    model = treelite.sklearn.import_model(joblib.load(folder / "forest.joblib"))
    cut = {"parallel_comp": os.cpu_count()}  # one file would take minutes to compile
    tl2cgen.export_lib(model, toolchain="gcc", libpath=str(folder / "forest.so"), params=cut)


def make_emlearn(folder: Path, work: dict[str, Any]) -> None:
    import subprocess

    import emlearn
    import joblib

    converted = emlearn.convert(joblib.load(folder / "forest.joblib"), method="inline", dtype="float")
    source = folder / "emlearn.c"
    converted.save(file=str(source), name="forest")
    flags = ["-O3", "-shared", "-fPIC", "-I", emlearn.includedir]
    subprocess.run(["cc", *flags, str(source), "-o", str(folder / "emlearn.so")], check=True)


# The package that each needs, and the file.
PEERS: dict[str, tuple[Callable[[Path, dict[str, Any]], Run], str, str]] = {
    "mlaot": (mlaot, "numpy", "nn.abi3.so"),
    "ort": (ort, "onnxruntime", "model.onnx"),
    "openvino": (openvino, "openvino", "model.onnx"),
    "litert": (litert, "ai_edge_litert", "model.tflite"),
    "torch": (torch, "torch", "weights.npz"),
    "torch-compile": (torch_compile, "torch", "weights.npz"),
    "jax-scan": (jax_scan, "jax", "weights.npz"),
    "aoti": (aoti, "torch", "model.pt2"),
    "executorch": (executorch, "executorch", "model.pte"),
    "iree": (iree, "iree", "model.vmfb"),
    "tvm": (tvm, "tvm", "model.tvm.so"),
    "sklearn": (sklearn, "sklearn", "forest.joblib"),
    "tl2cgen": (tl2cgen, "tl2cgen", "forest.so"),
    "emlearn": (emlearn, "emlearn", "emlearn.so"),
}
TRAINING = ("mlaot", "torch", "torch-compile", "jax-scan")
TREES = ("mlaot", "ort")
AHEAD = ("mlaot", "ort", "aoti", "executorch", "iree", "tvm")  # what a user ships a network with
SERVING = (*AHEAD, "openvino", "litert", "torch", "torch-compile")
FOREST = ("mlaot", "ort", "sklearn", "tl2cgen", "emlearn")
MAKERS = {
    "model.onnx": (make_onnx, "torch"),
    "model.tflite": (make_tflite, "litert_torch"),
    "model.pt2": (make_aoti, "torch"),
    "model.pte": (make_executorch, "executorch"),
    "model.vmfb": (make_iree, "iree"),
    "model.tvm.so": (make_tvm, "tvm"),
    "forest.so": (make_tl2cgen, "tl2cgen"),
    "emlearn.so": (make_emlearn, "emlearn"),
}


def serve(peer: str, folder: Path, work: dict[str, Any], first_only: bool = False) -> None:
    """Run on each input and keep the outputs; then, for each number of milliseconds read, time the calls in it."""
    arrays = list(np.load(folder / "inputs.npz").values())
    turns = [[array[i : i + 1] for array in arrays] for i in range(len(arrays[0]))] if work["rows"] else [arrays]
    run = PEERS[peer][0](folder, work)
    if first_only:
        several(run(*turns[0]))
        return answer({"ready": True})
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
    *mode, what, where = sys.argv[1:]
    described = json.loads(Path(where, "workload.json").read_text())
    if mode == ["--make"]:
        MAKERS[what][0](Path(where), described)
    else:
        serve(what, Path(where), described, first_only=mode == ["--first"])
