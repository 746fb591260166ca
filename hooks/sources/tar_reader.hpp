// Which entries does a layer's tar stream have? ustar, pax, GNU long names and sparse files, by libarchive.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/squashfs/tar_entry.hpp"

namespace situla {

class TarReader {
 public:
  using Source = std::function<Result<std::string_view>()>;
  /// Passes over at most so many bytes of the source; returns how many.
  using Skip = std::function<uint64_t(uint64_t)>;
  using Sink = std::function<Result<void>(std::string_view)>;
  /// So many zeros come next, which the archive does not have.
  using Hole = std::function<Result<void>(uint64_t)>;

  /// source gives the next bytes, valid until the next call, empty at the end.
  explicit TarReader(Source source, Skip skip = nullptr);
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;
  ~TarReader();

  /// nullopt at the end of the archive. ErrorKind::corrupt for what is no tar.
  Result<std::optional<TarEntry>> next();
  /// Content of the file that next() gave, holes filled with zeros: exactly `size` bytes.
  Result<void> read_data(const Sink& sink, const Hole& hole = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace situla
