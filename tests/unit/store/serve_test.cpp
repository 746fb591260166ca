// What does the store answer an importer, honest or not?
#include "hooks/store/serve.hpp"

#include <filesystem>
#include <future>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "hooks/store/messages.hpp"
#include "hooks/store/resolution.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/superblock.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using test::superblock;

namespace {

const Digest kServedManifest = *Digest::parse_hex(std::string(64, 'a'));
const Digest kOtherManifest = *Digest::parse_hex(std::string(64, 'b'));
const Digest kLayer = *Digest::parse_hex(std::string(64, '1'));

/// The store in a thread, and the importer's end of the line.
class Scene {
 public:
  explicit Scene(const test::TempDir& directory, const std::string& image = "registry.test/tiny", uid_t uid = 1000,
                 const SiteConfig& config = {}, bool asks = true, const std::string& job = "1.0") {
    request_.image = image;
    config_ = config;
    if (!config_.store_reserve) config_.store_reserve = 0;
    auto importer = socket_pair();
    auto broker = socket_pair();
    REQUIRE((importer && broker));
    ours_ = std::move(importer->first);
    theirs_ = std::move(importer->second);
    broker_ = std::move(broker->first);
    broker_of_store_ = std::move(broker->second);
    job_ = {directory / "store", "", uid, job};
    answer_ = std::async(std::launch::async, [this] {
      Lease::Options quick;
      quick.poll = std::chrono::milliseconds(10);
      quick.patience = std::chrono::milliseconds(200);
      Result<ServedImage> result = fail(ErrorKind::failure, "the store said nothing");
      const StoreEvents events{[this]() -> Result<UniqueFd> {
                                 ++importers;
                                 return UniqueFd();
                               },
                               [this] { ++begun; }, [this](const std::string& what) { waits.push_back(what); },
                               [&](const ServedImage& served, bool again) -> Result<void> {
                                 ServedImage copy{served.key, UniqueFd(dup(served.file.get())), served.stored};
                                 result = std::move(copy);
                                 looks_again = again;
                                 return {};
                               }};
      const StoreLines lines{broker_of_store_.get(), theirs_.get()};
      const auto served = serve_import(job_, request_, config_, lines, events, notes_, quick);
      theirs_.reset();
      if (!served && !result) result = fail(served.error());
      return result;
    });
    if (!asks) return;
    const auto first = ask();
    REQUIRE((first.message && std::holds_alternative<store_line::Work>(*first.message) && first.fds.size() == 1));
    work = std::get<store_line::Work>(*first.message);
  }
  ~Scene() { ours_.reset(); }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  struct Answer {
    std::optional<store_line::Message> message;
    std::vector<UniqueFd> fds;
  };
  Answer ask() {
    auto packet = receive_packet(ours_.get(), store_line::kMaxBytes);
    if (!packet || !*packet) return {};
    auto message = store_line::decode((*packet)->bytes);
    REQUIRE(message);
    return {std::move(*message), std::move((*packet)->fds)};
  }
  Answer ask(const store_line::Message& question) {
    say(question);
    return ask();
  }
  void say(const store_line::Message& message) { REQUIRE(send_packet(ours_.get(), store_line::encode(message))); }
  /// What an honest importer does.
  void import(const std::string& bytes = superblock()) {
    auto answer = ask(store_line::Resolved{{kServedManifest, kServedManifest}});
    REQUIRE((answer.message && std::holds_alternative<store_line::WriteImage>(*answer.message)));
    REQUIRE(write_all(answer.fds.at(0).get(), bytes));
    answer = {};
    answer = ask(store_line::PutLayer{kLayer, "zstd-131072"});
    REQUIRE((answer.message && std::holds_alternative<store_line::WriteIndex>(*answer.message)));
    REQUIRE(write_all(answer.fds.at(0).get(), "index"));
    answer = {};
    say(store_line::Built{7, "amd64"});
  }
  Result<ServedImage> end() {
    ours_.reset();
    return answer_.get();
  }
  Result<ServedImage> result() { return answer_.get(); }
  int line_fd() const { return ours_.get(); }
  void lose_broker() { broker_.reset(); }
  [[nodiscard]] std::string said() const { return notes_.text(LogLevel::info); }

  store_line::Work work;
  int begun = 0;                   ///< how often an import was announced; after result()
  int importers = 0;               ///< how often one was started
  std::vector<std::string> waits;  ///< for what, as it was told; after result()
  bool looks_again = false;

 private:
  test::MemoryLog notes_;
  ImportRequest request_;
  SiteConfig config_;
  StoreJob job_;
  UniqueFd ours_, theirs_, broker_, broker_of_store_;
  std::future<Result<ServedImage>> answer_;
};

}  // namespace

TEST_CASE("an image is imported once, and given as a descriptor that only reads") {
  const test::TempDir directory;
  {
    Scene scene(directory);
    scene.import();
    auto image = scene.end();
    REQUIRE(image);
    CHECK_FALSE(image->stored);
    struct stat status {};
    REQUIRE(fstat(image->file.get(), &status) == 0);
    CHECK((status.st_mode & 07777U) == 0400U);
    CHECK(status.st_nlink == 1);
    CHECK(write(image->file.get(), "x", 1) < 0);
  }
  {
    Scene scene(directory, "registry.test/tiny", 1000, {}, true, "2.0");
    const auto answer = scene.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
    REQUIRE((answer.message && std::holds_alternative<store_line::Have>(*answer.message)));
    const auto image = scene.end();
    REQUIRE(image);
    CHECK(image->stored);
  }
  {
    // The same digest by another origin is another image.
    Scene scene(directory, "auth.test/tiny");
    const auto answer = scene.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
    CHECK((answer.message && std::holds_alternative<store_line::WriteImage>(*answer.message)));
  }
  CHECK(std::filesystem::is_empty(directory / "store/leases"));
  CHECK(std::filesystem::is_empty(directory / "store/slots"));
}

TEST_CASE("blocks of another origin make an image one user's own") {
  const test::TempDir directory;
  {
    Scene scene(directory);
    scene.import();
    REQUIRE(scene.end());
  }
  const auto build = [](Scene& scene, const Digest& manifest) {
    auto answer = scene.ask(store_line::Resolved{{manifest, manifest}});
    REQUIRE(answer.fds.size() == 1);
    REQUIRE(write_all(answer.fds[0].get(), superblock()));
    const auto layer = scene.ask(store_line::FindLayer{kLayer, "zstd-131072"});
    REQUIRE((layer.message && std::holds_alternative<store_line::Layer>(*layer.message)));
    CHECK(read_all(layer.fds.at(0).get(), 100)->starts_with("index"));
    CHECK(write(layer.fds.at(1).get(), "x", 1) < 0);
    answer = {};
    const auto index = scene.ask(store_line::PutLayer{kLayer, "zstd-131072"});
    REQUIRE(index.fds.size() == 1);
    REQUIRE(write_all(index.fds[0].get(), "index of derived"));
    scene.say(store_line::Built{});
  };
  const auto only = [](Result<ServedImage> image) {
    REQUIRE(image);
    return image->key.only;
  };
  {
    Scene scene(directory, "registry.test/derived");
    build(scene, kServedManifest);
    CHECK(only(scene.end()) == 1000U);
  }
  {
    // And so does an image of this origin that has such blocks itself.
    Scene scene(directory, "registry.test/derived", 1000, {}, true, "3.0");
    build(scene, kOtherManifest);
    CHECK(only(scene.end()) == 1000U);
  }
  {
    // What everybody may have of a layer is not lost by that.
    Scene scene(directory, "registry.test/tiny", 1000, {}, true, "4.0");
    build(scene, kOtherManifest);
    CHECK_FALSE(only(scene.end()));
  }
  {
    Scene mine(directory, "registry.test/derived", 1000, {}, true, "2.0");
    CHECK(std::holds_alternative<store_line::Have>(
        *mine.ask(store_line::Resolved{{kServedManifest, kServedManifest}}).message));
    Scene other(directory, "registry.test/derived", 1001);
    CHECK(std::holds_alternative<store_line::WriteImage>(
        *other.ask(store_line::Resolved{{kServedManifest, kServedManifest}}).message));
    CHECK(
        std::holds_alternative<store_line::NoLayer>(*other.ask(store_line::FindLayer{kLayer, "zstd-131072"}).message));
  }
}

TEST_CASE("what an importer must not do gives no image") {
  const test::TempDir directory;
  const auto refused = [&](const std::function<void(Scene&)>& misbehave) {
    Scene scene(directory);
    misbehave(scene);
    const auto image = scene.result();
    CHECK(std::filesystem::is_empty(directory / "store/images/sha256"));
    return image ? std::string() : image.error().message();
  };
  CHECK_THAT(refused([](Scene& scene) {
               scene.say(store_line::FindLayer{kLayer, "zstd-131072"});
             }),
             Catch::Contains("out of turn"));
  CHECK_THAT(refused([](Scene& scene) { scene.say(store_line::Have()); }), Catch::Contains("out of turn"));
  CHECK_THAT(refused([](Scene& scene) { (void)send_packet(scene.line_fd(), "nonsense"); }),
             Catch::Contains("of another release"));
  CHECK_THAT(refused([](Scene& scene) {
               (void)scene.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
               scene.say(store_line::Resolved{{kLayer, kLayer}});
             }),
             Catch::Contains("out of turn"));
  CHECK_THAT(refused([](Scene& scene) {
               (void)send_packet(scene.line_fd(), store_line::encode(store_line::Progressed()), {0});
             }),
             Catch::Contains("descriptors"));
}

TEST_CASE("an image that somebody can still write to, or that is none, gets no name") {
  const test::TempDir directory;
  {
    Scene scene(directory);
    const auto answer = scene.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
    REQUIRE(write_all(answer.fds.at(0).get(), superblock()));
    scene.say(store_line::Built{});
    const auto image = scene.end();  // the descriptor is still here
    REQUIRE_FALSE(image);
    CHECK_THAT(image.error().message(), Catch::Contains("open for writing"));
  }
  {
    Scene scene(directory);
    scene.import("no squashfs file at all");
    const auto image = scene.end();
    REQUIRE_FALSE(image);
    CHECK(image.error().kind() == ErrorKind::corrupt);
  }
  SiteConfig config;
  config.largest_image = 95;
  {
    Scene scene(directory, "registry.test/tiny", 1000, config);
    auto answer = scene.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
    REQUIRE(write_all(answer.fds.at(0).get(), superblock()));
    answer = {};
    // The store may have seen it by then, and left.
    (void)send_packet(scene.line_fd(), store_line::encode(store_line::Built{}));
    const auto image = scene.end();
    REQUIRE_FALSE(image);
    CHECK(image.error().code() == ErrorCode::image_too_large);
    CHECK_THAT(image.error().message(), Catch::Contains("96 B") && Catch::Contains("95 B"));
  }
  {
    Scene scene(directory, "registry.test/tiny", 1000, config);
    const auto answer = scene.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
    scene.say(store_line::Built{});  // and stays, and writes
    REQUIRE(write_all(answer.fds.at(0).get(), superblock()));
    const auto image = scene.result();
    REQUIRE_FALSE(image);
    CHECK(image.error().code() == ErrorCode::image_too_large);
    CHECK_THAT(image.error().message(), Catch::Contains("96 B") && Catch::Contains("95 B"));
  }
  CHECK(std::filesystem::is_empty(directory / "store/images/sha256"));
}

TEST_CASE("an importer or a broker that goes ends it without a word, and without a trace") {
  const test::TempDir directory;
  {
    Scene scene(directory);
    (void)scene.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
    const auto image = scene.end();
    REQUIRE_FALSE(image);
    CHECK(image.error().message().empty());
  }
  {
    Scene scene(directory);
    (void)scene.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
    scene.lose_broker();
    const auto image = scene.result();
    REQUIRE_FALSE(image);
    CHECK(image.error().kind() == ErrorKind::cancelled);
  }
  for (const char* name : {"store/images/sha256", "store/leases", "store/slots"})
    CHECK(std::filesystem::is_empty(directory / name));
}

TEST_CASE("who gets on too slowly is overtaken, and the first file stays") {
  const test::TempDir directory;
  Scene slow(directory, "registry.test/tiny", 1000);
  auto held = slow.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
  REQUIRE(held.fds.size() == 1);
  Scene quick(directory, "registry.test/tiny", 1001);
  quick.import();
  const auto image = quick.end();
  REQUIRE(image);
  REQUIRE(write_all(held.fds[0].get(), superblock() + "other"));
  held = {};
  slow.say(store_line::Built{});
  const auto later = slow.end();
  REQUIRE(later);
  struct stat status {};
  REQUIRE(fstat(later->file.get(), &status) == 0);
  CHECK(status.st_size == 96);
}

TEST_CASE("the service user's store takes only images of a registry: it opens nothing that somebody else named") {
  const test::TempDir directory;
  auto lines = socket_pair();
  REQUIRE(lines);
  NullLog log;
  for (const char* name :
       {"oci:/x", "dir:/x", "docker-archive:/x", "oci-archive:/x", "dockerd://x", "podman://x", "/etc/passwd"}) {
    INFO(name);
    ImportRequest request;
    request.image = name;
    const StoreJob job{directory / "store", "", 1000, "1.0"};
    const auto served = serve_import(job, request, {}, {lines->first.get(), lines->second.get()}, {}, log);
    REQUIRE_FALSE(served);
    CHECK(served.error().kind() == ErrorKind::denied);
    CHECK(served.error().message().find("only images of a registry") != std::string::npos);
  }
}

TEST_CASE("a job's later steps ask nobody; a new job asks, and is given what it means by now") {
  const test::TempDir directory;
  {
    Scene first(directory);
    CHECK_FALSE(first.work.digest);
    CHECK_FALSE(first.work.impatient);
    first.import();
    REQUIRE(first.end());
    CHECK(first.begun == 1);
    CHECK(first.importers == 1);
  }
  {
    Scene second(directory, "registry.test/tiny", 1000, {}, false, "1.1");
    const auto image = second.result();
    REQUIRE(image);
    CHECK(image->stored);
    CHECK(image->key.digest == kServedManifest);
    CHECK(second.begun == 0);
    CHECK(second.importers == 0);
    CHECK_FALSE(second.looks_again);  // it was asked a moment ago
    CHECK(second.said().empty());
  }
  {
    Scene other_job(directory, "registry.test/tiny", 1000, {}, true, "2.0");
    CHECK(other_job.work.known == NamedManifest{kServedManifest, kServedManifest});
    CHECK(other_job.work.impatient);
    CHECK(std::holds_alternative<store_line::Have>(
        *other_job.ask(store_line::Resolved{{kServedManifest, kServedManifest}}).message));
    REQUIRE(other_job.end());
    CHECK(other_job.begun == 0);
  }
  Scene other_user(directory, "registry.test/tiny", 1001, {}, true, "1.2");
  CHECK_FALSE(other_user.work.impatient);
  CHECK(
      std::holds_alternative<store_line::NoImage>(*other_user.ask(store_line::Unresolved{ErrorKind::denied}).message));
  CHECK_FALSE(other_user.end());
}

TEST_CASE("a registry that does not answer keeps out only those whom it has not let in") {
  const test::TempDir directory;
  {
    Scene first(directory);
    first.import();
    REQUIRE(first.end());
  }
  {
    Scene later(directory, "registry.test/tiny", 1000, {}, true, "2.0");
    CHECK(std::holds_alternative<store_line::Have>(*later.ask(store_line::Unresolved{ErrorKind::network}).message));
    const auto image = later.end();
    REQUIRE(image);
    CHECK(image->key.digest == kServedManifest);
    CHECK_THAT(later.said(),
               Catch::StartsWith("registry.test does not answer: registry.test/tiny is started as it was 0 min ago") &&
                   Catch::Contains(kServedManifest.text()));
  }
  {
    // A minute long it is not even asked, by nobody's job.
    Scene next(directory, "registry.test/tiny", 1000, {}, false, "3.0");
    REQUIRE(next.result());
    CHECK_THAT(next.said(), Catch::Matches("registry.test does not answer \\(asked [0-9]+ s ago, and again in [0-9]+ "
                                           "s\\): registry.test/tiny is started as it was 0 min ago[^]*"));
  }
  {
    Scene other(directory, "registry.test/tiny", 1001, {}, true, "4.0");
    CHECK(std::holds_alternative<store_line::NoImage>(*other.ask(store_line::Unresolved{ErrorKind::network}).message));
    CHECK_FALSE(other.end());
  }
  SiteConfig never;
  never.grant_offline = std::chrono::seconds(0);
  Scene forbidden(directory, "registry.test/tiny", 1000, never, true, "5.0");
  CHECK(
      std::holds_alternative<store_line::NoImage>(*forbidden.ask(store_line::Unresolved{ErrorKind::network}).message));
  CHECK_FALSE(forbidden.end());
}

TEST_CASE("who is refused once has no leave any more, also for when the registry is away") {
  const test::TempDir directory;
  {
    Scene first(directory);
    first.import();
    REQUIRE(first.end());
  }
  {
    Scene revoked(directory, "registry.test/tiny", 1000, {}, true, "2.0");
    CHECK(std::holds_alternative<store_line::NoImage>(*revoked.ask(store_line::Unresolved{ErrorKind::denied}).message));
    CHECK_FALSE(revoked.end());
  }
  Scene away(directory, "registry.test/tiny", 1000, {}, true, "3.0");
  CHECK(std::holds_alternative<store_line::NoImage>(*away.ask(store_line::Unresolved{ErrorKind::network}).message));
  CHECK_FALSE(away.end());
}

TEST_CASE("the site says whether a user may ask less than it does") {
  SiteConfig config;
  CHECK(Resolution::settings_of(config, "")->rule == ResolveRule{});
  CHECK(Resolution::settings_of(config, "always")->rule.kind == ResolveRule::Kind::always);
  const auto less = Resolution::settings_of(config, "86400");
  REQUIRE_FALSE(less);
  CHECK(less.error().kind() == ErrorKind::denied);
  config.resolve = {ResolveRule::Kind::seconds, std::chrono::seconds(60)};
  CHECK(Resolution::settings_of(config, "30"));
  CHECK_FALSE(Resolution::settings_of(config, "61"));
  CHECK_FALSE(Resolution::settings_of(config, "job"));
  config.resolve_choice = true;
  CHECK(Resolution::settings_of(config, "job"));
  CHECK_FALSE(Resolution::settings_of(config, "sometimes"));
}

TEST_CASE("who waits for another import of the image is told for whose") {
  const test::TempDir directory;
  Scene first(directory);
  const auto answer = first.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
  REQUIRE((answer.message && std::holds_alternative<store_line::WriteImage>(*answer.message)));
  {
    Scene second(directory, "registry.test/tiny", 1001, {}, true, "2.0");
    // The first one does not get on.
    const auto later = second.ask(store_line::Resolved{{kServedManifest, kServedManifest}});
    CHECK((later.message && std::holds_alternative<store_line::WriteImage>(*later.message)));
    CHECK_FALSE(second.end());
    REQUIRE_FALSE(second.waits.empty());
    CHECK_THAT(second.waits.front(), Catch::StartsWith("the import of job 1.0 on "));
  }
  CHECK_FALSE(first.end());
  CHECK(first.waits.empty());
}
