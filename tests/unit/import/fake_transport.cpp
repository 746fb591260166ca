#include "tests/unit/import/fake_transport.hpp"

#include <thread>

namespace situla::test {

Result<TransferId> FakeTransport::start(const HttpRequest& request, TransferHandler& handler) {
  requests.push_back(request);
  running_.emplace(++last_, Running{answer_(request), &handler, 0, false, false});
  return last_;
}

void FakeTransport::resume(TransferId id) {
  if (const auto found = running_.find(id); found != running_.end()) found->second.paused = false;
}

Result<void> FakeTransport::poll(std::chrono::milliseconds) {
  std::vector<TransferId> ids;
  for (const auto& [id, running] : running_) ids.push_back(id);
  bool idle = true;
  for (const TransferId id : ids) {
    Running& running = running_.at(id);
    if (running.paused) continue;
    idle = false;
    Flow flow = Flow::go_on;
    if (!std::exchange(running.told, true))
      flow = running.handler->on_head({running.answer.status, running.answer.headers, {}});
    const std::string_view piece_now = std::string_view(running.answer.body).substr(running.sent, piece);
    if (flow == Flow::go_on && !piece_now.empty()) {
      if (on_piece) on_piece(piece_now.size());
      flow = running.handler->on_data(piece_now);
      if (flow == Flow::pause) {
        running.paused = true;
        continue;
      }
      running.sent += piece_now.size();
    }
    if (flow == Flow::go_on && running.sent < running.answer.body.size()) continue;
    TransferHandler* handler = running.handler;
    Result<void> result;
    if (flow == Flow::stop) result = fail(ErrorKind::cancelled, "stopped");
    if (flow == Flow::go_on && running.answer.breaks) result = fail(running.answer.how, "the connection broke");
    running_.erase(id);
    handler->on_end(std::move(result));
  }
  if (idle) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return {};
}

Answer blob_answer(const HttpRequest& request, const std::string& blob, bool ranges) {
  Answer answer;
  if (!request.range || !ranges) {
    answer.headers.emplace_back("content-length", std::to_string(blob.size()));
    answer.body = blob;
    return answer;
  }
  const auto [first, last] = *request.range;
  answer.status = 206;
  answer.headers.emplace_back("content-range", "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                                                   std::to_string(blob.size()));
  answer.body = blob.substr(first, last - first + 1);
  return answer;
}

}  // namespace situla::test
