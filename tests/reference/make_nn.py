"""Make ``nn.npz`` and ``optim.npz``: what PyTorch computes, in float64, for the cases of ``tests/nn/cases.py``.

pip install torch==2.13.0 && python tests/reference/make_nn.py
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "nn"))

import cases  # noqa: E402

Arrays = dict[str, np.ndarray[Any, Any]]


def tensor(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(tensor, value))
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def function_results() -> Arrays:
    found = {}
    for case in cases.FUNCTIONS:
        inputs, extra = case.arrays()
        options = {**case.options, **{k: tensor(v) for k, v in extra.items()}}
        if case.function == "one_hot":
            options = {"num_classes": -1, **options}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[case.name] = getattr(F, case.function)(*map(tensor, inputs), **options).numpy()
    return found


def layer_results() -> Arrays:
    """Outputs; the names of the state; and the running statistics after training."""
    found = {}
    for case in cases.LAYERS:
        made = getattr(nn, case.layer)(*case.args, **case.options)
        made.train(case.training)
        state = {k: tensor(cases.filling(k, tuple(v.shape))).to(v.dtype) for k, v in made.state_dict().items()}
        made.load_state_dict(state)
        inputs, call = case.arrays()
        unique = {id(x): tensor(x) for x in inputs}
        with torch.no_grad():
            outputs = made(*[unique[id(x)] for x in inputs], **{k: tensor(v) for k, v in call.items()})
        for i, output in enumerate(cases.leaves(outputs)):
            found[f"{case.name}:{i}"] = output.numpy()
        found[f"{case.name}:names"] = np.array([f"{k} {list(v.shape)}" for k, v in state.items()], dtype=str)
        if case.training:
            for name, buffer in made.named_buffers():
                found[f"{case.name}:after {name}"] = buffer.numpy()
    return found


def optimizer_results() -> Arrays:
    """The parameters after each step, those of all shapes in one row."""
    found = {}
    for number, (name, options) in enumerate(cases.OPTIMIZERS):
        held = {k: nn.Parameter(tensor(v)) for k, v in cases.optimizer_arrays(-1).items()}
        optimizer = getattr(torch.optim, name)(held.values(), **options)
        rows = []
        for step in range(cases.STEPS):
            for k, gradient in cases.optimizer_arrays(step).items():
                held[k].grad = tensor(gradient)
            optimizer.step()
            rows.append(np.concatenate([p.detach().numpy().ravel() for p in held.values()]))
        found[f"{name}.{number}"] = np.stack(rows)
    return found


def schedule_results() -> Arrays:
    """The rates of the first steps."""
    found = {}
    for number, (_, _, name, options) in enumerate(cases.SCHEDULES):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
        given = {"max_lr": 0.5, "cycle_momentum": False, **options} if name == "OneCycleLR" else options
        schedule = getattr(torch.optim.lr_scheduler, name)(optimizer, **given)
        rates = []
        for _ in range(cases.RATES):
            rates.append(schedule.get_last_lr()[0])
            optimizer.step()
            if len(rates) < cases.RATES:
                schedule.step()
        found[f"schedule.{number}"] = np.array(rates)
    return found


def clip_results() -> Arrays:
    """Gradients clipped by norm: of several kinds, once smaller than the limit."""
    found = {}
    for norm_type in (1.0, 2.0, 3.0, float("inf")):
        for limit in (0.5, 1000.0):
            held = [nn.Parameter(tensor(v)) for v in cases.optimizer_arrays(0).values()]
            for parameter in held:
                parameter.grad = parameter.detach().clone()
            norm = nn.utils.clip_grad_norm_(held, limit, norm_type)
            clipped = [p.grad.numpy().ravel() for p in held if p.grad is not None]
            found[f"clip.{norm_type}.{limit}"] = np.concatenate([norm.reshape(1).numpy(), *clipped])
    return found


def gain_results() -> Arrays:
    names = ("linear", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu")
    found = {f"gain.{name}": np.array(nn.init.calculate_gain(name)) for name in names}
    return found | {"gain.leaky_relu.0.3": np.array(nn.init.calculate_gain("leaky_relu", 0.3))}


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    version = {"torch": np.array(torch.__version__)}
    np.savez_compressed(HERE / "nn.npz", **(version | function_results() | layer_results() | gain_results()))
    np.savez_compressed(HERE / "optim.npz", **(version | optimizer_results() | schedule_results() | clip_results()))


if __name__ == "__main__":
    main()
