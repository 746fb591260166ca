# How every target of the project is compiled: one language level, one set of warnings, hidden symbols.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the tree, so that a second checkout of the same sources compiles nothing again.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# A program loads only the libraries it calls: every one costs its start a part of a millisecond, and starts are what is measured.
add_link_options(-Wl,--as-needed)

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# situla_compile(target): the project's flags for one target.
function(situla_compile target)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE _FILE_OFFSET_BITS=64)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion -fno-strict-aliasing -fstack-protector-strong)
  if(SITULA_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(SITULA_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SITULA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${SITULA_SANITIZE})
  endif()
endfunction()

# situla_library(name SOURCES a.cpp ... DEPENDS situla_base ... PRIVATE_DEPENDS PkgConfig::X ...): one unit of the tree.
function(situla_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  situla_compile(${name})
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS})
endfunction()

# situla_program(name SOURCES ... DEPENDS ... [OUTPUT file] [DESTINATION dir]): one executable.
function(situla_program name)
  cmake_parse_arguments(arg "" "OUTPUT;DESTINATION" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  situla_compile(${name})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
  if(arg_OUTPUT)
    set_target_properties(${name} PROPERTIES OUTPUT_NAME ${arg_OUTPUT})
  endif()
  if(arg_DESTINATION)
    install(TARGETS ${name} RUNTIME DESTINATION ${arg_DESTINATION})
  endif()
endfunction()
