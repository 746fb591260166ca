// Does the transport end what a server has no end of, and send no header line that a value would begin?
#include <atomic>
#include <filesystem>
#include <thread>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "hooks/registry/http.hpp"

using namespace situla;

namespace {

/// Answers one connection: `start`, then `endless` again and again until the client has gone or 64 MiB are sent.
class Server {
 public:
  explicit Server(std::string start, std::string endless = "")
      : start_(std::move(start)), endless_(std::move(endless)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener_, 1) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    unlink(path_.c_str());
  }

  Result<HttpResponse> ask() {
    auto transport = make_curl_transport(ImportSettings());
    REQUIRE(transport);
    HttpRequest request;
    request.url = "http://local/x";
    request.unix_socket = path_;
    return fetch(**transport, request, 1000);
  }

  std::atomic<size_t> sent{0};

 private:
  void serve() {
    const int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0) return;
    std::string request(4096, '\0');
    (void)!read(peer, request.data(), request.size());
    std::string_view piece = start_;
    while (!piece.empty() && sent < (size_t{64} << 20U)) {
      const ssize_t size = send(peer, piece.data(), piece.size(), MSG_NOSIGNAL);
      if (size != static_cast<ssize_t>(piece.size())) break;
      sent += piece.size();
      piece = endless_;
    }
    close(peer);
  }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("situla-http-" + std::to_string(getpid()))).string();
  const std::string start_, endless_;
  int listener_ = -1;
  std::thread thread_;
};

constexpr const char* kChunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Head: 1\r\n\r\n";

}  // namespace

TEST_CASE("trailers are no headers") {
  for (const std::string body : {"", "5\r\nhello\r\n"}) {
    Server server(kChunked + body + "0\r\nX-Head: 2\r\nX-Trailer: 3\r\n\r\n");
    const auto response = server.ask();
    REQUIRE(response);
    CHECK(response->body == (body.empty() ? "" : "hello"));
    CHECK(response->all("x-head") == std::vector<std::string>{"1"});
    CHECK_FALSE(response->header("x-trailer"));
  }
}

TEST_CASE("endless trailers and endless interim answers end the transfer") {
  std::string trailers, interim;
  while (trailers.size() < 60000) trailers += "X: " + std::string(1000, 'x') + "\r\n";
  while (interim.size() < 60000) interim += "HTTP/1.1 103 Early Hints\r\nX: " + std::string(1000, 'x') + "\r\n\r\n";
  for (const auto& [start, endless] :
       {std::pair(kChunked + std::string("5\r\nhello\r\n0\r\n"), trailers), std::pair(interim, interim)}) {
    Server server(start, endless);
    const auto response = server.ask();
    REQUIRE_FALSE(response);
    CHECK(server.sent < (size_t{4} << 20U));
  }
  Server server(kChunked + std::string("5\r\nhello\r\n0\r\n"), trailers);
  CHECK(server.ask().error().message().find("sends more than 512") != std::string::npos);
}

TEST_CASE("no header value ends its line") {
  struct Deaf final : TransferHandler {
    Flow on_head(const HttpResponse&) override { return Flow::go_on; }
    Flow on_data(std::string_view) override { return Flow::go_on; }
    void on_end(Result<void>) override {}
  } handler;
  auto transport = make_curl_transport(ImportSettings());
  REQUIRE(transport);
  for (const std::string& value :
       {std::string("a\r\nX-Other: b"), std::string("a\nb"), std::string("a\rb"), std::string("a\0b", 3)})
    for (const bool accept : {true, false}) {
      HttpRequest request;
      request.url = "https://127.0.0.1:1/";
      (accept ? request.accept : request.authorization) = value;
      const auto started = (*transport)->start(request, handler);
      REQUIRE_FALSE(started);
      CHECK(started.error().message().find("line end") != std::string::npos);
    }
}

TEST_CASE("who is not there has a code") {
  auto transport = make_curl_transport(ImportSettings());
  REQUIRE(transport);
  HttpRequest request;
  request.url = "https://127.0.0.1:1/";
  const auto response = fetch(**transport, request, 1000);
  REQUIRE_FALSE(response);
  CHECK(response.error().kind() == ErrorKind::unreachable);
  CHECK(response.error().code() == ErrorCode::registry_unreachable);
}
