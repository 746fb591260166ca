# How every target of the project is compiled: one language level, one set of warnings, hidden symbols.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher sh ${CMAKE_CURRENT_LIST_DIR}/cached-compiler ${CCACHE_PROGRAM} ${CMAKE_SOURCE_DIR})
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

# A program loads only the libraries it calls, and has only the functions: every one costs its start a part of a millisecond, and
# starts are what is measured.
add_link_options(-Wl,--as-needed -Wl,--gc-sections)
add_compile_options(-ffunction-sections -fdata-sections)

# The C++ runtime, libsquashfs and the tar part of libarchive go into the programs: every shared library that is not loaded, with its own
# dependencies, saves a start a part of a millisecond of processor time, and starts are what is measured (tests/bench/start).
option(SITULA_LINK_ARCHIVES "Link the C++ runtime, libsquashfs and libarchive from their archives, where installed" ON)
if(SITULA_SANITIZE)
  set(SITULA_LINK_ARCHIVES OFF)
  # As in tests/CMakeLists.txt; the programs themselves are sanitized, too.
  find_program(SITULA_LLD ld.lld)
  if(SITULA_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

if(SITULA_PROGRAMS)
  find_package(PkgConfig REQUIRED)
endif()
find_package(Threads REQUIRED)

# Distributions have the archives of the C++ runtime and of the C library in packages of their own (libstdc++-static, glibc-static).
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LINK_OPTIONS -static-libstdc++ -static-libgcc)
check_cxx_source_compiles("#include <string>\nint main(int n, char** a) { return int(std::string(a[0]).size()) + n; }" SITULA_STATIC_CXX)
set(CMAKE_REQUIRED_LINK_OPTIONS -static)
check_cxx_source_compiles("int main() { return 0; }" SITULA_STATIC_C)
unset(CMAKE_REQUIRED_LINK_OPTIONS)

# situla_find_archive(name result): what to link for lib<name>, its archive where there is one.
function(situla_find_archive name result)
  find_library(SITULA_ARCHIVE_${name} lib${name}.a)
  mark_as_advanced(SITULA_ARCHIVE_${name})
  if(SITULA_LINK_ARCHIVES AND SITULA_ARCHIVE_${name})
    set(${result} ${SITULA_ARCHIVE_${name}} PARENT_SCOPE)
  else()
    set(${result} ${name} PARENT_SCOPE)
  endif()
endfunction()

# situla_bundled(target pkg-config-name library [needed...]): an interface target for a library, with what its archive needs in turn.
function(situla_bundled target module library)
  pkg_check_modules(${target} REQUIRED IMPORTED_TARGET ${module})
  add_library(${target} INTERFACE)
  situla_find_archive(${library} item)
  if(item STREQUAL ${library})
    target_link_libraries(${target} INTERFACE PkgConfig::${target})
    return()
  endif()
  set(items ${item})
  foreach(needed IN LISTS ARGN)
    situla_find_archive(${needed} item)
    list(APPEND items ${item})
  endforeach()
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIRS})
  target_link_libraries(${target} INTERFACE ${items})
endfunction()

# situla_map_paths(target): debuggers see the source tree as ".", wherever it was built.
function(situla_map_paths target)
  if(SITULA_MAP_PATHS)
    # Of several that fit, the last one counts.
    target_compile_options(${target} PRIVATE -ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=./build)
  endif()
endfunction()

# situla_compile(target): the project's flags for one target.
function(situla_compile target)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE _FILE_OFFSET_BITS=64)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion -fno-strict-aliasing -fstack-protector-strong)
  if(SITULA_UNITY)
    # g++ tidies its memory up from 128 MiB on; until it has 1 GB (kB here) that is a tenth of its time for nothing.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>)
  endif()
  # clang tries to compute every object while it compiles, std::string(4 << 20, 'x') for a million steps, which take two seconds.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fconstexpr-steps=100000>)
  if(SITULA_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  situla_map_paths(${target})
  if(SITULA_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SITULA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    # These two stand before every access and are a third of the compiler's work: the preset has them for what sees every byte of an image.
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment)
    target_link_options(${target} PRIVATE -fsanitize=${SITULA_SANITIZE})
  endif()
  if(SITULA_COVERAGE)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# situla_build_quickly(target ALONE b.cpp ...): its sources are compiled some at a time, but for those.
function(situla_build_quickly target)
  if(NOT SITULA_UNITY)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "ALONE" ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # A type of one source's own, in a struct of that source: not its main file any more, as g++ sees it.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# situla_precompiled_headers(option...): what nearly every source reads first, precompiled for all that are compiled with the same options
# besides; sets `headers` to the target and `options` to what its users are compiled with.
function(situla_precompiled_headers)
  # g++ 12 finds these in std::string itself (GCC PR 105651), and does not know a precompiled header for a system's.
  set(options $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread> ${ARGN})
  string(MAKE_C_IDENTIFIER "situla_headers${ARGN}" headers)
  if(NOT TARGET ${headers})
    file(WRITE ${CMAKE_BINARY_DIR}/headers.cpp "")
    add_library(${headers} OBJECT ${CMAKE_BINARY_DIR}/headers.cpp)
    situla_compile(${headers})
    target_compile_options(${headers} PRIVATE "${options}")
    # Else it is another one in each clone, and ccache finds nothing that was compiled with it.
    target_compile_options(${headers} PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
    target_precompile_headers(${headers} PRIVATE <algorithm> <array> <chrono> <filesystem> <functional> <map> <memory> <optional>
      <set> <string> <string_view> <tuple> <unordered_map> <vector> <tl/expected.hpp> <fcntl.h> <sys/stat.h> <unistd.h>)
  endif()
  set(headers ${headers} PARENT_SCOPE)
  set(options "${options}" PARENT_SCOPE)
endfunction()

# situla_read_headers_once(library [option...]): it takes them from there.
function(situla_read_headers_once library)
  if(SITULA_UNITY)
    situla_precompiled_headers(${ARGN})
    target_compile_options(${library} PRIVATE "${options}")
    target_precompile_headers(${library} REUSE_FROM ${headers})
  endif()
endfunction()

# situla_library(name [EVERY_BYTE | EVERY_FILE] SOURCES a.cpp ... ALONE b.cpp ... DEPENDS situla_base ... PRIVATE_DEPENDS PkgConfig::X ...): one unit
# of the tree. Its sources are compiled some at a time, but for those behind ALONE: a program that calls one of several takes all of them,
# with the libraries that they need. EVERY_BYTE, EVERY_FILE: its code sees each of an image, and is compiled with SITULA_EVERY_BYTE_FLAGS or
# SITULA_EVERY_FILE_FLAGS, too: as the preset release has it, optimized as in packages; the rest waits for the kernel and for libraries.
function(situla_library name)
  cmake_parse_arguments(arg "EVERY_BYTE;EVERY_FILE" "" "SOURCES;ALONE;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES} ${arg_ALONE})
  situla_compile(${name})
  situla_build_quickly(${name} ALONE ${arg_ALONE})
  set(flags)
  if(arg_EVERY_BYTE)
    set(flags ${SITULA_EVERY_BYTE_FLAGS})
  elseif(arg_EVERY_FILE)
    set(flags ${SITULA_EVERY_FILE_FLAGS})
  endif()
  situla_read_headers_once(${name} ${flags})
  target_compile_options(${name} PRIVATE ${flags}) # without precompiled headers, too
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS})
endfunction()

# situla_program(name SOURCES ... DEPENDS ... [OUTPUT file] [DESTINATION dir]): one executable.
function(situla_program name)
  cmake_parse_arguments(arg "" "OUTPUT;DESTINATION" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  situla_compile(${name})
  situla_build_quickly(${name})
  situla_read_headers_once(${name})
  if(SITULA_UNITY)
    target_compile_options(${name} PRIVATE -fPIC) # as the precompiled header, instead of -fPIE
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
  if(SITULA_LINK_ARCHIVES AND SITULA_STATIC_CXX)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  if(arg_OUTPUT)
    set_target_properties(${name} PROPERTIES OUTPUT_NAME ${arg_OUTPUT})
  endif()
  if(arg_DESTINATION)
    install(TARGETS ${name} RUNTIME DESTINATION ${arg_DESTINATION} COMPONENT runtime)
  endif()
endfunction()

# situla_always_static(target): it runs inside images of any distribution, which have no library for it.
function(situla_always_static target)
  if(SITULA_SANITIZE)
    return()  # for tests of its parts only
  endif()
  if(NOT SITULA_STATIC_C OR NOT SITULA_STATIC_CXX)
    message(FATAL_ERROR "${target} must be static, and libc.a or libstdc++.a is missing (RHEL, Fedora: glibc-static, libstdc++-static)")
  endif()
  target_link_options(${target} PRIVATE -static -s)
endfunction()

# situla_static(target [library...]): it needs no shared library where it runs, if there is an archive of each that it uses.
function(situla_static target)
  set(missing "")
  foreach(library IN LISTS ARGN)
    # One that nothing looked for belongs to a part that is not built.
    if(DEFINED SITULA_ARCHIVE_${library} AND NOT SITULA_ARCHIVE_${library})
      list(APPEND missing lib${library}.a)
    endif()
  endforeach()
  if(NOT SITULA_STATIC_CXX)
    list(APPEND missing libstdc++.a)
  endif()
  if(NOT SITULA_STATIC_C)
    list(APPEND missing libc.a)
  endif()
  if(SITULA_LINK_ARCHIVES AND NOT missing)
    target_link_options(${target} PRIVATE -static -s)
  else()
    message(STATUS "${target} needs shared libraries, and so do the bundles that it goes into (missing: ${missing})")
  endif()
endfunction()

# situla_install_link(directory name target component): a symbolic link beside its target. It is a file like any other to
# cmake --install: --prefix, --component and DESTDIR hold.
function(situla_install_link directory name target component)
  set(links ${CMAKE_CURRENT_BINARY_DIR}/links/${directory})
  file(MAKE_DIRECTORY ${links})
  file(CREATE_LINK ${target} ${links}/${name} SYMBOLIC)
  install(FILES ${links}/${name} DESTINATION ${directory} COMPONENT ${component})
endfunction()
