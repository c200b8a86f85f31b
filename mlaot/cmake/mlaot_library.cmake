# How one extension module is compiled. Lies in every folder of C that mlaot makes, and serves mlaot_add_module() too.
#
# mlaot_library(<target> <folder> <file>.c.. [weights.bin]): the first file talks to Python, the others hold the kernels:
# those for any CPU, those for ARM, and those for more than the baseline of x86-64. Each comes out empty for CPUs of
# another kind, but the last ones need flags that only x86-64 has. Beside each lie its compiler flags, in <file>.flags.
# weights.bin is what the first file embeds.
#
# mlaot_c_library(<target> <folder> <module> <weights>): a static library of the same kernels, and of what C calls, with
# the file <weights> embedded. For the module digits.nn it is the target digits_nn, or digits::nn, as find_package() calls
# the one of an installed wheel.

set(MLAOT_ABI abi3 CACHE STRING "Stable ABI of Python: abi3 (3.11 and up) or abi3t (3.15 and up, also free-threaded)")

include(CheckCSourceCompiles)

# The warnings of a target and the flags of its files, the first of which embeds the weights, if those are not "".
function(mlaot_compile_options target folder embedded interface)
    if(MLAOT_WERROR)
        target_compile_options(${target} PRIVATE -Wall -Wextra -Werror)
    else()
        target_compile_options(${target} PRIVATE -w)
    endif()
    # Flags of a file come after all others: CFLAGS and the project's own cannot break the kernels.
    foreach(file IN ITEMS ${interface} ${ARGN})
        string(REGEX REPLACE "c$" "flags" flags ${file})
        set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS @${flags} OBJECT_DEPENDS ${flags})
    endforeach()
    # What the assembler reads (.incbin) no compiler lists among the dependencies.
    set_property(SOURCE ${interface} APPEND PROPERTY COMPILE_OPTIONS -Xassembler -I${folder})
    foreach(file IN LISTS embedded)
        set_property(SOURCE ${interface} APPEND PROPERTY OBJECT_DEPENDS ${folder}/${file})
    endforeach()
endfunction()

function(mlaot_c_library target folder module weights)
    string(REPLACE "." "_" library ${module})
    string(REGEX REPLACE "^.*\\." "" stem ${module})
    string(REGEX REPLACE "^([^.]*)\\..*$" "\\1" package ${module})
    string(REGEX REPLACE "^${package}_" "${package}::" name ${library})
    # All objects of the module but the one that talks to Python.
    set(kernels "$<FILTER:$<TARGET_OBJECTS:${target}>,EXCLUDE,/${stem}[.]c[.]o>")
    add_library(${library} STATIC ${folder}/${stem}_c.c ${kernels})
    set_target_properties(${library} PROPERTIES
        DEBUG_POSTFIX "" POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF)
    target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${folder}>)
    mlaot_compile_options(${library} ${folder} ${weights} ${folder}/${stem}_c.c)
    add_library(${name} ALIAS ${library})
endfunction()

function(mlaot_library target folder)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
        message(FATAL_ERROR "mlaot: the generated C needs gcc or clang; got ${CMAKE_C_COMPILER}")
    endif()
    check_c_source_compiles("
#ifndef __x86_64__
#error
#endif
int main(void) { return 0; }" MLAOT_X86_64)
    set(files ${ARGN})
    list(FILTER files INCLUDE REGEX "\\.c$")
    set(embedded ${ARGN})
    list(FILTER embedded EXCLUDE REGEX "\\.c$")
    if(NOT MLAOT_X86_64)
        list(SUBLIST files 0 3 files)
    endif()
    list(TRANSFORM files PREPEND ${folder}/)
    list(GET files 0 interface)
    get_filename_component(stem ${interface} NAME_WE)

    # SHARED, not MODULE: zig cannot link a Mach-O bundle.
    add_library(${target} SHARED ${files})
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${stem} PREFIX "" SUFFIX .${MLAOT_ABI}.so DEBUG_POSTFIX "" NO_SONAME ON POSITION_INDEPENDENT_CODE ON
        INTERPROCEDURAL_OPTIMIZATION OFF
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${target}
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${target})
    mlaot_compile_options(${target} ${folder} "${embedded}" ${files})
    if(MLAOT_ABI STREQUAL abi3t)
        set_property(SOURCE ${interface} APPEND PROPERTY COMPILE_DEFINITIONS MLAOT_ABI3T)
    endif()
    if(WIN32)
        find_package(Python REQUIRED COMPONENTS Interpreter Development.SABIModule)
        set_target_properties(${target} PROPERTIES SUFFIX .pyd)
        target_link_libraries(${target} PRIVATE Python::SABIModule)
    elseif(APPLE)
        target_link_options(${target} PRIVATE -undefined dynamic_lookup -Wl,-x)
    else()
        target_link_options(${target} PRIVATE -fno-fast-math -fno-lto -s -Wl,-z,noseparate-code)
    endif()
endfunction()
