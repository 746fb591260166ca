// How do tests play a registry? A transport whose answers a function gives.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hooks/registry/http.hpp"

namespace situla::test {

struct Answer {
  long status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  bool breaks = false;  ///< the connection is lost after the body
  ErrorKind how = ErrorKind::network;
};

/// Answers each request in poll(), in pieces.
class FakeTransport final : public HttpTransport {
 public:
  explicit FakeTransport(std::function<Answer(const HttpRequest&)> answer) : answer_(std::move(answer)) {}
  Result<TransferId> start(const HttpRequest& request, TransferHandler& handler) override;
  void resume(TransferId id) override;
  void cancel(TransferId id) override { running_.erase(id); }
  Result<void> poll(std::chrono::milliseconds) override;
  void wake() override {}

  size_t piece = 1000;
  std::function<void(size_t)> on_piece;  ///< hears of every piece that a handler gets; may be empty
  std::vector<HttpRequest> requests;

 private:
  struct Running {
    Answer answer;
    TransferHandler* handler;
    size_t sent = 0;
    bool told = false, paused = false;
  };
  std::function<Answer(const HttpRequest&)> answer_;
  std::map<TransferId, Running> running_;
  TransferId last_ = 0;
};

/// A blob behind the distribution API: honors Range if asked to.
Answer blob_answer(const HttpRequest& request, const std::string& blob, bool ranges);

}  // namespace situla::test
