#include <cstdlib>

#include "hooks/inject/ldcache/elf_file.hpp"
#include "tests/fuzz/target.hpp"

void situla::fuzz(std::string_view bytes) {
  const auto elf = ElfFile::parse(bytes, ElfNotes::read);
  if (!elf) return;
  // It becomes the name of a link.
  if (elf->soname.find('/') != std::string::npos || elf->soname == "." || elf->soname == "..") std::abort();
  (void)elf->ld_flags();
}
