// What does the reader of ELF files see in libraries of all kinds, and in what only looks like one?
#include "hooks/inject/ldcache/elf_file.hpp"

#include <cstring>
#include <string>

#include <elf.h>
#include <fcntl.h>

#include <catch2/catch.hpp>

#include "common/base/unique_fd.hpp"
#include "hooks/inject/ldcache/ld_cache.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/inject/ldcache_support.hpp"

using namespace situla;
using namespace situla::test;

TEST_CASE("class, processor and SONAME are read", "[elf]") {
  const auto wide = ElfFile::parse(elf_library("libcuda.so.1"));
  REQUIRE(wide);
  CHECK(wide->soname == "libcuda.so.1");
  CHECK(wide->is_64bit);
  CHECK(wide->ld_flags() == (kLdElfLibc6 | kLdX86_64));
  const auto narrow = ElfFile::parse(elf_library(ElfLibrary{.soname = "libcuda.so.1", .is_32bit = true}));
  REQUIRE(narrow);
  CHECK(narrow->soname == "libcuda.so.1");
  CHECK_FALSE(narrow->is_64bit);
  CHECK(narrow->ld_flags() == (kLdElfLibc6 | kLdI386));
  const auto arm = ElfFile::parse(elf_library(ElfLibrary{.soname = "liba.so", .machine = EM_AARCH64}));
  REQUIRE(arm);
  CHECK(arm->ld_flags() == (kLdElfLibc6 | kLdAarch64));
  const auto nameless = ElfFile::parse(elf_library(""));
  REQUIRE(nameless);
  CHECK(nameless->soname.empty());
}

TEST_CASE("a SONAME that leads elsewhere is none", "[elf]") {
  for (const std::string name : {"../../etc/passwd", "/etc/passwd", "..", ".", "a/b"}) {
    const auto elf = ElfFile::parse(elf_library(name));
    REQUIRE(elf);
    CHECK(elf->soname.empty());
  }
}

TEST_CASE("notes are read where asked for", "[elf]") {
  const ElfLibrary library{.soname = "libcuda.so.1", .cuda_compat = R"({"CUDA Version": "13.1"})", .has_abi_tag = true};
  const auto elf = ElfFile::parse(elf_library(library), ElfNotes::read);
  REQUIRE(elf);
  CHECK(elf->cuda_compat == library.cuda_compat);
  CHECK(elf->abi_tag == AbiTag{0, 2, 3, 99});
  const auto without = ElfFile::parse(elf_library("libcuda.so.1"), ElfNotes::read);
  REQUIRE(without);
  CHECK_FALSE(without->cuda_compat);
  CHECK_FALSE(without->abi_tag);
}

TEST_CASE("libraries of the linker and of the system are read from their files", "[elf]") {
  const TempDir directory;
  output_of("cd " + directory.path() +
            " && echo 'int x;' | gcc -x c -nostdlib -shared -Wl,-soname,libx.so.4 -o libx.so -");
  const UniqueFd made(open((directory / "libx.so").c_str(), O_RDONLY | O_CLOEXEC));
  const auto elf = ElfFile::read(made.get(), ElfNotes::read);
  REQUIRE(elf);
  CHECK(elf->soname == "libx.so.4");
  const UniqueFd libc(open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY | O_CLOEXEC));
  if (libc) {
    const auto system = ElfFile::read(libc.get(), ElfNotes::read);
    REQUIRE(system);
    CHECK(system->soname == "libc.so.6");
    REQUIRE(system->abi_tag);
    CHECK((*system->abi_tag)[0] == 0);  // Linux
  }
}

TEST_CASE("what is cut off or no shared library is refused or says less", "[elf]") {
  CHECK_FALSE(ElfFile::parse(""));
  CHECK_FALSE(ElfFile::parse("/* GNU ld script */ GROUP ( /lib/libc.so.6 )"));
  std::string program = elf_library("libx.so");
  program[offsetof(Elf64_Ehdr, e_type)] = ET_EXEC;
  CHECK_FALSE(ElfFile::parse(program));
  std::string other = elf_library("libx.so");
  other[EI_DATA] = ELFDATA2MSB;
  CHECK_FALSE(ElfFile::parse(other));
  const std::string whole = elf_library(ElfLibrary{.soname = "libx.so", .cuda_compat = "{}", .has_abi_tag = true});
  for (size_t size = 0; size < whole.size(); ++size)
    (void)ElfFile::parse(std::string_view(whole).substr(0, size), ElfNotes::read);
}
