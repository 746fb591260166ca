// Do blobs arrive whole, in order and in bounded memory, whatever the registry does?
#include <atomic>
#include <cerrno>
#include <random>
#include <set>
#include <thread>

#include <catch2/catch.hpp>

#include "hooks/registry/blob_downloader.hpp"
#include "hooks/registry/sha256.hpp"
#include "tests/unit/import/fake_transport.hpp"

using namespace situla;
using test::Answer;
using test::FakeTransport;

namespace {

struct Downloads {
  std::vector<std::string> blobs;
  std::vector<std::string> urls;  ///< of every blob, without its digest
  bool mirrored = false;          ///< mirror.test is asked before registry.test
  uint32_t stall_rate = 0;
  CredentialSet credentials;

  Downloads() {
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
    RegistryClient mirror(transport, ImageReference::parse("mirror.test/x").value(), credentials, {});
    RegistryClient client(transport, ImageReference::parse("registry.test/x").value(), credentials, {});
    std::vector<RegistryClient*> registries = {&client};
    if (mirrored) registries.insert(registries.begin(), &mirror);
    std::vector<Blob> wanted;
    for (const std::string& blob : blobs) {
      wanted.push_back({digest_of(blob), blob.size(), "B"});
      for (const std::string& url : urls) wanted.back().urls.push_back(url + digest_of(blob).text());
    }
    BlobDownloader downloader(transport, registries, wanted, {4, {}, 4096, 16384, stall_rate});
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

TEST_CASE_METHOD(Downloads, "with ranges and without, in large and small pieces") {
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

TEST_CASE_METHOD(Downloads, "a pull-through cache has ranges of what it has, and all of what it lacks") {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    FakeTransport transport([&](const HttpRequest& request) {
      const std::string& blob = blob_of(request);
      // The third is there, the second and the last are not, and one changes.
      const bool has = blob.size() == 64000 ? round % 2 == 0 || random() % 2 == 0 : blob.size() == 4096;
      return test::blob_answer(request, blob, has);
    });
    blobs = {blobs[0], blobs[3], blobs[4], blobs[2], blobs[1]};
    const auto read = download(transport);
    REQUIRE(read);
    CHECK(*read == blobs);
  }
}

TEST_CASE_METHOD(Downloads, "a segment is asked for again after the answer to another was all of the blob") {
  std::atomic<int> breaks{0};
  FakeTransport transport([&](const HttpRequest& request) {
    Answer answer = test::blob_answer(request, blob_of(request), request.range && request.range->first == 0);
    if (request.range && request.range->first % 4096 == 0 && request.range->first > 0 && breaks < 3) {
      ++breaks;
      answer.body.resize(request.range->first + 1000);
      answer.breaks = true;
    }
    return answer;
  });
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
}

TEST_CASE_METHOD(Downloads, "a resolver's bad moment does not end a pull, and a registry that is gone does") {
  int failures = 2;
  FakeTransport transport([&](const HttpRequest& request) {
    if (request.range && request.range->first > 0 && failures-- > 0)
      return Answer{200, {}, "", true, ErrorKind::unreachable};
    return test::blob_answer(request, blob_of(request), true);
  });
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
  FakeTransport gone([](const HttpRequest&) { return Answer{200, {}, "", true, ErrorKind::unreachable}; });
  const auto never = download(gone);
  REQUIRE_FALSE(never);
  CHECK(never.error().kind() == ErrorKind::unreachable);
}

TEST_CASE_METHOD(Downloads, "a broken connection goes on where it broke") {
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

// before: the download went on, a byte at a time, to its end
TEST_CASE_METHOD(Downloads, "a byte before each failure is no progress") {
  const auto byte_by_byte = [&](const HttpRequest& request) {
    Answer answer = test::blob_answer(request, blob_of(request), true);
    answer.headers.emplace_back("retry-after", "0");
    answer.body.resize(std::min<size_t>(answer.body.size(), 1));
    answer.breaks = true;
    return answer;
  };
  blobs = {blobs.front()};
  FakeTransport transport(byte_by_byte);
  stall_rate = 1'000'000'000;
  const auto read = download(transport);
  REQUIRE_FALSE(read);
  CHECK(transport.requests.size() == 1 + kLeastRetries);
  blobs = {blobs.front().substr(0, 5)};  // each failure costs a moment
  FakeTransport fast(byte_by_byte);
  stall_rate = 1;
  CHECK(download(fast));
}

TEST_CASE_METHOD(Downloads, "while all connections wait to try again, it is told until when") {
  FakeTransport transport([](const HttpRequest&) { return Answer{503, {{"retry-after", "20"}}, "", false}; });
  RegistryClient client(transport, ImageReference::parse("registry.test/x").value(), credentials, {});
  BlobDownloader downloader(transport, {&client}, {{digest_of(blobs[0]), blobs[0].size(), "B"}},
                            {4, {}, 4096, 16384, 0});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (downloader.waits_for().empty() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK_THAT(downloader.waits_for(), Catch::Matches("answer 503, trying again in (1[0-9]|2[0-9]|30) s"));
  downloader.stop();
  CHECK_FALSE(downloader.read(0));
}

TEST_CASE_METHOD(Downloads, "5xx and 429 are tried again, then reported") {
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

TEST_CASE_METHOD(Downloads, "a token that expires on the way is renewed") {
  credentials.add({"registry.test", "u", "p"});
  FakeTransport transport([&](const HttpRequest& request) {
    if (request.authorization.empty()) return Answer{401, {{"www-authenticate", "Basic realm=x"}}, "", false};
    return test::blob_answer(request, blob_of(request), true);
  });
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
}

TEST_CASE_METHOD(Downloads, "tokens that live for three requests only: as many new ones as it takes, and no more") {
  int serial = 0;
  int left = 0;
  int issued = 0;
  FakeTransport transport([&](const HttpRequest& request) {
    if (request.url.starts_with("https://tokens.test/")) {
      ++issued;
      left = 3;
      return Answer{200, {}, "{\"token\":\"T" + std::to_string(++serial) + "\"}", false};
    }
    if (request.authorization != "Bearer T" + std::to_string(serial) || left-- <= 0)
      return Answer{401, {{"www-authenticate", "Bearer realm=\"https://tokens.test/t\""}}, "", false};
    return test::blob_answer(request, blob_of(request), true);
  });
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
  CHECK(issued >= 7);  // 22 segments
  CHECK(issued <= 12);
}

TEST_CASE_METHOD(Downloads, "foreign layers: the registry first, then their URLs, https only, without credentials") {
  credentials.add({"registry.test", "u", "p"});
  urls = {"http://plain.test/", "https://gone.test/", "https://foreign.test/"};
  const auto answer = [&](const HttpRequest& request) {
    if (request.url.starts_with("https://foreign.test/")) return test::blob_answer(request, blob_of(request), true);
    if (request.url.starts_with("https://gone.test/")) return Answer{410, {}, "", false};
    if (request.authorization.empty()) return Answer{401, {{"www-authenticate", "Basic realm=x"}}, "", false};
    return Answer{404, {}, "", false};
  };
  FakeTransport transport(answer);
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
  CHECK(transport.requests[0].url.starts_with("https://registry.test/"));
  for (const HttpRequest& request : transport.requests) {
    CHECK_FALSE(request.url.starts_with("http://"));
    if (!request.url.starts_with("https://registry.test/")) CHECK(request.authorization.empty());
  }
  urls.pop_back();
  FakeTransport nowhere(answer);
  CHECK(download(nowhere).error().message() ==
        "B: the registry does not have this foreign layer, and gone.test answers 410");
  urls.clear();
  FakeTransport ordinary(answer);
  CHECK(download(ordinary).error().message() == "B: fetch: the registry does not have it (404)");
}

TEST_CASE("Retry-After in seconds and as a date, within reason; never earlier, and not all nodes at once") {
  using std::chrono::milliseconds;
  HttpResponse response;
  const auto waits = [&](unsigned attempt, int least, int most) {
    std::set<milliseconds> seen;
    for (int i = 0; i < 200; ++i) {
      const milliseconds delay = retry_delay(attempt, &response);
      seen.insert(delay);
      if (delay < milliseconds(least) || delay > milliseconds(most)) return false;
    }
    return seen.size() > 20;
  };
  CHECK(waits(1, 125, 375));
  CHECK(waits(3, 500, 1500));
  CHECK(waits(7, 5000, 15000));
  CHECK(waits(1000, 5000, 15000));
  response.headers = {{"retry-after", "7"}};
  CHECK(waits(1, 7000, 10500));
  response.headers = {{"retry-after", "86400"}};
  CHECK(waits(1, 120000, 135000));
  response.headers = {{"retry-after", "Wed, 21 Oct 2026 07:28:09 GMT"}, {"date", "Wed, 21 Oct 2026 07:28:00 GMT"}};
  CHECK(waits(1, 9000, 13500));
  response.headers = {{"retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"}};
  CHECK(waits(1, 125, 375));  // "at once" as well
  response.headers = {{"retry-after", "soon"}};
  CHECK(waits(1, 125, 375));
}

TEST_CASE("how long a server that fails is asked again: by the settings, and by how it fails") {
  using std::chrono::milliseconds;
  ImportSettings settings;
  const RetryLimits patient = RetryLimits::of(settings);
  CHECK_FALSE(patient.reached(3, milliseconds(500000), nullptr));
  CHECK_FALSE(patient.reached(20, milliseconds(119000), nullptr));
  CHECK(patient.reached(20, milliseconds(120000), nullptr));
  const Error reset = Error::from_errno(ECONNRESET, "read");
  CHECK_FALSE(patient.reached(20, milliseconds(119000), &reset));
  const Error silent(ErrorKind::network, "no answer in time");
  CHECK_FALSE(patient.reached(3, milliseconds(0), &silent));
  CHECK(patient.reached(4, milliseconds(0), &silent));
  const Error refused(ErrorKind::unreachable, "refused");
  CHECK_FALSE(patient.reached(5, milliseconds(1900), &refused));
  CHECK(patient.reached(5, milliseconds(2000), &refused));
  // ENROOT_TRANSFER_RETRIES: so many, and at least three.
  for (const unsigned retries : {1U, 3U, 7U}) {
    settings.transfer_retries = retries;
    const RetryLimits counted = RetryLimits::of(settings);
    CHECK_FALSE(counted.reached(std::max(retries, 3U), milliseconds(500000), nullptr));
    CHECK(counted.reached(std::max(retries, 3U) + 1, milliseconds(0), nullptr));
  }
}

TEST_CASE_METHOD(Downloads, "a size that is not the descriptor's is corrupt at once") {
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

TEST_CASE_METHOD(Downloads, "not found and forbidden are not tried again") {
  for (const long status : {404L, 403L, 401L}) {
    FakeTransport transport([&](const HttpRequest&) { return Answer{status, {}, "", false}; });
    REQUIRE_FALSE(download(transport));
    for (size_t i = 1; i < transport.requests.size(); ++i)
      CHECK(transport.requests[i].url != transport.requests[0].url);
  }
}

TEST_CASE_METHOD(Downloads, "an error's message is not read to its end, which may never come") {
  std::atomic<size_t> read{0};
  FakeTransport transport([&](const HttpRequest&) {
    return Answer{404, {}, std::string(size_t{4} << 20U, 'x'), false};
  });
  transport.on_piece = [&](size_t size) { read += size; };
  blobs = {"x"};
  const auto outcome = download(transport);
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().message() == "B: fetch: the registry does not have it (404)");
  CHECK(read < 100000);
}

TEST_CASE_METHOD(Downloads, "what a mirror lacks comes from the registry") {
  mirrored = true;
  uint64_t from_registry = 0;
  FakeTransport transport([&](const HttpRequest& request) {
    const bool mirror = request.url.starts_with("https://mirror.test/");
    if (mirror && blob_of(request).size() == 4096) return Answer{404, {}, "", false};
    if (!mirror) from_registry += blob_of(request).size();
    return test::blob_answer(request, blob_of(request), true);
  });
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
  CHECK(from_registry == 4096);
}

TEST_CASE_METHOD(Downloads, "what a mirror has of another size comes from the registry") {
  mirrored = true;
  for (const bool ranges : {true, false}) {
    FakeTransport transport([&](const HttpRequest& request) {
      const std::string& blob = blob_of(request);
      const bool mirror = request.url.starts_with("https://mirror.test/");
      return test::blob_answer(request, mirror ? blob.substr(0, blob.size() / 2) : blob, ranges);
    });
    const auto read = download(transport);
    REQUIRE(read);
    CHECK(*read == blobs);
  }
}

TEST_CASE_METHOD(Downloads, "when a mirror breaks off for good the registry goes on at the last good byte") {
  mirrored = true;
  blobs = {std::string(4000, 'x')};
  std::string position;
  FakeTransport transport([&](const HttpRequest& request) {
    if (!request.url.starts_with("https://mirror.test/")) {
      position = request.range ? std::to_string(request.range->first) : "none";
      return test::blob_answer(request, blobs[0], true);
    }
    Answer answer = test::blob_answer(request, blobs[0], true);
    answer.body.resize(request.range ? 0 : 2500);
    answer.breaks = true;
    return answer;
  });
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
  CHECK(position == "2500");
}

TEST_CASE_METHOD(Downloads, "an error names every registry that was asked") {
  mirrored = true;
  FakeTransport transport([&](const HttpRequest& request) {
    return Answer{request.url.starts_with("https://mirror.test/") ? 403 : 404, {}, "", false};
  });
  const auto read = download(transport);
  REQUIRE_FALSE(read);
  CHECK(read.error().message() ==
        "B: fetch: the registry does not have it (404); before that mirror.test: fetch: access is forbidden (403)");
}

TEST_CASE_METHOD(Downloads, "each registry has a login of its own") {
  mirrored = true;
  credentials.add({"mirror.test", "mirror", "m"});
  credentials.add({"registry.test", "origin", "o"});
  const std::string mirror = basic_authorization("mirror", "m"), origin = basic_authorization("origin", "o");
  bool mixed = false;
  FakeTransport transport([&](const HttpRequest& request) {
    const bool at_mirror = request.url.starts_with("https://mirror.test/");
    mixed = mixed || request.authorization == (at_mirror ? origin : mirror);
    if (request.authorization.empty()) return Answer{401, {{"www-authenticate", "Basic realm=\"x\""}}, "", false};
    if (at_mirror) return Answer{403, {}, "", false};
    return test::blob_answer(request, blob_of(request), true);
  });
  const auto read = download(transport);
  REQUIRE(read);
  CHECK(*read == blobs);
  CHECK_FALSE(mixed);
}
