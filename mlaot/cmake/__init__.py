"""The CMake package: ``find_package(mlaot CONFIG)``. Entry point ``cmake.root`` leads scikit-build-core here."""
