"""Make ``nn.npz``, ``optim.npz`` and ``special.npz``: what PyTorch computes for the cases of ``tests/nn``.

Those of ``cases.py`` in float64; those of ``special.py`` in the dtypes that they name, with gradients.

pip install torch==2.13.0 && python tests/reference/make_nn.py
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.nn import cases, further_cases, further_special, special  # noqa: E402

Arrays = dict[str, np.ndarray[Any, Any]]


def tensor(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(tensor, value))
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def function_results() -> Arrays:
    found = {}
    for case in further_cases.FUNCTIONS:
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
    for case in further_cases.LAYERS:
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


CYCLING = ("OneCycleLR", "CyclicLR")
CYCLES = {"max_lr": 0.5, "cycle_momentum": False}


def schedule_results() -> Arrays:
    """The rates of the first steps."""
    found = {}
    for number, (_, _, name, options) in enumerate(cases.SCHEDULES):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
        given = {**CYCLES, **options} if name in CYCLING else options
        schedule = getattr(torch.optim.lr_scheduler, name)(optimizer, **given)
        rates = []
        for _ in range(cases.RATES):
            rates.append(schedule.get_last_lr()[0])
            optimizer.step()
            if len(rates) < cases.RATES:
                schedule.step()
        found[f"schedule.{number}"] = np.array(rates)
    return found


def plateau_results() -> Arrays:
    found = {}
    for number, options in enumerate(cases.PLATEAUS):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        rates = []
        for measure in cases.measures():
            schedule.step(measure)
            rates.append(optimizer.param_groups[0]["lr"])
        found[f"plateau.{number}"] = np.array(rates)
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


def binary_cross_entropy(
    input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: str = "mean"
) -> torch.Tensor:
    """PyTorch's, and its formula for what is no probability, nan for one, which PyTorch itself refuses."""
    inside = (input >= 0) & (input <= 1)
    official = F.binary_cross_entropy(torch.where(inside, input, 0.5), target, weight, reduction="none")
    x = input.detach()
    loss = (target - 1) * torch.log(1 - x).clamp(min=-100) - target * torch.log(x).clamp(min=-100)
    return reduced(torch.where(inside, official, loss if weight is None else loss * weight), reduction)


def hinge_loss(input: torch.Tensor, target: torch.Tensor, margin: float = 1.0, reduction: str = "mean") -> torch.Tensor:
    return reduced(F.relu(margin - input * target), reduction)


def reduced(loss: torch.Tensor, reduction: str) -> torch.Tensor:
    return {"none": loss, "mean": loss.mean(), "sum": loss.sum()}[reduction]


# What PyTorch has no function for, or none that takes all values, of PyTorch's functions.
REFERENCES: dict[str, Callable[..., torch.Tensor]] = {
    "binary_cross_entropy": binary_cross_entropy,
    "hinge_loss": hinge_loss,
    "global_avg_pool": lambda x: x.mean(dim=tuple(range(2, x.ndim)), keepdim=True),
    "global_max_pool": lambda x: x.amax(dim=tuple(range(2, x.ndim)), keepdim=True),
    "flatten": torch.flatten,
}


class BCELoss(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy(input, target, **self.options)


def special_results() -> Arrays:
    """The outputs, as ``name.dtype:0`` and so on, and the gradients by the inputs, ``name.dtype:x0``."""
    found: Arrays = {}
    for case in (*further_special.FUNCTIONS, *further_special.LAYERS):
        for dtype in case.dtypes:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found |= {f"{case.name}.{dtype}:{key}": value for key, value in special_case(case, dtype).items()}
    return found


def special_case(case: special.Special, dtype: str) -> Arrays:
    function = layer_of(case, dtype) if case in special.LAYERS else REFERENCES.get(case.function)
    function = function or getattr(F, case.function)
    inputs, extra = case.arrays(dtype)
    tensors = [tensor(x) for x in inputs]
    options = {} if case in special.LAYERS else case.options
    extra = {name: tensor(value) for name, value in extra.items()}
    wanted = [tensors[i].requires_grad_() for i in case.differentiable(dtype)]
    outputs = cases.leaves(function(*tensors, **options, **extra))
    arrays = {str(i): output.detach().numpy() for i, output in enumerate(outputs)}
    if wanted:
        total = sum((output * tensor(special.cotangent(tuple(output.shape), dtype))).sum() for output in outputs)
        gradients = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
        arrays |= {f"x{i}": gradient.numpy() for i, gradient in zip(case.differentiable(dtype), gradients, strict=True)}
    return arrays


def layer_of(case: special.Special, dtype: str) -> Any:
    made = (BCELoss if case.function == "BCELoss" else getattr(nn, case.function))(*case.args, **case.options)
    made.train(case.training)
    made = made.to(getattr(torch, dtype))
    made.load_state_dict({k: tensor(cases.filling(k, tuple(v.shape))) for k, v in made.state_dict().items()})
    return made


def lion(x: torch.Tensor, gradient: torch.Tensor, steps: int, lr: float, weight_decay: float) -> list[Any]:
    """Chen et al. 2023, algorithm 2; the sign of nan is nan, and not 0 as PyTorch has it."""
    mean, rows = torch.zeros_like(x), []
    for _ in range(steps):
        mixed = 0.9 * mean + 0.1 * gradient
        x = x - lr * (torch.where(mixed.isnan(), mixed, torch.sign(mixed)) + weight_decay * x)
        mean = 0.99 * mean + 0.01 * gradient
        rows.append(x.numpy())
    return rows


def special_updates() -> Arrays:
    """The parameters after each update, where every value is a parameter with every value as its gradient."""
    found = {}
    for number, (name, options) in enumerate(cases.OPTIMIZERS):
        x, gradient = nn.Parameter(tensor(special.left("float32"))), tensor(special.right("float32"))
        optimizer = getattr(torch.optim, name)([x], **options)
        rows = []
        for _ in range(special.UPDATES):
            x.grad = gradient.clone()
            optimizer.step()
            rows.append(x.detach().numpy().copy())
        found[f"{name}.{number}"] = np.stack(rows)
    x, gradient = tensor(special.left("float32")), tensor(special.right("float32"))
    found["Lion"] = np.stack(lion(x, gradient, special.UPDATES, **special.LION[1]))
    for value in special.values("float32"):
        arrays = special.gradients_of(value)
        for norm_type in special.CLIP_NORMS:
            held = [nn.Parameter(tensor(v)) for v in arrays.values()]
            for parameter in held:
                parameter.grad = parameter.detach().clone()
            norm = nn.utils.clip_grad_norm_(held, 0.7, norm_type)
            clipped = [p.grad.numpy() for p in held if p.grad is not None]
            found[f"clip_grad_norm.{norm_type}.{value!r}"] = np.concatenate([norm.reshape(1).numpy(), *clipped])
    held = [nn.Parameter(tensor(special.values("float32")))]
    held[0].grad = held[0].detach().clone()
    nn.utils.clip_grad_value_(held, 0.7)
    found["clip_grad_value"] = held[0].grad.numpy()
    return found | late_rates()


def late_rates() -> Arrays:
    """The rates at steps that no test could count to, of schedules that have a formula."""
    found = {}
    for number, (_, _, name, options) in enumerate(cases.SCHEDULES):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
        if name in CYCLING:  # one ends, the other's numbers overflow
            continue
        schedule = getattr(torch.optim.lr_scheduler, name)(optimizer, **options)
        rates = []
        for step in special.LATE:
            if name == "LambdaLR":
                schedule.last_epoch = step
                rates.append(schedule.get_lr()[0])
            elif name == "CosineAnnealingWarmRestarts":
                schedule.step(step)
                rates.append(schedule.get_last_lr()[0])
            else:
                schedule.last_epoch = step
                rates.append(schedule._get_closed_form_lr()[0])
        found[f"schedule.{number}"] = np.array(rates)
    return found


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    np.savez_compressed(HERE / "special.npz", **special_results())
    np.savez_compressed(HERE / "special_optim.npz", **special_updates())
    version = {"torch": np.array(torch.__version__)}
    np.savez_compressed(HERE / "nn.npz", **(version | function_results() | layer_results() | gain_results()))
    rates = schedule_results() | plateau_results()
    np.savez_compressed(HERE / "optim.npz", **(version | optimizer_results() | rates | clip_results()))


if __name__ == "__main__":
    main()
