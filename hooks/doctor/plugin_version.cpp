#include "hooks/doctor/plugin_version.hpp"

#include <cstring>
#include <optional>

#include <elf.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla::doctor {
namespace {

constexpr std::string_view kSymbol = "plugin_version";

/// An object at an offset of the file; nullopt beyond its end.
template <typename Item>
std::optional<Item> item_at(std::string_view bytes, uint64_t offset, uint64_t index = 0) {
  if (offset > bytes.size() || index > bytes.size() / sizeof(Item)) return std::nullopt;
  offset += index * sizeof(Item);
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Item)) return std::nullopt;
  Item item;
  memcpy(&item, bytes.data() + offset, sizeof(Item));
  return item;
}

std::optional<Elf64_Shdr> section_at(std::string_view bytes, const Elf64_Ehdr& header, uint32_t index) {
  return index < header.e_shnum ? item_at<Elf64_Shdr>(bytes, header.e_shoff, index) : std::nullopt;
}

bool has_name(std::string_view bytes, const Elf64_Shdr& strings, const Elf64_Sym& symbol) {
  if (strings.sh_offset > bytes.size() || symbol.st_name > bytes.size() - strings.sh_offset) return false;
  const std::string_view text = bytes.substr(strings.sh_offset + symbol.st_name, kSymbol.size() + 1);
  return text.size() == kSymbol.size() + 1 && text.starts_with(kSymbol) && text.back() == '\0';
}

/// Where the memory of an address comes from.
std::optional<uint64_t> file_offset(std::string_view bytes, const Elf64_Ehdr& header, uint64_t address) {
  for (uint32_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = item_at<Elf64_Phdr>(bytes, header.e_phoff, i);
    if (!segment) return std::nullopt;
    if (segment->p_type == PT_LOAD && address >= segment->p_vaddr && address - segment->p_vaddr < segment->p_filesz)
      return segment->p_offset + (address - segment->p_vaddr);
  }
  return std::nullopt;
}

std::optional<uint32_t> number_in(std::string_view bytes, const Elf64_Ehdr& header, const Elf64_Shdr& symbols) {
  const auto strings = section_at(bytes, header, symbols.sh_link);
  if (!strings) return std::nullopt;
  for (uint64_t i = 0; i < symbols.sh_size / sizeof(Elf64_Sym); ++i) {
    const auto symbol = item_at<Elf64_Sym>(bytes, symbols.sh_offset, i);
    if (!symbol) return std::nullopt;
    if (symbol->st_shndx == SHN_UNDEF || !has_name(bytes, *strings, *symbol)) continue;
    const auto offset = file_offset(bytes, header, symbol->st_value);
    return offset ? item_at<uint32_t>(bytes, *offset) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<uint32_t> plugin_version(std::string_view bytes) {
  const auto header = item_at<Elf64_Ehdr>(bytes, 0);
  if (!header || !bytes.starts_with(ELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64) return std::nullopt;
  for (uint32_t i = 0; i < header->e_shnum; ++i)
    if (const auto section = section_at(bytes, *header, i); section && section->sh_type == SHT_DYNSYM)
      return number_in(bytes, *header, *section);
  return std::nullopt;
}

}  // namespace

std::string SlurmVersion::release() const {
  return std::to_string(major) + "." + (minor < 10 ? "0" : "") + std::to_string(minor);
}

std::string SlurmVersion::text() const {
  return release() + "." + std::to_string(patch);
}

Result<SlurmVersion> version_built_for(const std::string& plugin) {
  TRY_ASSIGN(const std::string bytes, read_file(plugin, size_t{64} << 20U));
  const auto number = plugin_version(bytes);
  if (!number) return fail(ErrorKind::corrupt, plugin + " is not a plugin of Slurm's");
  return SlurmVersion{*number >> 16U & 0xffU, *number >> 8U & 0xffU, *number & 0xffU};
}

Result<SlurmVersion> parse_slurm_version(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text);
  const std::vector<std::string_view> numbers =
      words.size() < 2 ? std::vector<std::string_view>{} : split(words[1], '.');
  const auto number = [&](size_t index) -> std::optional<uint64_t> {
    if (index >= numbers.size()) return std::nullopt;
    return parse_unsigned(numbers[index].substr(0, numbers[index].find_first_not_of("0123456789")));
  };
  const auto major = number(0);
  const auto minor = number(1);
  if (!major || !minor || *major > 255 || *minor > 255)
    return fail(ErrorKind::corrupt, "no version of Slurm: " + printable(text.substr(0, 80)));
  return SlurmVersion{static_cast<uint32_t>(*major), static_cast<uint32_t>(*minor),
                      static_cast<uint32_t>(number(2).value_or(0))};
}

}  // namespace situla::doctor
