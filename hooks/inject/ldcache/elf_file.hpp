// What does a shared library say about itself? Read from its file without loading or mapping it: it may be anybody's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

/// GNU's ABI note: libnvidia-tls for thread-local storage of the usual kind has 0, 2, 3, 99 (Linux 2.3.99).
using AbiTag = std::array<uint32_t, 4>;

/// What a library wants of others, and what it offers them: names of libraries and of versions of their symbols.
struct ElfLinkage {
  std::vector<std::string> needed;  ///< DT_NEEDED, in their order; those that are no file names are left out
  struct Requirement {
    std::string library, version;  ///< "libc.so.6", "GLIBC_2.34"
    friend bool operator==(const Requirement&, const Requirement&) = default;
  };
  std::vector<Requirement> required;  ///< without those that the linker only warns about
  std::vector<std::string> defined;   ///< the first is the library's own name
};

enum class ElfNotes { skip, read };

struct ElfFile {
  bool is_64bit = true;
  uint16_t machine = 0;  ///< EM_X86_64, ...
  std::string soname;    ///< DT_SONAME; empty without one, and for one that is no file name
  // Only with ElfNotes::read:
  std::optional<AbiTag> abi_tag;
  std::optional<std::string> cuda_compat;  ///< NVIDIA's note .note.cuda.fwd_compatibility, JSON

  /// A shared object in little-endian byte order; ErrorKind::corrupt for everything else.
  static Result<ElfFile> read(int fd, ElfNotes notes = ElfNotes::skip);
  static Result<ElfFile> parse(std::string_view bytes, ElfNotes notes = ElfNotes::skip);

  /// The first bytes of an object that the library exports, as they are in the file. ErrorKind::corrupt without one.
  static Result<std::string> read_object(int fd, std::string_view symbol, size_t size);

  /// ErrorKind::corrupt for everything but a shared object, where its tables are cut off or lead nowhere, and with
  /// names of more than NAME_MAX bytes.
  static Result<ElfLinkage> read_linkage(int fd);
  static Result<ElfLinkage> parse_linkage(std::string_view bytes);

  /// What a cache of the dynamic linker calls such a library (LdCacheEntry::flags); nullopt for other processors.
  [[nodiscard]] std::optional<uint32_t> ld_flags() const;
};

}  // namespace situla
