"""Images that callers have as bytes of files: decoded before a model computes, by Pillow."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.onnx import Backend, load
from mlaot.onnx.declare import references
from mlaot.settings.options import Options

from ..projects import build_module, plain_module
from ..projects import load as load_module

PIXELS = np.random.default_rng(0).integers(0, 256, (13, 17, 3), np.uint8)
HEAD = '<ir_version: 10, opset_import: ["": 20]>'
# The pixels themselves, and a small network behind them, whose height and width are open.
NETWORK = """
net (uint8[n] encoded, float[2,3,3,3] w) => (float[1,2,8,10] y, uint8[height,width,3] image, int64 size) {
    image = ImageDecoder<pixel_format="BGR">(encoded)
    sizes = Constant<value=int64[3] {8, 10, 3}>()
    most = Constant<value=float {255.0}>()
    zero = Constant<value=int64[1] {0}>()
    numbers = Cast<to=1>(image)
    small = Resize<mode="linear">(numbers, , , sizes)
    share = Div(small, most)
    channels = Transpose<perm=[2,0,1]>(share)
    batch = Unsqueeze(channels, zero)
    y = Conv<pads=[1,1,1,1]>(batch, w)
    size = Size(encoded)
}"""


def parsed(text: str) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.parser.parse_model(f"{HEAD} {text}")
    return model


def file_of(image: Any, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


PNG = file_of(Image.fromarray(PIXELS))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, ModuleType]:
    """The network compiled, and in plain Python."""
    folder, declared = tmp_path_factory.mktemp("images"), load(parsed(NETWORK))
    compiled = load_module(build_module(declared, "seeing", folder / "c", ("base",), golden=True))
    return compiled, plain_module(declared, "seeing_python", folder / "python", golden=True)


def test_a_network_behind_it(modules: tuple[ModuleType, ModuleType]) -> None:
    """It computes what it does of the pixels as an array; modules are tested with pixels that nobody has encoded."""
    w = np.random.default_rng(1).normal(size=(2, 3, 3, 3)).astype(np.float32)
    text = NETWORK.replace("uint8[n] encoded", "uint8[height,width,3] image")
    text = text.replace(", uint8[height,width,3] image, int64 size", "")
    text = "\n".join(line for line in text.splitlines() if "(encoded)" not in line)
    (wanted,) = Backend.prepare(parsed(text)).run([PIXELS[:, :, ::-1], w])
    for module in modules:
        assert module.info()["entries"]["forward"]["inputs"]["encoded"] == "uint8[n]"
        assert module.selftest()
        y, image, size = module.forward(PNG, w)
        np.testing.assert_allclose(y.tolist(), wanted, atol=1e-5)
        np.testing.assert_array_equal(image.tolist(), PIXELS[:, :, ::-1])
        assert size.tolist() == len(PNG)


def test_what_holds_the_bytes(modules: tuple[ModuleType, ModuleType]) -> None:
    w = np.zeros((2, 3, 3, 3), np.float32)
    array = np.frombuffer(PNG, np.uint8)
    for module in modules:
        for given in (array, bytearray(PNG), memoryview(PNG), array.repeat(2)[::2], array.tolist()):
            assert module.forward(given, w)[1].tolist() == PIXELS[:, :, ::-1].tolist()
        for wrong in (array.astype(np.int32), "bytes"):
            with pytest.raises(TypeError, match=r"forward: encoded: expected uint8\[n\], got"):
                module.forward(wrong, w)


def test_images_of_other_kinds_become_what_is_asked_for(modules: tuple[ModuleType, ModuleType]) -> None:
    w = np.zeros((2, 3, 3, 3), np.float32)
    for mode in ("L", "RGBA", "P", "1", "I;16", "CMYK"):
        image = Image.fromarray(PIXELS).convert("L" if mode == "I;16" else mode).convert(mode)
        kind = "TIFF" if mode == "CMYK" else "PNG"
        wanted = np.asarray(Image.open(io.BytesIO(file_of(image, kind))).convert("RGB"))[:, :, ::-1]
        for module in modules:
            assert module.forward(file_of(image, kind), w)[1].tolist() == wanted.tolist(), mode


def test_what_is_no_image_is_refused(modules: tuple[ModuleType, ModuleType]) -> None:
    """Also a kind of file that ONNX does not name, of which some start other programs."""
    w = np.zeros((2, 3, 3, 3), np.float32)
    jpeg = file_of(Image.fromarray(PIXELS), "JPEG")
    for module in modules:
        for wrong in (b"", b"no image", PNG[:-60], jpeg[:300], file_of(Image.fromarray(PIXELS), "GIF")):
            with pytest.raises(ValueError, match="forward: encoded: expected an image; Pillow says: "):
                module.forward(wrong, w)
        assert module.forward(PNG, w)[1].shape == (13, 17, 3)


def test_without_pillow(modules: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, None)
    for module in modules:
        with pytest.raises(ImportError, match="decoded by Pillow, which cannot be imported: pip install pillow"):
            module.forward(PNG, np.zeros((2, 3, 3, 3), np.float32))


def test_an_image_of_another_size_than_the_file_has(tmp_path: Path) -> None:
    text = (
        'gray (uint8[n] encoded) => (uint8[32,17,1] image) { image = ImageDecoder<pixel_format="Grayscale">(encoded) }'
    )
    module = load_module(build_module(load(parsed(text)), "sized", tmp_path / "c", ("base",)))
    with pytest.raises(ValueError, match=r"expected uint8\[32, 17, 1\], got uint8\[13, 17, 1\]"):
        module.forward(PNG)
    tall = Image.fromarray(PIXELS).resize((17, 32))
    assert np.asarray(module.forward(file_of(tall))).tolist() == np.asarray(tall.convert("L"))[:, :, None].tolist()


def test_what_a_wheel_needs() -> None:
    """Pillow, where images are decoded; and nobody else computes a model of them to compare with."""
    text = "m (uint8[n] x) => (uint8[h,w,3] y) { y = ImageDecoder(x) }"
    assert references(parsed(text)) == {}
    for model, needed in ((text, ["pillow"]), ("m (uint8[n] x) => (uint8[n] y) { y = Add(x, x) }", None)):
        files = program_files(compile_model(load(parsed(model)), "t.nn", Options(isas=("base",))))
        assert json.loads(files["model.json"]).get("requires") == needed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m (uint8[n] x) => (uint8[h,w,3] y) { z = Add(x, x) y = ImageDecoder(z) }", "let callers pass its bytes"),
        ("m () => (uint8[h,w,3] y) <uint8[2] x = {1, 2}> { y = ImageDecoder(x) }", "let callers pass its bytes"),
        ('m (uint8[n] x) => (uint8[h,w,3] y) { y = ImageDecoder<pixel_format="HSV">(x) }', "no pixel_format 'HSV'"),
        (
            "m (uint8[n] x, bool b) => (uint8[h,w,3] y) {"
            " y = If(b) <then_branch = t () => (uint8[h,w,3] u) { u = ImageDecoder(x) },"
            " else_branch = e () => (uint8[h,w,3] v) { v = ImageDecoder(x) }> }",
            "it decodes an image in a branch",
        ),
    ],
)
def test_what_is_not_decoded(text: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        load(parsed(text)).trace()
