"""The functions of ONNX's operators, a module for each family; importing them fills the registry."""

from importlib import import_module
from pkgutil import iter_modules

for family in iter_modules(__path__):
    import_module(f"{__name__}.{family.name}")
