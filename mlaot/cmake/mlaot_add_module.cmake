# mlaot_add_module(<target> [MODULE digits.nn] [MODEL digits.model:build] [SOURCE_DIR src] [DETERMINISTIC] [C_LIBRARY]
#                  [DEPENDS file..])
#
# A target that traces a model and compiles the extension module made from it. What is not given is as [tool.mlaot] of
# the project's pyproject.toml says, where there is one; MODULE is the project's name, a dot, and the target's. The model
# is traced again when a module of the project that it imports or a file that it reads has changed; DEPENDS names what
# else it reads. The stub is the target's property MLAOT_STUB:
#
#     install(TARGETS nn LIBRARY DESTINATION digits)
#     install(FILES $<TARGET_PROPERTY:nn,MLAOT_STUB> DESTINATION digits)
#
# Where the setting `weights` is "file", that file is the property MLAOT_WEIGHTS, to be installed there too.
#
# Where the setting `runtime` names a module that the models share, that is added, too, and installed with them:
#
#     mlaot_add_module(runtime MODULE digits.runtime)
#
# With C_LIBRARY there is also a static library for C and C++, for the module digits.nn the target digits::nn:
#
#     target_link_libraries(program PRIVATE digits::nn)

cmake_minimum_required(VERSION 3.21...4.0)
include(${CMAKE_CURRENT_LIST_DIR}/mlaot_library.cmake)

function(mlaot_add_module target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "DETERMINISTIC;C_LIBRARY" "MODEL;MODULE;SOURCE_DIR" "DEPENDS")
    if(DEFINED arg_UNPARSED_ARGUMENTS OR DEFINED arg_KEYWORDS_MISSING_VALUES)
        message(FATAL_ERROR "mlaot_add_module(${target}): cannot read"
            " '${arg_UNPARSED_ARGUMENTS}${arg_KEYWORDS_MISSING_VALUES}'; the keywords are MODEL, MODULE, SOURCE_DIR,"
            " DETERMINISTIC, C_LIBRARY and DEPENDS")
    endif()
    if(NOT CMAKE_C_COMPILER_LOADED)
        message(FATAL_ERROR "mlaot_add_module(${target}): the project needs the language C: project(.. LANGUAGES C)")
    endif()
    if(NOT DEFINED arg_MODULE)
        string(REGEX REPLACE "[-_.]+" "_" project ${PROJECT_NAME})
        string(TOLOWER ${project}.${target} arg_MODULE)
    endif()

    set(emit ${Python_EXECUTABLE} -P -m mlaot emit ${PROJECT_SOURCE_DIR} --module ${arg_MODULE})
    if(DEFINED arg_MODEL)
        list(APPEND emit --model ${arg_MODEL})
    endif()
    if(DEFINED arg_SOURCE_DIR)
        cmake_path(ABSOLUTE_PATH arg_SOURCE_DIR)
        list(APPEND emit --source-dir ${arg_SOURCE_DIR})
    endif()
    if(arg_DETERMINISTIC)
        list(APPEND emit --deterministic)
    endif()
    if(arg_C_LIBRARY)
        list(APPEND emit --c-library)
    endif()

    # The names of the files, which need no tracing, come from Python too: what it says of the arguments is said now.
    execute_process(COMMAND ${emit} --list OUTPUT_VARIABLE names ERROR_VARIABLE error RESULT_VARIABLE status
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
    if(status)
        message(FATAL_ERROR "mlaot_add_module(${target}): ${error}")
    endif()
    string(REPLACE "\n" ";" names "${names}")
    set(sources ${names})
    list(FILTER sources INCLUDE REGEX "\\.(c|bin)$")
    string(REGEX REPLACE "^.*\\." "" stem ${arg_MODULE})
    set(c_interface ${sources})
    list(FILTER c_interface INCLUDE REGEX "^${stem}_c\\.c$")
    list(FILTER sources EXCLUDE REGEX "^${stem}_c\\.c$")
    set(stubs ${names})
    list(FILTER stubs INCLUDE REGEX "\\.pyi$")
    set(weights ${names})
    list(FILTER weights INCLUDE REGEX "\\.weights$")

    set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}.mlaot)
    set(made ${names})
    list(TRANSFORM made PREPEND ${folder}/)
    set(pyproject ${PROJECT_SOURCE_DIR}/pyproject.toml)
    if(EXISTS ${pyproject})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${pyproject})
        list(APPEND arg_DEPENDS ${pyproject})
    endif()
    # Tracing one module may import a package that imports the others, which calls that come later may add.
    if(NOT TARGET mlaot_modules)
        add_custom_target(mlaot_modules)
        # Ninja shows what one command says at once. If all were to have its terminal, they would not run at a time.
        set(terminal USES_TERMINAL)
    endif()
    set_property(TARGET mlaot_modules APPEND PROPERTY MLAOT_MODULES ${arg_MODULE})
    # A file that comes out as it was keeps its time, so the library depends on the files, and tracing has a stamp.
    # The hash seed: the same model is the same C, also where its code walks a set.
    add_custom_command(OUTPUT ${folder}.stamp BYPRODUCTS ${made}
        COMMAND ${CMAKE_COMMAND} -E env PYTHONHASHSEED=0 ${emit} --out ${folder} --depfile ${folder}.stamp.d
            --others $<TARGET_PROPERTY:mlaot_modules,MLAOT_MODULES>
        COMMAND ${CMAKE_COMMAND} -E touch ${folder}.stamp
        DEPENDS ${arg_DEPENDS} ${CMAKE_CURRENT_FUNCTION_LIST_FILE} DEPFILE ${folder}.stamp.d
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} COMMENT "mlaot: ${arg_MODULE}"
        ${terminal} VERBATIM COMMAND_EXPAND_LISTS)
    add_custom_target(${target}_emit DEPENDS ${folder}.stamp)
    mlaot_library(${target} ${folder} ${sources})
    add_dependencies(${target} ${target}_emit)
    if(c_interface)
        list(FILTER names INCLUDE REGEX "\\.(bin|weights)$")
        mlaot_c_library(${target} ${folder} ${arg_MODULE} ${names})
        string(REPLACE "." "_" c_library ${arg_MODULE})
        add_dependencies(${c_library} ${target}_emit)
    endif()
    if(stubs)
        set_target_properties(${target} PROPERTIES MLAOT_STUB ${folder}/${stubs})
    endif()
    if(weights)
        set_target_properties(${target} PROPERTIES MLAOT_WEIGHTS ${folder}/${weights})
    endif()
    # An install takes two files for the same when their times differ by less than a second, and leaves the old one there.
    # So it copies every file when the library or the trace is newer than the last install to this folder.
    install(CODE [[
        string(SHA1 place "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_COMPONENT}")]]
        ALL_COMPONENTS)
    install(CODE "
        set(installed \"${folder}.installed/\${place}\")
        if(\"$<TARGET_FILE:${target}>\" IS_NEWER_THAN \"\${installed}\" OR
           \"${folder}.stamp\" IS_NEWER_THAN \"\${installed}\")
            set(ENV{CMAKE_INSTALL_ALWAYS} 1)
            file(MAKE_DIRECTORY \"${folder}.installed\")
            file(TOUCH \"\${installed}\")
        endif()"
        ALL_COMPONENTS)
endfunction()
