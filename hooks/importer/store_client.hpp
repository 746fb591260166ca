// How does the importer speak with the store program?
#pragma once

#include <optional>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/import/layer_cache.hpp"
#include "hooks/store/messages.hpp"

namespace situla {

/// The importer's end of the line. When the store program has ended, which it tells the broker itself, the error is
/// ErrorKind::cancelled without a text. One question at a time; progress may be told from any thread.
class StoreClient {
 public:
  explicit StoreClient(int socket) : socket_(socket) {}

  struct Answer {
    store_line::Message message;
    std::vector<UniqueFd> fds;
  };
  /// The first message: nobody asked for it.
  [[nodiscard]] Result<Answer> receive() const;
  [[nodiscard]] Result<Answer> ask(const store_line::Message& question) const;
  [[nodiscard]] Result<void> tell(const store_line::Message& message) const;

 private:
  int socket_;
};

/// The layers that the store has for this user: indexes and donors come as descriptors.
class StoreLayerCache final : public LayerCache {
 public:
  StoreLayerCache(const StoreClient& store, const SquashOptions& options)
      : store_(store), options_(options), donors_(options) {}

  [[nodiscard]] std::optional<KnownLayer> find(const Digest& layer) override;
  Result<void> put(const LayerIndexHead& head, const WriteEntries& write_entries) override;

 private:
  const StoreClient& store_;
  SquashOptions options_;
  Donors donors_;
};

}  // namespace situla
