// Do blobs arrive whole, in order and in bounded memory, whatever the registry does?
#include <atomic>
#include <random>

#include <catch2/catch.hpp>

#include "hooks/import/blob_downloader.hpp"
#include "hooks/import/sha256.hpp"
#include "tests/unit/import/fake_transport.hpp"

using namespace situla;
using test::Answer;
using test::FakeTransport;

namespace {

struct Fixture {
  std::vector<std::string> blobs;
  CredentialSet credentials;

  Fixture() {
    std::mt19937 random(5);
    for (const size_t size : {size_t{100}, size_t{0}, size_t{64000}, size_t{4096}, size_t{12345}}) {
      std::string blob(size, '\0');
      for (char& c : blob) c = static_cast<char>(random());
      blobs.push_back(blob);
    }
  }
  const std::string& blob_of(const HttpRequest& request) const {
    for (const std::string& blob : blobs)
      if (request.url.ends_with(digest_of(blob).text())) return blob;
    throw std::logic_error("no such blob");
  }
  /// Everything, or the first error.
  Result<std::vector<std::string>> download(FakeTransport& transport) {
    RegistryClient client(transport, ImageReference::parse("registry.test/x").value(), credentials, {});
    std::vector<Blob> wanted;
    for (const std::string& blob : blobs) wanted.push_back({digest_of(blob), blob.size(), "B"});
    BlobDownloader downloader(transport, client, wanted, {4, 3, 4096, 16384});
    std::vector<std::string> read(blobs.size());
    for (size_t i = 0; i < blobs.size(); ++i) {
      while (true) {
        TRY_ASSIGN(const std::string_view bytes, downloader.read(i));
        if (bytes.empty()) break;
        read[i] += bytes;
      }
    }
    return read;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "with ranges and without, in large and small pieces") {
  for (const bool ranges : {true, false})
    for (const size_t piece : {size_t{1}, size_t{999}, size_t{4096}, size_t{100000}}) {
      if (!ranges && piece == 100000) continue;  // libcurl's pieces are smaller than a segment
      FakeTransport transport(
          [&](const HttpRequest& request) { return test::blob_answer(request, blob_of(request), ranges); });
      transport.piece = piece;
      const auto read = download(transport);
      REQUIRE(read);
      CHECK(*read == blobs);
    }
}

TEST_CASE_METHOD(Fixture, "a broken connection goes on where it broke") {
  std::atomic<int> breaks{0};
  FakeTransport transport([&](const HttpRequest& request) {
    Answer answer = test::blob_answer(request, blob_of(request), true);
    if (answer.body.size() > 3000 && breaks < 5) {
      ++breaks;
      answer.body.resize(2500);
      answer.breaks = true;
    }
    return answer;
  });
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
  size_t resumed = 0;
  for (const HttpRequest& request : transport.requests)
    if (request.range && request.range->first % 4096 == 2500) ++resumed;
  CHECK(resumed >= 5);
}

TEST_CASE_METHOD(Fixture, "5xx and 429 are tried again, then reported") {
  int failures = 2;
  FakeTransport transport([&](const HttpRequest& request) {
    if (failures-- > 0) return Answer{failures == 0 ? 503 : 429, {{"retry-after", "0"}}, "", false};
    return test::blob_answer(request, blob_of(request), true);
  });
  CHECK(download(transport));
  FakeTransport dead([&](const HttpRequest&) { return Answer{500, {{"retry-after", "0"}}, "", false}; });
  const auto read = download(dead);
  REQUIRE_FALSE(read);
  CHECK(read.error().message() == "B: fetch: the registry failed (500)");
}

TEST_CASE_METHOD(Fixture, "a token that expires on the way is renewed") {
  credentials.add({"registry.test", "u", "p"});
  FakeTransport transport([&](const HttpRequest& request) {
    if (request.authorization.empty()) return Answer{401, {{"www-authenticate", "Basic realm=x"}}, "", false};
    return test::blob_answer(request, blob_of(request), true);
  });
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
}

TEST_CASE_METHOD(Fixture, "a size that is not the descriptor's is corrupt at once") {
  for (const bool ranges : {true, false}) {
    FakeTransport transport([&](const HttpRequest& request) {
      return test::blob_answer(request, blob_of(request).substr(0, blob_of(request).size() - 1), ranges);
    });
    const auto read = download(transport);
    REQUIRE_FALSE(read);
    CHECK(read.error().kind() == ErrorKind::corrupt);
    CHECK(transport.requests.size() <= 2);
  }
  FakeTransport longer([&](const HttpRequest& request) { return Answer{200, {}, blob_of(request) + "x", false}; });
  CHECK_FALSE(download(longer));
}

TEST_CASE_METHOD(Fixture, "not found and forbidden are not tried again") {
  for (const long status : {404L, 403L, 401L}) {
    FakeTransport transport([&](const HttpRequest&) { return Answer{status, {}, "", false}; });
    REQUIRE_FALSE(download(transport));
    for (size_t i = 1; i < transport.requests.size(); ++i)
      CHECK(transport.requests[i].url != transport.requests[0].url);
  }
}
