"""Language models in folders and checkpoints give the scores of the package transformers (``make_llm.py``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlaot import llm
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.llm.decoder import Config
from mlaot.llm.folder import read_folder
from mlaot.llm.llama2c import PARTS, read_checkpoint
from mlaot.loading import load_model
from mlaot.optim import SGD
from mlaot.settings.reading import load_settings

from ..projects import build_module, load, run

Array = np.ndarray[Any, Any]
Model = tuple[dict[str, Any], dict[str, Array]]
DATA = dict(np.load(Path(__file__).parents[1] / "reference" / "llm.npz"))
NAMES = sorted({key.partition("/")[0] for key in DATA} - {"tokens"})
TOKENS: list[int] = DATA["tokens"].tolist()


def model_of(name: str) -> Model:
    """The entries of a model's config.json, and its tensors."""
    own = {key.removeprefix(f"{name}/"): array for key, array in DATA.items() if key.startswith(f"{name}/")}
    return json.loads(str(own.pop("config"))), {key: array for key, array in own.items() if key != "scores"}


def write(folder: Path, config: Mapping[str, Any], tensors: dict[str, Array]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    half = len(tensors) // 2  # large models lie in several files
    for i, part in enumerate((list(tensors)[:half], list(tensors)[half:])):
        save_file({key: tensors[key] for key in part}, folder / f"model-{i}.safetensors")
    return folder


def checkpoint(config: Config, weights: Mapping[str, Array]) -> bytes:
    """The file that llama2.c's export.py writes."""
    layers, tokens = range(config.layers), config.tokens if config.tied else -config.tokens
    numbers = [config.width, config.hidden, config.layers, config.heads, config.groups, tokens, config.context]

    def neighbours(weight: Array) -> Array:
        """Pairs that turn together, from half a head apart to side by side."""
        return weight.reshape(-1, 2, config.size // 2, config.width).swapaxes(1, 2).reshape(weight.shape)

    arrays = [weights["embedding"], *(weights[f"blocks.{i}.norm1.weight"] for i in layers)]
    for part in PARTS:
        own = [weights[f"blocks.{i}.{part}.weight"] for i in layers]
        arrays += map(neighbours, own) if part in ("query", "key") else own
    arrays += [weights["norm.weight"], np.full(config.context * config.size, np.nan, np.float32)]
    arrays += [] if config.tied else [weights["head"]]
    return b"".join([np.array(numbers, "<i4").tobytes(), *(array.astype("<f4").tobytes() for array in arrays)])


def check_scores(path: Path, wanted: Array, site: Path, context: int | None = None) -> None:
    """Letter by letter, in one call, and in two."""
    nn = load(build_module(llm.load(path, context), "m", site, ("base",)))
    one_by_one = nn.Model()
    found = np.stack([np.asarray(one_by_one.forward([token])) for token in TOKENS])
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(np.asarray(nn.Model().forward(TOKENS)), wanted[-1], rtol=2e-5, atol=2e-5)
    parts = nn.Model()
    parts.forward(TOKENS[:3])
    np.testing.assert_allclose(np.asarray(parts.forward(TOKENS[3:])), wanted[-1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model", *model_of(name))
    check_scores(path, DATA[f"{name}/scores"], tmp_path / "site", context=len(TOKENS))


@pytest.mark.parametrize("name", NAMES)
def test_whole_texts_have_the_scores_of_transformers(name: str, tmp_path: Path) -> None:
    """In the form that trains, whose loss is the mean surprise at what follows."""
    path, wanted = write(tmp_path / "model", *model_of(name)), DATA[f"{name}/scores"].astype(np.float64)
    traced = llm.load(path, len(TOKENS), SGD(lr=0.1)).trace()
    texts = np.array([TOKENS, TOKENS[::-1]])
    found = evaluate(traced.graph, {**traced.parameters, "texts": texts})
    np.testing.assert_allclose(found["out"][0], wanted, rtol=2e-5, atol=2e-5)
    scores = found["out"].astype(np.float64)[:, :-1]
    chosen = np.take_along_axis(scores, texts[:, 1:, None], axis=-1)[..., 0]
    np.testing.assert_allclose(found["loss"], (np.log(np.exp(scores).sum(axis=-1)) - chosen).mean(), rtol=1e-5)
    with pytest.raises(MlaotError, match="must not be negative"):
        evaluate(traced.graph, {**traced.parameters, "texts": np.array([[*TOKENS, 1]])})


@pytest.mark.parametrize("name", NAMES)
def test_several_texts_at_once(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model", *model_of(name))
    nn = load(build_module(llm.load(path, len(TOKENS), texts=3), "m", tmp_path / "site", ("base",)))
    prompts, found = [TOKENS[:3], TOKENS[:1], TOKENS[2:7], TOKENS[1:3]], [list[int](), [], [], []]
    for number, token in nn.generate_all(prompts, temperature=0):
        found[number].append(token)
    assert found == [list(nn.generate(prompt, temperature=0)) for prompt in prompts]
    assert [len(answer) for answer in found] == [len(TOKENS) - len(prompt) for prompt in prompts]


def test_adapters_of_a_folder(tmp_path: Path) -> None:
    """``lora = { rank = 2 }``: whole texts train, and ``read`` reads on as it did, with the same adapters."""
    write(tmp_path / "llama", *model_of("llama"))
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "speak"\n[tool.mlaot.models.nn]\nllm = "llama"\ndims = { context = 9 }\n'
        'lora = { rank = 2, targets = ["*.query.*", "embedding"] }\n'
    )
    settings = load_settings(tmp_path)
    traced = load_model(settings, settings.models[0]).trace()
    queries = {f"blocks.{i}.query.lora_{side}.weight" for i in range(2) for side in "AB"}
    assert set(traced.parameters) == queries | {f"embedding.lora_{side}.weight" for side in "AB"}
    wanted, read = DATA["llama/scores"], traced.entries["read"]
    slots = {**traced.constants, **traced.buffers}
    found = evaluate(read, {**slots, **traced.parameters, "tokens": TOKENS})
    np.testing.assert_allclose(found["out"], wanted[-1], rtol=2e-5, atol=2e-5)
    moved = {name: array + np.float32(0.1) for name, array in traced.parameters.items()}
    found = evaluate(read, {**slots, **moved, "tokens": TOKENS})
    whole = evaluate(traced.graph, {**slots, **moved, "texts": [TOKENS]})
    np.testing.assert_allclose(found["out"], whole["out"][0, -1], rtol=2e-4, atol=2e-4)
    assert np.abs(found["out"] - wanted[-1]).max() > 1e-2 and "place" not in traced.graph.inputs


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_weights_of_16_bits(dtype: str, tmp_path: Path) -> None:
    """They are the numbers that they are, in float32."""
    entries, tensors = model_of("llama")
    wide = {key: array.astype(np.float16).astype(np.float32) for key, array in tensors.items()}
    if dtype == "BF16":
        wide = {key: (array.view(np.uint32) & 0xFFFF0000).view(np.float32) for key, array in tensors.items()}

    header, data = {}, b""
    for key, array in wide.items():
        narrow = (array.view(np.uint32) >> 16).astype("<u2") if dtype == "BF16" else array.astype("<f2")
        header[key] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + narrow.nbytes]}
        data += narrow.tobytes()
    folder, first = tmp_path / "model", json.dumps(header).encode()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(entries))
    (folder / "model.safetensors").write_bytes(len(first).to_bytes(8, "little") + first + data)
    _, weights = read_folder(folder)
    assert all(array.dtype == np.float32 for array in weights.values())
    np.testing.assert_array_equal(weights["embedding"], wide["model.embed_tokens.weight"])
    np.testing.assert_array_equal(weights["blocks.1.up.weight"], wide["model.layers.1.mlp.up_proj.weight"])


@pytest.mark.parametrize("tied", [False, True])
def test_a_checkpoint_of_llama2c(tied: bool, tmp_path: Path) -> None:
    """A model whose last layer is the table of tokens, and one that has a layer of its own."""
    entries, tensors = model_of("llama")
    entries |= {"rms_norm_eps": 1e-5, "tie_word_embeddings": tied}
    config, weights = read_folder(write(tmp_path / "folder", entries, tensors))
    file = tmp_path / "model.bin"
    file.write_bytes(checkpoint(config, weights))
    again, others = read_checkpoint(file)
    assert again == config and list(others) != [] and set(others) == set(weights)
    for name, array in weights.items():
        np.testing.assert_array_equal(others[name], array, err_msg=name)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(MlaotError, match=r"model.bin: expected .* bytes of a model as its first numbers say, got"):
        read_checkpoint(file)


@pytest.mark.parametrize(("name", "context"), [("phi3", 9), ("phi3 with longrope", 8), ("mistral", 16), ("gpt2", 16)])
def test_a_context_ends_where_a_window_does(name: str, context: int, tmp_path: Path) -> None:
    """Or where other waves begin."""
    assert read_folder(write(tmp_path / "model", *model_of(name)))[0].context == context


def test_a_project_that_names_a_folder(tmp_path: Path) -> None:
    """``llm = "llama"`` and nothing else; ``dims`` says how long a text may be."""
    write(tmp_path / "llama", *model_of("llama"))
    project = tmp_path / "pyproject.toml"
    project.write_text(
        '[build-system]\nrequires = ["mlaot"]\nbuild-backend = "mlaot.build"\n'
        '[project]\nname = "speak"\nversion = "1"\n'
        '[tool.mlaot.models.nn]\nllm = "llama"\ndims = { context = 9 }\n'
    )
    assert load_settings(tmp_path).models[0].kind == "llm"
    printed = run("-m", "mlaot", "inspect", tmp_path)
    assert "f32[1,9,4]" in printed
    project.write_text(project.read_text().replace("context = 9", "batch = 9"))
    said = run("-m", "mlaot", "inspect", tmp_path, status=1)
    assert "a language model has the dims 'context' and 'texts', got batch" in said


def without(entry: str) -> Callable[[Model], Any]:
    return lambda model: model[0].pop(entry)


def with_(**entries: Any) -> Callable[[Model], Any]:
    return lambda model: model[0].update(entries)


MISTAKES: dict[str, tuple[Callable[[Model], Any], str]] = {
    "kind": (
        with_(model_type="bert"),
        "model_type: expected one of gemma, gpt2, llama, mistral, phi3, qwen2, qwen3, got 'bert'",
    ),
    "missing": (without("hidden_size"), "config.json: hidden_size: expected int, got nothing"),
    "text": (with_(vocab_size="19"), "vocab_size: expected int, got '19'"),
    "truth": (with_(num_hidden_layers=True), "num_hidden_layers: expected int, got True"),
    "none": (with_(num_attention_heads=0), "config.json: expected a number of heads from 1 to 2,147,483,647, got 0"),
    "groups": (
        with_(num_key_value_heads=3),
        "expected heads of queries in equal groups for 3 of keys, got 2",
    ),
    "odd": (with_(head_dim=3), "expected heads of an even size, got 3"),
    "waves": (
        with_(rope_scaling={"rope_type": "dynamic"}),
        "expected waves of the type default, linear, llama3, longrope, yarn, got {'rope_type': 'dynamic'}",
    ),
    "waves by layer": (
        with_(rope_scaling={"full_attention": {"rope_type": "default"}}),
        "rope_scaling: expected the same waves in all layers, got {'full_attention': {'rope_type': 'default'}}",
    ),
    "waves without a factor": (
        with_(rope_scaling={"type": "linear"}),
        "rope_scaling.factor: expected float, got nothing",
    ),
    "a large base": (with_(rope_parameters=None, rope_theta=10**400), "rope_theta: expected float, got 1000000000"),
    "a factor of 0": (with_(rope_scaling={"type": "linear", "factor": 0}), "got 0.001 for epsilon, inf to inf for"),
    "a factor too few": (
        with_(rope_scaling={"type": "longrope", "short_factor": [1, 2, 3]}),
        "rope_scaling: expected 2 factors, got",
    ),
    "a part of none": (with_(partial_rotary_factor=0.1), "expected a part of 4 numbers of a head that turn, got 0.1"),
    "waves of a list": (with_(rope_scaling=[1]), "config.json: rope_scaling: expected dict, got [1]"),
    "a base of 0": (
        with_(rope_parameters=None, rope_theta=0.0),
        "expected finite numbers, got 0.001 for epsilon",
    ),
    "activation": (with_(hidden_act="relu6"), "hidden_act: expected one of silu, "),
    "shape": (with_(intermediate_size=13), "expected what config.json says, numbers [13, 8] for blocks.0.up"),
    "tensor": (lambda model: model[1].pop("lm_head.weight"), "no tensor lm_head.weight; config.json says that there"),
    "integers": (
        lambda model: model[1].update({"lm_head.weight": np.zeros((19, 8), np.int32)}),
        "for head, got int32 [19, 8]",
    ),
    "many": (with_(num_hidden_layers=10**9), "expected a number of layers from 1 to 10,000, got 1,000,000,000"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_wrong_with_a_folder_is_said(name: str, tmp_path: Path) -> None:
    model = model_of("llama")
    MISTAKES[name][0](model)
    with pytest.raises(MlaotError) as raised:
        llm.load(write(tmp_path / "model", *model))
    assert MISTAKES[name][1] in str(raised.value)


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        MlaotError, match=r"no file or folder none; expected a folder with config.json, a GGUF file, or a"
    ):
        llm.load("none")
    with pytest.raises(MlaotError, match=r"cannot read .*config.json: No such file"):
        llm.load(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(MlaotError, match=r"config.json is nested too deeply"):
        llm.load(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(MlaotError, match=r"config.json is damaged: expected the whole to be an object, got list"):
        llm.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(model_of("llama")[0]))
    with pytest.raises(MlaotError, match=r"no \*.safetensors in "):
        llm.load(tmp_path)
    file = tmp_path / "model.bin"
    for data in (b"", bytes(28), np.array([8, 12, 2**30, 4, 2, 19, 2**30], "<i4").tobytes(), bytes(range(256))):
        file.write_bytes(data)
        with pytest.raises(MlaotError, match=r"model.bin: expected"):
            llm.load(file)
    with pytest.raises(MlaotError, match=r"context: expected 2 to 16, the model's own, got 17"):
        llm.load(write(tmp_path / "model", *model_of("llama")), context=17)
