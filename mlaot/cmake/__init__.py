"""The CMake package for ``find_package(mlaot CONFIG)``.

Scikit-build-core finds it by the entry point ``cmake.root``.
"""
