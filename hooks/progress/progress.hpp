// What does the user see while an image is imported?
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace situla {

/// How far a layer is. It is active from its first event until it is finished; several may be at once.
struct LayerProgress {
  size_t index = 0;             ///< in the order of reading
  std::string_view name;        ///< "layer 3 of 7 sha256:ab12..."; valid during the call
  uint64_t done = 0, size = 0;  ///< compressed bytes
  bool finished = false;
};

/// Told about an import as it goes. Called from one thread, but for cancelled(); must not throw. Not owned by those who
/// report.
class Progress {
 public:
  virtual ~Progress() = default;
  /// A new phase begins ("downloading 7 layers, 628.1 MiB"); the one before has ended.
  virtual void phase(std::string_view text) noexcept = 0;
  /// Bytes of compressed layers to go in this phase, and how many of them are done; `done` only grows. Also called now
  /// and then while nothing arrives.
  virtual void bytes(uint64_t done, uint64_t total) noexcept = 0;
  /// What keeps the phase, as it is now: "no answer for 5 s", "trying again in 4 s". Empty: nothing does.
  virtual void waiting(std::string_view) noexcept {}
  /// A layer begins, goes on or ends; a call of bytes() follows.
  virtual void layer(const LayerProgress&) noexcept {}
  /// Something to know: a warning, or what is being waited for.
  virtual void note(std::string_view text) noexcept = 0;
  /// The import is over, well or not; `text` may be empty.
  virtual void finish(std::string_view text) noexcept = 0;
  /// Asked several times a second, from any thread: true ends the import with ErrorKind::cancelled, and nothing is left
  /// of it.
  [[nodiscard]] virtual bool cancelled() const noexcept { return false; }
};

/// Tells nobody.
class NullProgress : public Progress {
 public:
  void phase(std::string_view) noexcept override {}
  void bytes(uint64_t, uint64_t) noexcept override {}
  void note(std::string_view) noexcept override {}
  void finish(std::string_view) noexcept override {}
};

}  // namespace situla
