// How does a test get a shared library for any processor without a compiler for it? Byte by byte: small, complete, and
// good enough for ldconfig and dlopen(3).
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <elf.h>

namespace situla::test {

struct ElfLibrary {
  std::string soname = {};       ///< empty: none
  bool is_32bit = false;         ///< for i386
  uint16_t machine = EM_X86_64;  ///< of 64-bit ones
  std::string cuda_compat = {};  ///< JSON of .note.cuda.fwd_compatibility; empty: no such section
  bool has_abi_tag = false;      ///< Linux 2.3.99, as some libnvidia-tls
};

namespace detail {

template <typename Item>
void put(std::string& bytes, const Item& item) {
  bytes.append(reinterpret_cast<const char*>(&item), sizeof item);
}

inline std::string note(std::string_view owner, uint32_t type, std::string_view description) {
  std::string bytes;
  put(bytes, Elf32_Nhdr{static_cast<uint32_t>(owner.size() + 1), static_cast<uint32_t>(description.size()), type});
  for (const std::string_view text : {owner, description}) {
    bytes += text;
    if (text.data() == owner.data()) bytes += '\0';
    bytes.resize((bytes.size() + 3) / 4 * 4, '\0');
  }
  return bytes;
}

template <typename Header, typename Program, typename Section, typename Dynamic, typename Symbol>
std::string make(const ElfLibrary& library) {
  constexpr size_t kPrograms = 4;
  using Word = decltype(Program::p_offset);
  const auto aligned = [](std::string& bytes) { bytes.resize((bytes.size() + 7) / 8 * 8, '\0'); };
  std::string bytes(sizeof(Header) + kPrograms * sizeof(Program), '\0');
  aligned(bytes);
  const std::string strings = std::string("\0", 1) + library.soname + '\0';
  const size_t strings_at = bytes.size();
  bytes += strings;
  aligned(bytes);
  const size_t symbols_at = bytes.size();
  bytes.append(sizeof(Symbol), '\0');
  const size_t hash_at = bytes.size();
  for (const uint32_t value : {1U, 1U, 0U, 0U}) put(bytes, value);
  const size_t abi_at = bytes.size();
  if (library.has_abi_tag) {
    const uint32_t tag[] = {0, 2, 3, 99};
    bytes += note("GNU", 1, {reinterpret_cast<const char*>(tag), sizeof tag});
  }
  const size_t abi_size = bytes.size() - abi_at;
  aligned(bytes);
  const size_t dynamic_at = bytes.size();
  const auto add = [&](auto tag, size_t value) {
    Dynamic item{};
    item.d_tag = tag;
    item.d_un.d_val = static_cast<Word>(value);
    put(bytes, item);
  };
  if (!library.soname.empty()) add(DT_SONAME, 1);
  add(DT_HASH, hash_at);
  add(DT_STRTAB, strings_at);
  add(DT_SYMTAB, symbols_at);
  add(DT_STRSZ, strings.size());
  add(DT_SYMENT, sizeof(Symbol));
  add(DT_NULL, 0);
  const size_t dynamic_size = bytes.size() - dynamic_at;

  Header header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = library.is_32bit ? ELFCLASS32 : ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = library.is_32bit ? static_cast<uint16_t>(EM_386) : library.machine;
  header.e_version = EV_CURRENT;
  header.e_phoff = sizeof(Header);
  header.e_ehsize = sizeof(Header);
  header.e_phentsize = sizeof(Program);
  header.e_phnum = kPrograms;
  header.e_shentsize = sizeof(Section);

  std::string sections;
  if (!library.cuda_compat.empty()) {
    const std::string names = std::string("\0.note.cuda.fwd_compatibility\0.shstrtab\0", 40);
    const std::string text = note("NVIDIA Corporation", 1, library.cuda_compat);
    const auto section = [&](uint32_t name, uint32_t type, std::string_view content) {
      Section item{};
      item.sh_name = name;
      item.sh_type = type;
      item.sh_offset = static_cast<Word>(bytes.size());
      item.sh_size = static_cast<Word>(content.size());
      item.sh_addralign = 4;
      put(sections, item);
      bytes += content;
      aligned(bytes);
    };
    sections.append(sizeof(Section), '\0');
    section(1, SHT_NOTE, text);
    section(30, SHT_STRTAB, names);
    header.e_shoff = static_cast<Word>(bytes.size());
    header.e_shnum = 3;
    header.e_shstrndx = 2;
    bytes += sections;
  }
  std::string head;
  put(head, header);
  const auto program = [&](uint32_t type, size_t offset, size_t size, size_t alignment) {
    Program item{};
    item.p_type = type;
    item.p_flags = PF_R | PF_W;
    item.p_offset = item.p_vaddr = item.p_paddr = static_cast<Word>(offset);
    item.p_filesz = item.p_memsz = static_cast<Word>(size);
    item.p_align = static_cast<Word>(alignment);
    put(head, item);
  };
  program(PT_LOAD, 0, bytes.size(), 4096);
  program(PT_DYNAMIC, dynamic_at, dynamic_size, 8);
  program(abi_size == 0 ? PT_NULL : PT_NOTE, abi_at, abi_size, 4);
  program(PT_GNU_STACK, 0, 0, 16);
  return head + bytes.substr(head.size());
}

}  // namespace detail

/// The file's bytes.
inline std::string elf_library(const ElfLibrary& library) {
  return library.is_32bit ? detail::make<Elf32_Ehdr, Elf32_Phdr, Elf32_Shdr, Elf32_Dyn, Elf32_Sym>(library)
                          : detail::make<Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr, Elf64_Dyn, Elf64_Sym>(library);
}
inline std::string elf_library(const std::string& soname) {
  return elf_library(ElfLibrary{.soname = soname});
}

}  // namespace situla::test
