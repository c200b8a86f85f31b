"""The functions of ONNX's operators, with a module for each family. Importing them fills the registry."""

from importlib import import_module
from pkgutil import iter_modules

for family in iter_modules(__path__):
    import_module(f"{__name__}.{family.name}")
