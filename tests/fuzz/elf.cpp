#include <cstdlib>

#include "common/sys/socket.hpp"
#include "hooks/inject/ldcache/elf_file.hpp"
#include "tests/fuzz/target.hpp"

void situla::fuzz(std::string_view bytes) {
  // Which Slurm a plugin was built for.
  if (const auto file = sealed_memory("library", bytes))
    if (const auto object = ElfFile::read_object(file->get(), "plugin_version", sizeof(uint32_t));
        object && object->size() != sizeof(uint32_t))
      std::abort();
  if (const auto linkage = ElfFile::parse_linkage(bytes))
    for (const std::string& name : linkage->needed)
      if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") std::abort();
  const auto elf = ElfFile::parse(bytes, ElfNotes::read);
  if (!elf) return;
  // It becomes the name of a link.
  if (elf->soname.find('/') != std::string::npos || elf->soname == "." || elf->soname == "..") std::abort();
  (void)elf->ld_flags();
}
