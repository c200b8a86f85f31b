"""Build with setuptools: ``build-backend = "setuptools.build_meta"`` and a ``[tool.mlaot]`` table, without setup.py.

The entry point ``setuptools.finalize_distribution_options`` adds the extension modules to the distribution, and
commands that let mlaot generate and compile them. The base class of distutils would add the interpreter's own flags,
and cannot set flags per file. The project lists what tracing needs in ``[build-system] requires``, as setuptools cannot
ask for more.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from setuptools import Distribution, Extension, find_namespace_packages

from mlaot.build.budget import check_wheel
from mlaot.build.checksums import verify_checksums
from mlaot.build.hooks import build_folder, generate_files, is_frozen, one_line_errors, watch_sources
from mlaot.build.metadata import write_metadata
from mlaot.build.module import build_module, build_runtime, copy_sessions
from mlaot.build.platforms import abi_name
from mlaot.build.pyinstaller import hook_files
from mlaot.build.requirements import check_requirements, imports_of
from mlaot.build.toolchain import check_interpreter, describe_compiler, find_toolchain, is_free_threaded, own_abi
from mlaot.build.wheel_entries import add_entries
from mlaot.errors import MlaotError
from mlaot.settings import FILE, FROZEN, ONNXRUNTIME, ModelSettings, Settings
from mlaot.settings.reading import load_settings
from mlaot.settings.tables import read_pyproject
from mlaot.stages import PACKING, report_progress, stage

ZIP_EPOCH = "315532800"  # the first day of 1980, the earliest that a zip file can hold


class ModelExtension(Extension):
    """An extension module that mlaot makes from a model, or without a model the runtime that the models share."""

    def __init__(self, model: ModelSettings | None, settings: Settings) -> None:
        super().__init__(model.module if model else settings.runtime, sources=[], py_limited_api=True)
        self.model = model
        self.settings = settings


def finalize(dist: Distribution) -> None:
    """Set up each distribution that has a ``[tool.mlaot]`` table; setuptools calls this for all of them."""
    if not uses_mlaot(Path(FILE)):
        return
    with one_line_errors():
        settings = load_settings(Path())
    extensions = dist.ext_modules or []
    models = [*([None] if settings.runtime else []), *settings.models]
    dist.ext_modules = [*extensions, *(ModelExtension(model, settings) for model in models)]
    is_limited = all(extension.py_limited_api for extension in extensions)
    if is_limited and not is_free_threaded():
        dist.get_option_dict("bdist_wheel")["py_limited_api"] = (FILE, "cp311")
    own_tag = is_limited and is_free_threaded()
    dist.cmdclass["build_ext"] = build_ext_class(dist.get_command_class("build_ext"))
    dist.cmdclass["bdist_wheel"] = bdist_wheel_class(dist.get_command_class("bdist_wheel"), settings, own_tag=own_tag)
    dist.cmdclass["build_py"] = build_py_class(dist.get_command_class("build_py"), settings)
    dist.cmdclass["sdist"] = sdist_class(dist.get_command_class("sdist"), settings)
    if holds_models_only(dist):
        dist.packages, dist.py_modules = [], []


def uses_mlaot(path: Path) -> bool:
    """Tell whether this is a setuptools project with ``[tool.mlaot]``; setuptools reports a broken pyproject.toml."""
    try:
        pyproject = tomllib.loads(path.read_text(encoding="utf-8"))
        backend = pyproject.get("build-system", {}).get("build-backend", "setuptools.build_meta:__legacy__")
        return "mlaot" in pyproject.get("tool", {}) and backend.startswith("setuptools.")
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def holds_models_only(dist: Distribution) -> bool:
    """Tell whether the folder has no packages.

    Its model.py is then only for the build, while setuptools would ship it as a module.
    """
    tool = tomllib.loads(Path(FILE).read_text(encoding="utf-8"))["tool"].get("setuptools", {})
    explicit = dist.packages or dist.py_modules or {"packages", "py-modules", "package-dir"} & set(tool)
    files = any(Path(name).exists() for name in ("setup.py", "setup.cfg", "src"))
    return (
        not explicit and not files and not find_namespace_packages(exclude=["[._]*", "build*", "dist", "test*", "*.*"])
    )


def build_ext_class(base: Any) -> Any:
    """Derive the project's ``build_ext`` command, which builds mlaot's extensions in mlaot's way."""

    class build_ext(base):
        metadata: Mapping[str, Path] = MappingProxyType({})  # empty if an editable install asks for metadata only

        def get_ext_filename(self, fullname: str) -> str:
            if not isinstance(self.ext_map.get(fullname), ModelExtension):
                return str(super().get_ext_filename(fullname))
            # setuptools would derive it from 3.15's longer suffix, which older interpreters do not know.
            suffix = ".pyd" if self.plat_name.startswith("win") else f".{abi_name(own_abi())}.so"
            return str(Path(*fullname.split("."))) + suffix

        def run(self) -> None:
            with one_line_errors():  # before distutils starts, whose errors end in a traceback
                check_interpreter()
                self.toolchain = find_toolchain()
            super().run()
            with one_line_errors():
                models = [ext for ext in self.extensions if isinstance(ext, ModelExtension)]
                settings = models[0].settings
                check_requirements(read_pyproject(Path())["project"], settings.models, generated_folder(settings))
                copy_sessions(settings, generated_folder(settings), Path(self.build_lib))
                compiler = describe_compiler(self.toolchain, settings)
                folder = build_folder(Path()) / "metadata"
                self.metadata = write_metadata(settings, generated_folder(settings), compiler, own_abi(), folder)

        def build_extension(self, ext: Any) -> None:
            if not isinstance(ext, ModelExtension):
                super().build_extension(ext)
                return
            with one_line_errors():
                self.build_model(ext)

        def build_model(self, ext: ModelExtension) -> None:
            if ext.settings.onnxruntime and self.editable_mode:
                raise MlaotError(f"an editable install with setuptools cannot hold what {ONNXRUNTIME} makes")
            missing = ext.settings.missing_packages(Path())
            if missing and self.editable_mode:
                folder = Path(ext.settings.source, missing[0]).as_posix()
                raise MlaotError(f"an editable install with setuptools needs the folder {folder} with an __init__.py")
            library = Path(self.get_ext_fullpath(ext.name))
            generated = generated_folder(ext.settings)
            if ext.model is None:
                build_runtime(ext.name, generated, library, self.toolchain, own_abi())
            else:
                build_module(ext.settings, ext.model, generated, library, self.toolchain, own_abi())
            for package in missing:
                home = Path(self.build_lib, package)
                home.mkdir(parents=True, exist_ok=True)
                (home / "__init__.py").touch()

        def copy_extensions_to_source(self) -> None:
            super().copy_extensions_to_source()
            models = [ext for ext in self.extensions if isinstance(ext, ModelExtension)]
            if models and self.editable_mode and not is_frozen(Path()):
                site = Path(self.get_finalized_command("install").install_lib)  # this folder goes into the wheel
                watch_sources(Path(), models[0].settings, site)
            for regular, inplace in self.get_output_mapping().items():
                stem = regular.removesuffix(f".{abi_name(own_abi())}.so").removesuffix(".pyd")
                for beside in filter(Path.is_file, (Path(f"{stem}.pyi"), Path(f"{stem}.weights"))):
                    shutil.copy(beside, Path(inplace).parent)

    return build_ext


def build_py_class(base: Any, settings: Settings) -> Any:
    """Derive the project's ``build_py`` command, which must not install models that lie beside the packages."""
    tool = tomllib.loads(Path(FILE).read_text(encoding="utf-8"))["tool"].get("setuptools", {})
    listed = tool.get("py-modules", ())  # the user asks for these modules
    models = {model.declared.partition(":")[0] for model in settings.models if ":" in model.declared} - set(listed)

    class build_py(base):
        def find_modules(self) -> list[tuple[str, str, str]]:
            return [module for module in super().find_modules() if module[1] not in models]

        def get_source_files(self) -> list[str]:
            modules = super().find_modules() if self.py_modules else []
            model_files = [file for _, name, file in modules if name in models]
            return [*super().get_source_files(), *model_files]  # an sdist holds the model files

    return build_py


def bdist_wheel_class(base: Any, settings: Settings, *, own_tag: bool) -> Any:
    """Derive the project's ``bdist_wheel`` command, which adds the bill of materials and the models' cards.

    With ``own_tag`` the command sets the wheel's tag, as setuptools has none for the stable ABI of free-threaded
    Python.
    """

    class bdist_wheel(base):
        progress = ExitStack()

        def run(self) -> None:
            with report_progress(), ExitStack() as self.progress, reproducible_archive():
                super().run()
            with one_line_errors():
                (wheel,) = (Path(path) for command, _, path in self.distribution.dist_files if command == "bdist_wheel")
                imports = imports_of(settings.models, generated_folder(settings))
                add_entries(wheel, {}, hook_files(settings, wheel, set(), imports))
                check_wheel(settings, generated_folder(settings), wheel)

        def get_tag(self) -> tuple[str, ...]:
            tag: tuple[str, ...] = super().get_tag()
            return (*own_abi().split("-"), tag[2]) if own_tag else tag

        def write_wheelfile(self, wheelfile_base: str, *arguments: Any, **more: Any) -> None:
            self.progress.enter_context(stage(PACKING))  # until run ends
            super().write_wheelfile(wheelfile_base, *arguments, **more)
            for name, path in self.get_finalized_command("build_ext").metadata.items():
                Path(wheelfile_base, name).parent.mkdir(exist_ok=True)
                shutil.copy(path, Path(wheelfile_base, name))

    return bdist_wheel


@contextmanager
def reproducible_archive() -> Iterator[None]:
    """Fix the times and permissions in a zip file. SOURCE_DATE_EPOCH sets the times if it is defined."""
    date, mask = os.environ.get("SOURCE_DATE_EPOCH"), os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = date or ZIP_EPOCH
    try:
        yield
    finally:
        os.umask(mask)
        if date is None:
            del os.environ["SOURCE_DATE_EPOCH"]


def sdist_class(base: Any, settings: Settings) -> Any:
    """Derive the project's ``sdist`` command, which adds the models' cards and, unless ``sdist`` is "live", the C."""

    class sdist(base):
        def make_release_tree(self, base_dir: str, files: list[str]) -> None:
            cards = {model.model_card for model in settings.models} - {""}
            super().make_release_tree(base_dir, [*files, *sorted(cards - set(files))])
            if settings.sdist == "frozen":
                with one_line_errors():
                    shutil.copytree(generated_folder(settings), Path(base_dir, FROZEN), dirs_exist_ok=True)

    return sdist


# By project: a build generates the C once, however many extensions and commands ask for it.
generated: dict[Path, Path] = {}


def generated_folder(settings: Settings) -> Path:
    """Return the folder of the generated C."""
    project = Path().resolve()
    if project not in generated:
        if is_frozen(project):
            verify_checksums(FROZEN)
        generated[project] = project / FROZEN if is_frozen(project) else generate_files(project, settings)
    return generated[project]
