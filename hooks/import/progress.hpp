// What does the user see while an image is imported?
#pragma once

#include <cstdint>
#include <string_view>

namespace situla {

/// Told about an import as it goes. Called from one thread, but for cancelled(); must not throw. Not owned by those who
/// report.
class Progress {
 public:
  virtual ~Progress() = default;
  /// A new phase begins ("downloading 7 layers, 628.1 MiB"); the one before has ended.
  virtual void phase(std::string_view text) noexcept = 0;
  /// Bytes of compressed layers to go in this phase, and how many of them are done; `done` only grows.
  virtual void bytes(uint64_t done, uint64_t total) noexcept = 0;
  /// Something to know: a warning, or what is being waited for.
  virtual void note(std::string_view text) noexcept = 0;
  /// The import is over, well or not; `text` may be empty.
  virtual void finish(std::string_view text) noexcept = 0;
  /// Asked several times a second, from any thread: true ends the import with ErrorKind::cancelled, and nothing is left
  /// of it.
  [[nodiscard]] virtual bool cancelled() const noexcept { return false; }
};

class NullProgress final : public Progress {
 public:
  void phase(std::string_view) noexcept override {}
  void bytes(uint64_t, uint64_t) noexcept override {}
  void note(std::string_view) noexcept override {}
  void finish(std::string_view) noexcept override {}
};

}  // namespace situla
