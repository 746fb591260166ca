#include "hooks/inject/ldcache/elf_file.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include <elf.h>
#include <unistd.h>

#include "hooks/inject/ldcache/ld_cache.hpp"

namespace situla {
namespace {

// Far more than any library has, and little memory.
constexpr size_t kMaxHeaders = 4096;
constexpr size_t kMaxDynamic = size_t{64} << 10U;
constexpr size_t kMaxNotes = size_t{64} << 10U;
constexpr size_t kMaxNames = size_t{1} << 20U;
constexpr size_t kMaxVersions = size_t{256} << 10U;  ///< bytes of a table of versions
constexpr size_t kMaxVersionItems = 4096;            // the C library has about a hundred

struct Elf32 {
  using Header = Elf32_Ehdr;
  using Program = Elf32_Phdr;
  using Section = Elf32_Shdr;
  using Dynamic = Elf32_Dyn;
  using Symbol = Elf32_Sym;
  using Need = Elf32_Verneed;
  using NeedItem = Elf32_Vernaux;
  using Definition = Elf32_Verdef;
  using DefinitionItem = Elf32_Verdaux;
};
struct Elf64 {
  using Header = Elf64_Ehdr;
  using Program = Elf64_Phdr;
  using Section = Elf64_Shdr;
  using Dynamic = Elf64_Dyn;
  using Symbol = Elf64_Sym;
  using Need = Elf64_Verneed;
  using NeedItem = Elf64_Vernaux;
  using Definition = Elf64_Verdef;
  using DefinitionItem = Elf64_Verdaux;
};

/// Up to size bytes at an offset; fewer at the end of the file.
using ReadAt = std::function<Result<std::string>(uint64_t offset, size_t size)>;

tl::unexpected<Error> corrupt_library(std::string_view why) {
  return fail(ErrorKind::corrupt, "read the library: " + std::string(why));
}

template <typename Item>
Result<std::vector<Item>> read_items(const ReadAt& read_at, uint64_t offset, size_t count) {
  TRY_ASSIGN(const std::string bytes, read_at(offset, count * sizeof(Item)));
  if (bytes.size() != count * sizeof(Item)) return corrupt_library("it is cut off");
  std::vector<Item> items(count);
  if (count != 0) std::memcpy(items.data(), bytes.data(), bytes.size());
  return items;
}

/// The text that a NUL ends; empty if none does.
std::string_view text_in(std::string_view bytes, uint64_t offset) {
  if (offset >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(offset);
  const size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

/// The text that a NUL ends, of a library or of a version of symbols. Texts may overlap: many long ones would be far
/// more than the file has.
Result<std::string> name_in(std::string_view bytes, uint64_t offset) {
  const std::string_view rest = offset >= bytes.size() ? std::string_view() : bytes.substr(offset, NAME_MAX + 1);
  const size_t end = rest.find('\0');
  if (end != std::string_view::npos) return std::string(rest.substr(0, end));
  if (rest.size() > NAME_MAX) return corrupt_library("it has a name that is too long");
  return std::string();
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= NAME_MAX && name.find('/') == std::string_view::npos && name != "." &&
         name != "..";
}

/// Calls see(owner, type, description) for each whole note. Everything in a note is aligned as its segment is.
template <typename See>
void each_note(std::string_view bytes, uint64_t alignment, const See& see) {
  const size_t step = alignment == 8 ? 8 : 4;
  const auto aligned = [step](size_t size) { return (size + step - 1) / step * step; };
  while (bytes.size() >= sizeof(Elf32_Nhdr)) {
    Elf32_Nhdr note{};
    std::memcpy(&note, bytes.data(), sizeof note);
    bytes.remove_prefix(sizeof note);
    if (note.n_namesz > bytes.size()) return;
    const std::string_view owner = text_in(bytes.substr(0, note.n_namesz), 0);
    bytes.remove_prefix(std::min(aligned(note.n_namesz), bytes.size()));
    // The padding of some of NVIDIA's notes is counted but not there.
    const std::string_view description = bytes.substr(0, note.n_descsz);
    see(owner, note.n_type, description);
    bytes.remove_prefix(std::min(aligned(note.n_descsz), bytes.size()));
  }
}

template <typename Elf>
class Reader {
 public:
  explicit Reader(const ReadAt& read_at) : read_at_(read_at) {}

  Result<void> open(std::string_view head) {
    if (head.size() < sizeof header_) return corrupt_library("it is cut off");
    std::memcpy(&header_, head.data(), sizeof header_);
    if (header_.e_type != ET_DYN) return corrupt_library("it is no shared object");
    if (header_.e_phentsize != sizeof(typename Elf::Program) || header_.e_phnum > kMaxHeaders)
      return corrupt_library("its program headers are of another size");
    TRY_ASSIGN(programs_, read_items<typename Elf::Program>(read_at_, header_.e_phoff, header_.e_phnum));
    return {};
  }

  Result<ElfFile> read(std::string_view head, ElfNotes notes) {
    TRY(open(head));
    file_.is_64bit = header_.e_ident[EI_CLASS] == ELFCLASS64;
    file_.machine = header_.e_machine;
    TRY(read_soname());
    if (notes == ElfNotes::read) {
      TRY(read_abi_tag());
      TRY(read_cuda_compat());
    }
    return std::move(file_);
  }

  Result<std::string> read_object(std::string_view head, std::string_view name, size_t size) {
    TRY(open(head));
    TRY_ASSIGN(const auto sections, read_sections());
    const auto symbols = std::find_if(sections.begin(), sections.end(),
                                      [](const auto& section) { return section.sh_type == SHT_DYNSYM; });
    if (symbols == sections.end() || symbols->sh_link >= sections.size()) return corrupt_library("it has no symbols");
    const auto& strings = sections[symbols->sh_link];
    TRY_ASSIGN(const std::string names, read_at_(strings.sh_offset, std::min<uint64_t>(strings.sh_size, kMaxNames)));
    using Item = typename Elf::Symbol;
    const size_t count = std::min<uint64_t>(symbols->sh_size, kMaxNames) / sizeof(Item);
    TRY_ASSIGN(const auto items, read_items<Item>(read_at_, symbols->sh_offset, count));
    for (const auto& item : items) {
      if (item.st_shndx == SHN_UNDEF || text_in(names, item.st_name) != name) continue;
      const auto offset = offset_of(item.st_value);
      TRY_ASSIGN(std::string bytes, read_at_(offset.value_or(UINT64_MAX), size));
      if (bytes.size() == size) return bytes;
    }
    return corrupt_library("it has no such object");
  }

  Result<ElfLinkage> read_linkage(std::string_view head) {
    TRY(open(head));
    TRY(read_dynamic());
    ElfLinkage linkage;
    if (dynamic_.empty()) return linkage;
    TRY_ASSIGN(const std::string names, table(DT_STRTAB, std::min<uint64_t>(value(DT_STRSZ), kMaxNames)));
    for (const auto& item : dynamic_) {
      if (item.d_tag != DT_NEEDED) continue;
      TRY_ASSIGN(std::string name, name_in(names, item.d_un.d_val));
      if (is_file_name(name)) linkage.needed.push_back(std::move(name));
    }
    TRY(read_requirements(names, linkage));
    TRY(read_definitions(names, linkage));
    return linkage;
  }

 private:
  /// Up to its end, which is not part of it.
  Result<void> read_dynamic() {
    const auto segment = std::find_if(programs_.begin(), programs_.end(),
                                      [](const auto& program) { return program.p_type == PT_DYNAMIC; });
    if (segment == programs_.end()) return {};
    const size_t size = std::min<uint64_t>(segment->p_filesz, kMaxDynamic);
    using Item = typename Elf::Dynamic;
    TRY_ASSIGN(dynamic_, read_items<Item>(read_at_, segment->p_offset, size / sizeof(Item)));
    dynamic_.erase(
        std::find_if(dynamic_.begin(), dynamic_.end(), [](const auto& item) { return item.d_tag == DT_NULL; }),
        dynamic_.end());
    return {};
  }

  /// Of the last item with this tag; 0 without.
  [[nodiscard]] uint64_t value(int64_t tag) const {
    const auto item =
        std::find_if(dynamic_.rbegin(), dynamic_.rend(), [tag](const auto& each) { return each.d_tag == tag; });
    return item == dynamic_.rend() ? 0 : item->d_un.d_val;
  }

  /// The bytes at the address that an item holds; fewer at the end of the file, none without the item.
  Result<std::string> table(int64_t tag, size_t size) const {
    const uint64_t address = value(tag);
    if (address == 0) return std::string();
    const auto offset = offset_of(address);
    if (!offset) return corrupt_library("a table is outside of it");
    return read_at_(*offset, size);
  }

  /// Calls see(entry) for each entry of a chain: `next` says how many bytes further the following one is, 0 ends it.
  template <typename Entry, typename Next, typename See>
  Result<void> each_entry(std::string_view bytes, uint64_t at, Next next, const See& see) {
    for (;;) {
      if (++version_items_ > kMaxVersionItems) return corrupt_library("it has too many versions");
      if (at > bytes.size() || bytes.size() - at < sizeof(Entry)) return corrupt_library("its versions are cut off");
      Entry entry{};
      std::memcpy(&entry, bytes.data() + at, sizeof entry);
      TRY(see(entry, at));
      if (entry.*next == 0) return {};
      at += entry.*next;
    }
  }

  Result<void> read_requirements(std::string_view names, ElfLinkage& linkage) {
    TRY_ASSIGN(const std::string bytes, table(DT_VERNEED, kMaxVersions));
    if (bytes.empty()) return {};
    using Need = typename Elf::Need;
    using Item = typename Elf::NeedItem;
    return each_entry<Need>(bytes, 0, &Need::vn_next, [&](const Need& need, uint64_t at) -> Result<void> {
      TRY_ASSIGN(const std::string library, name_in(names, need.vn_file));
      if (need.vn_cnt == 0) return {};
      return each_entry<Item>(bytes, at + need.vn_aux, &Item::vna_next,
                              [&](const Item& item, uint64_t) -> Result<void> {
                                TRY_ASSIGN(std::string version, name_in(names, item.vna_name));
                                if ((item.vna_flags & VER_FLG_WEAK) == 0)
                                  linkage.required.push_back({library, std::move(version)});
                                return {};
                              });
    });
  }

  /// Of each definition the first name; those that follow are what it extends.
  Result<void> read_definitions(std::string_view names, ElfLinkage& linkage) {
    TRY_ASSIGN(const std::string bytes, table(DT_VERDEF, kMaxVersions));
    if (bytes.empty()) return {};
    using Definition = typename Elf::Definition;
    using Item = typename Elf::DefinitionItem;
    return each_entry<Definition>(bytes, 0, &Definition::vd_next,
                                  [&](const Definition& definition, uint64_t at) -> Result<void> {
                                    Item item{};
                                    const uint64_t place = at + definition.vd_aux;
                                    if (place > bytes.size() || bytes.size() - place < sizeof item)
                                      return corrupt_library("its versions are cut off");
                                    std::memcpy(&item, bytes.data() + place, sizeof item);
                                    TRY_ASSIGN(std::string version, name_in(names, item.vda_name));
                                    linkage.defined.push_back(std::move(version));
                                    return {};
                                  });
  }

  /// Where an address of the running program is in the file.
  [[nodiscard]] std::optional<uint64_t> offset_of(uint64_t address) const {
    for (const auto& program : programs_) {
      if (program.p_type != PT_LOAD || address < program.p_vaddr) continue;
      const uint64_t inside = address - program.p_vaddr;
      if (inside < program.p_filesz && program.p_offset <= UINT64_MAX - inside) return program.p_offset + inside;
    }
    return std::nullopt;
  }

  Result<void> read_soname() {
    TRY(read_dynamic());
    std::optional<uint64_t> table, name;
    for (const auto& item : dynamic_) {
      if (item.d_tag == DT_STRTAB) table = offset_of(item.d_un.d_ptr);
      if (item.d_tag == DT_SONAME) name = item.d_un.d_val;
    }
    if (!table || !name || *name > UINT64_MAX - *table) return {};
    TRY_ASSIGN(const std::string bytes, read_at_(*table + *name, NAME_MAX + 1));
    if (const auto text = text_in(bytes, 0); is_file_name(text)) file_.soname = text;
    return {};
  }

  Result<void> read_abi_tag() {
    for (const auto& program : programs_) {
      if (program.p_type != PT_NOTE) continue;
      TRY_ASSIGN(const std::string bytes, read_at_(program.p_offset, std::min<uint64_t>(program.p_filesz, kMaxNotes)));
      each_note(bytes, program.p_align, [&](std::string_view owner, uint32_t type, std::string_view description) {
        if (owner != ELF_NOTE_GNU || type != NT_GNU_ABI_TAG || description.size() < sizeof(AbiTag)) return;
        std::memcpy(&file_.abi_tag.emplace(), description.data(), sizeof(AbiTag));
      });
    }
    return {};
  }

  Result<std::vector<typename Elf::Section>> read_sections() {
    if (header_.e_shoff == 0 || header_.e_shnum == 0) return std::vector<typename Elf::Section>();
    if (header_.e_shentsize != sizeof(typename Elf::Section) || header_.e_shnum > kMaxHeaders ||
        header_.e_shstrndx >= header_.e_shnum)
      return corrupt_library("its section headers are of another size");
    return read_items<typename Elf::Section>(read_at_, header_.e_shoff, header_.e_shnum);
  }

  Result<void> read_cuda_compat() {
    TRY_ASSIGN(const auto sections, read_sections());
    if (sections.empty()) return {};
    const auto& table = sections[header_.e_shstrndx];
    TRY_ASSIGN(const std::string names, read_at_(table.sh_offset, std::min<uint64_t>(table.sh_size, kMaxNames)));
    for (const auto& section : sections) {
      if (section.sh_type != SHT_NOTE || text_in(names, section.sh_name) != ".note.cuda.fwd_compatibility") continue;
      TRY_ASSIGN(const std::string bytes, read_at_(section.sh_offset, std::min<uint64_t>(section.sh_size, kMaxNotes)));
      each_note(bytes, section.sh_addralign, [&](std::string_view owner, uint32_t, std::string_view description) {
        if (owner != "NVIDIA Corporation" || file_.cuda_compat) return;
        file_.cuda_compat = description.substr(0, description.find('\0'));
      });
    }
    return {};
  }

  const ReadAt& read_at_;
  typename Elf::Header header_{};
  std::vector<typename Elf::Program> programs_;
  std::vector<typename Elf::Dynamic> dynamic_;
  size_t version_items_ = 0;
  ElfFile file_;
};

/// Calls use(reader, head) with a Reader of the file's class.
template <typename Value, typename Use>
Result<Value> with_reader(const ReadAt& read_at, const Use& use) {
  TRY_ASSIGN(const std::string head, read_at(0, sizeof(Elf64_Ehdr)));
  if (head.size() < EI_NIDENT || std::memcmp(head.data(), ELFMAG, SELFMAG) != 0)
    return corrupt_library("it is no ELF file");
  if (head[EI_DATA] != ELFDATA2LSB) return corrupt_library("it is for a machine of another byte order");
  if (head[EI_CLASS] == ELFCLASS64) return use(Reader<Elf64>(read_at), head);
  if (head[EI_CLASS] == ELFCLASS32) return use(Reader<Elf32>(read_at), head);
  return corrupt_library("it is of an unknown class");
}

Result<ElfFile> read_elf(const ReadAt& read_at, ElfNotes notes) {
  return with_reader<ElfFile>(read_at, [notes](auto reader, const auto& head) { return reader.read(head, notes); });
}

Result<std::string> from_file(int fd, uint64_t offset, size_t size) {
  if (offset > INT64_MAX) return std::string();
  std::string bytes(size, '\0');
  const ssize_t got = pread(fd, bytes.data(), size, static_cast<off_t>(offset));
  if (got < 0) return fail_errno(errno, "read the library");
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

ReadAt from_memory(std::string_view bytes) {
  return [bytes](uint64_t offset, size_t size) -> Result<std::string> {
    return offset > bytes.size() ? std::string() : std::string(bytes.substr(offset, size));
  };
}

}  // namespace

Result<ElfLinkage> ElfFile::read_linkage(int fd) {
  const ReadAt read_at = [fd](uint64_t offset, size_t size) { return from_file(fd, offset, size); };
  return with_reader<ElfLinkage>(read_at, [](auto reader, const auto& head) { return reader.read_linkage(head); });
}

Result<ElfFile> ElfFile::read(int fd, ElfNotes notes) {
  // Headers and the dynamic section's texts are mostly at the beginning: one call reads what would be three or four.
  constexpr size_t kHead = 4096;
  TRY_ASSIGN(const std::string head, from_file(fd, 0, kHead));
  const ReadAt read_at = [&](uint64_t offset, size_t size) -> Result<std::string> {
    if (offset <= head.size() && size <= head.size() - offset) return head.substr(offset, size);
    return from_file(fd, offset, size);
  };
  return read_elf(read_at, notes);
}

Result<std::string> ElfFile::read_object(int fd, std::string_view symbol, size_t size) {
  const ReadAt read_at = [fd](uint64_t offset, size_t count) { return from_file(fd, offset, count); };
  return with_reader<std::string>(
      read_at, [&](auto reader, const auto& head) { return reader.read_object(head, symbol, size); });
}

Result<ElfFile> ElfFile::parse(std::string_view bytes, ElfNotes notes) {
  return read_elf(from_memory(bytes), notes);
}

Result<ElfLinkage> ElfFile::parse_linkage(std::string_view bytes) {
  return with_reader<ElfLinkage>(from_memory(bytes),
                                 [](auto reader, const auto& head) { return reader.read_linkage(head); });
}

std::optional<uint32_t> ElfFile::ld_flags() const {
  switch (machine) {
    case EM_X86_64:
      return kLdElfLibc6 | (is_64bit ? kLdX86_64 : kLdX32);
    case EM_386:
      return kLdElfLibc6 | kLdI386;
    case EM_AARCH64:
      return is_64bit ? std::optional(kLdElfLibc6 | kLdAarch64) : std::nullopt;
    case EM_ARM:
      return kLdElfLibc6 | kLdArmHardFloat;
    case EM_PPC64:
      return kLdElfLibc6 | kLdPpc64Le;
    default:
      return std::nullopt;
  }
}

}  // namespace situla
