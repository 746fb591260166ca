// What may the store program and the importer say to each other? A small closed set, versioned: all that somebody who
// has taken over an importer could say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>

#include "common/base/error.hpp"
#include "common/base/result.hpp"
#include "common/spec/digest.hpp"

namespace situla::store_line {

constexpr size_t kMaxBytes = 4096;  ///< of one message

// store -> importer

/// Once, first. fds: the import request, a sealed memory file.
struct Work {
  std::string variant;           ///< of the image: "" (zstd level 1) or "lz4"
  std::optional<Digest> digest;  ///< of the manifest that the job's other steps have: to be asked for, not the name
  /// What the name meant last. As long as it means the same index, its manifest need not be fetched.
  std::optional<NamedManifest> known;
  bool impatient = false;  ///< if the registry does not answer at once, there is something else to be started

  static auto fields(auto& work) { return std::tie(work.variant, work.digest, work.known, work.impatient); }
};
/// The store has the image: nothing is to be done.
struct Have {};
/// fds: a file without a name, to be written from its start.
struct WriteImage {
  std::string where;  ///< names it in errors

  static auto fields(auto& image) { return std::tie(image.where); }
};
/// fds: the index of the layer, and the squashfs file that holds its content; both for reading.
struct Layer {
  std::string donor;  ///< names the file in errors

  static auto fields(auto& found) { return std::tie(found.donor); }
};
struct NoLayer {};
/// fds: a file without a name, for the index of a layer of the image that was written.
struct WriteIndex {};
/// There is nothing else to be started.
struct NoImage {
  std::string alike;  ///< what the user may have meant: an image here that he was let have; empty: none is near

  static auto fields(auto& none) { return std::tie(none.alike); }
};
/// Images went: there is room to write on.
struct RoomMade {};

// importer -> store

/// The registry has let the user in and named this manifest. Answer: Have, or WriteImage, maybe much later.
struct Resolved {
  NamedManifest image;

  static auto fields(auto& resolved) { return std::tie(resolved.image); }
};
/// It has not: denied, not_found, network or unreachable (it does not answer), or another reason. Answer: Have or
/// NoImage.
struct Unresolved {
  ErrorKind why = ErrorKind::failure;

  static auto fields(auto& unresolved) { return std::tie(unresolved.why); }
};
/// Answer: Layer or NoLayer. kind: of the blocks, "zstd-131072": [a-z0-9-].
struct FindLayer {
  Digest layer;
  std::string kind;

  static auto fields(auto& wanted) { return std::tie(wanted.layer, wanted.kind); }
};
/// Answer: WriteIndex or NoLayer.
struct PutLayer {
  Digest layer;
  std::string kind;

  static auto fields(auto& put) { return std::tie(put.layer, put.kind); }
};
/// Now and then while it works; no answer.
struct Progressed {
  uint64_t bytes = 0;      ///< fetched so far
  bool finishing = false;  ///< all is fetched

  static auto fields(auto& progress) { return std::tie(progress.bytes, progress.finishing); }
};
/// The file system is full. Answer: RoomMade; or the store program says why not, and ends.
struct MakeRoom {};
/// The file is whole; last. The importer ends.
struct Built {
  uint64_t fetched_bytes = 0;
  std::string architecture;

  static auto fields(auto& built) { return std::tie(built.fetched_bytes, built.architecture); }
};

using Message = std::variant<Work, Have, WriteImage, Layer, NoLayer, WriteIndex, NoImage, Resolved, Unresolved,
                             FindLayer, PutLayer, Progressed, Built, RoomMade, MakeRoom>;

std::string encode(const Message& message);
/// ErrorKind::corrupt for anything that encode() did not write, another version included.
Result<Message> decode(std::string_view bytes);

}  // namespace situla::store_line
