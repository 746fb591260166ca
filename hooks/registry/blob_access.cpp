#include "hooks/registry/blob_access.hpp"

#include <deque>

namespace situla {
namespace {

constexpr std::chrono::milliseconds kProbeTime{200};
constexpr size_t kAtOnce = 16;
constexpr long kOk = 200;
constexpr long kPartialContent = 206;

class Probe final : public TransferHandler {
 public:
  Flow on_head(const HttpResponse& head) override {
    readable = head.status == kOk || head.status == kPartialContent;
    // Without Range the whole blob would follow.
    return head.status == kPartialContent ? Flow::go_on : Flow::stop;
  }
  Flow on_data(std::string_view) override { return Flow::go_on; }
  void on_end(Result<void>) override { ended = true; }

  TransferId id = 0;
  bool readable = false, ended = false;
};

}  // namespace

std::vector<bool> probe_blobs(HttpTransport& transport, const RegistryClient& client, const std::vector<Blob>& blobs,
                              const std::function<bool()>& cancelled) {
  std::deque<Probe> probes(blobs.size());  // handlers stay where they are
  size_t started = 0;
  bool broken = false;
  const auto running = [&] {
    size_t count = 0;
    for (size_t i = 0; i < started; ++i) count += probes[i].ended ? 0 : 1;
    return count;
  };
  while (!broken && (started < blobs.size() || running() > 0)) {
    while (started < blobs.size() && running() < kAtOnce) {
      HttpRequest request = client.blob_request(blobs[started].digest);
      request.range = {0, 0};
      Probe& probe = probes[started++];
      const auto id = transport.start(request, probe);
      if (id)
        probe.id = *id;
      else
        probe.ended = true;
    }
    broken = (cancelled && cancelled()) || !transport.poll(kProbeTime);
  }
  std::vector<bool> readable;
  for (size_t i = 0; i < probes.size(); ++i) {
    if (i < started && !probes[i].ended) transport.cancel(probes[i].id);
    readable.push_back(probes[i].ended && probes[i].readable);
  }
  return readable;
}

}  // namespace situla
