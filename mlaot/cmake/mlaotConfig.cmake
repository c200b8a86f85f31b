# find_package(mlaot CONFIG REQUIRED) gives mlaot_add_module(), of the mlaot that the Python found has.
include(CMakeFindDependencyMacro)
find_dependency(Python 3.11 COMPONENTS Interpreter)

execute_process(COMMAND ${Python_EXECUTABLE} -P -m mlaot --cmake-dir
    OUTPUT_VARIABLE mlaot_folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE mlaot_error RESULT_VARIABLE mlaot_status)
if(mlaot_status)
    set(mlaot_FOUND FALSE)
    set(mlaot_NOT_FOUND_MESSAGE
        "mlaot: ${Python_EXECUTABLE} has no mlaot: pip install mlaot; editable installs: with --no-build-isolation")
    if(NOT mlaot_error MATCHES "No module named mlaot\n")
        string(APPEND mlaot_NOT_FOUND_MESSAGE "\n${mlaot_error}")
    endif()
    return()
endif()
set(mlaot_code "from mlaot.build.toolchain import check_interpreter, own_abi\ncheck_interpreter()\nprint(own_abi())")
execute_process(COMMAND ${Python_EXECUTABLE} -P -c ${mlaot_code}
    OUTPUT_VARIABLE mlaot_abi OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE mlaot_error RESULT_VARIABLE mlaot_status)
if(mlaot_status)
    set(mlaot_FOUND FALSE)
    string(REGEX MATCH "a compiled model needs .*" mlaot_NOT_FOUND_MESSAGE ${mlaot_error})
    return()
endif()
string(REGEX REPLACE ".*-" "" mlaot_abi ${mlaot_abi})
set(MLAOT_ABI ${mlaot_abi} CACHE STRING "Stable ABI of Python")
include(${mlaot_folder}/mlaot_add_module.cmake)

# Isolated builds run in an environment that is gone afterwards. This copy stays, to say the above when CMake runs again.
if(NOT CMAKE_CURRENT_LIST_DIR STREQUAL "${CMAKE_BINARY_DIR}/mlaot")
    file(COPY ${CMAKE_CURRENT_LIST_DIR}/mlaotConfig.cmake ${CMAKE_CURRENT_LIST_DIR}/mlaotConfigVersion.cmake
        DESTINATION ${CMAKE_BINARY_DIR}/mlaot)
    set(mlaot_DIR ${CMAKE_BINARY_DIR}/mlaot CACHE PATH "" FORCE)
endif()
