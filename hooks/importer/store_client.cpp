#include "hooks/importer/store_client.hpp"

#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

namespace line = store_line;
}  // namespace

Result<StoreClient::Answer> StoreClient::receive() const {
  TRY_ASSIGN(auto packet, receive_packet(socket_, line::kMaxBytes));
  if (!packet) return fail(ErrorKind::cancelled, "");
  TRY_ASSIGN(line::Message message, line::decode(packet->bytes));
  return Answer{std::move(message), std::move(packet->fds)};
}

Result<StoreClient::Answer> StoreClient::ask(const line::Message& question) const {
  TRY(tell(question));
  return receive();
}

Result<void> StoreClient::tell(const line::Message& message) const {
  if (send_packet(socket_, line::encode(message))) return {};
  return fail(ErrorKind::cancelled, "");
}

std::optional<KnownLayer> StoreLayerCache::find(const Digest& layer) {
  auto answer = store_.ask(line::FindLayer{layer, block_kind(options_)});
  const auto* found = answer ? std::get_if<line::Layer>(&answer->message) : nullptr;
  if (found == nullptr || answer->fds.size() != 2) return std::nullopt;
  auto bytes = read_all(answer->fds[0].get(), LayerIndex::kMostInMemory);
  if (!bytes) return std::nullopt;
  auto index = LayerIndex::parse(std::move(*bytes));
  if (!index || index->head().layer != layer) return std::nullopt;
  // The store knows which file it is; what the index calls it was written before the file had its name.
  LayerIndexHead head = index->head();
  head.donor = found->donor;
  auto donor = donors_.get(head, [&]() -> Result<UniqueFd> { return std::move(answer->fds[1]); });
  if (donor == nullptr) return std::nullopt;
  return KnownLayer{std::move(*index), std::move(donor)};
}

Result<void> StoreLayerCache::put(const LayerIndexHead& head, const WriteEntries& write_entries) {
  TRY_ASSIGN(const auto answer, store_.ask(line::PutLayer{head.layer, block_kind(options_)}));
  if (!std::holds_alternative<line::WriteIndex>(answer.message) || answer.fds.size() != 1) return {};
  const int file = answer.fds[0].get();
  LayerIndexWriter writer(head, [file](std::string_view bytes) { return write_all(file, bytes); });
  TRY(write_entries(writer));
  return writer.finish();
}

}  // namespace situla
