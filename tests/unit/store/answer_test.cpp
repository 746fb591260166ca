// What does a process of a user get out of the store, and what not?
#include "hooks/store/answer.hpp"

#include <ctime>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/pipe.hpp"
#include "common/sys/socket.hpp"
#include "hooks/request/request.hpp"
#include "hooks/store/grants.hpp"
#include "hooks/store/image_store.hpp"
#include "hooks/store/store_socket.hpp"
#include "hooks/turn/lease.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
namespace message = store_socket;

namespace {

struct Node {
  Node() : store(*ImageStore::open(directory.path())) {
    config.store_path = directory.path();
    auto file = store.create();
    REQUIRE((file && write_all(file->fd(), content) && file->seal()));
    StoreRecord record;
    record.uid = getuid();
    record.source = "registry.test/tiny";
    record.name = "1";
    REQUIRE(*store.publish(*file, {digest, origin_key(origin), "", {}}, record));
  }

  /// The registry let this user have it so long ago.
  void grant(uint64_t seconds) const {
    const Grant grant{digest, digest, static_cast<uint64_t>(std::time(nullptr)) - seconds};
    ImageQuestion question{getuid(), origin, "1", "linux/amd64/"};
    const Grants grants(directory.path(), getuid());
    REQUIRE(grants.put(question, grant));
    REQUIRE(grants.put(question.of(digest), grant));
  }

  /// Everything that is answered to it.
  std::vector<message::Answer> ask(const std::string& bytes, const std::vector<int>& fds) {
    auto sockets = *socket_pair();
    const UniqueFd ours = std::move(sockets.first);
    REQUIRE(send_packet(ours.get(), bytes, fds));
    Result<void> answered;
    std::thread answering([&, theirs = std::move(sockets.second)]() mutable {
      answered = answer_user(config, theirs.get());
      theirs.reset();
    });
    std::vector<message::Answer> answers;
    for (;;) {
      auto answer = message::receive(ours.get());
      if (!answer) break;
      for (const UniqueFd& fd : answer->fds)
        REQUIRE(pipe_to_file(fd.get(), copy.get(), content.size(), [](uint64_t) { return true; }));
      answers.push_back(std::move(*answer));
    }
    answering.join();
    error = answered ? "" : answered.error().text();
    return answers;
  }
  std::vector<message::Answer> ask_copy(const std::string& image, bool offline) {
    ImportRequest request;
    request.image = image;
    request.platform = "linux/amd64";
    const auto memory = sealed_memory("request", *request.serialize());
    return ask(message::encode(message::CopyWanted{offline}), {memory->get(), copy.get()});
  }
  [[nodiscard]] std::string copied() const { return *read_file(copy_path); }

  test::TempDir directory, other;
  std::string content = std::string(300'000, 's') + "end";
  Origin origin{"registry.test", "tiny"};
  Digest digest = *Digest::parse_hex(std::string(64, 'a'));
  ImageStore store;
  SiteConfig config;
  std::string copy_path = other.path() + "/copy", error{};
  UniqueFd copy = *open_file(copy_path, O_RDWR | O_CREAT, 0600);
};

bool is_no_copy(const std::vector<message::Answer>& answers) {
  return answers.size() == 1 && std::holds_alternative<message::NoCopy>(answers[0].message);
}

const std::string kTag = "docker://registry.test#tiny:1";
const std::string kDigest = kTag + "@sha256:" + std::string(64, 'a');

}  // namespace

TEST_CASE("an image is copied for whom the registry let have it") {
  Node node;
  CHECK(is_no_copy(node.ask_copy(kDigest, false)));
  CHECK(is_no_copy(node.ask_copy(kTag, true)));
  node.grant(60);
  const auto answers = node.ask_copy(kDigest, false);
  REQUIRE(answers.size() == 2);
  const auto& copying = std::get<message::Copying>(answers[0].message);
  CHECK(copying.manifest == node.digest);
  CHECK(copying.bytes == node.content.size());
  CHECK((copying.age >= 60 && copying.age < 120));
  CHECK(std::holds_alternative<message::Copied>(answers[1].message));
  CHECK(node.copied() == node.content);
}

TEST_CASE("a file on another file system gets the bytes through a pipe") {
  Node node;
  node.grant(0);
  node.copy = *memory_file("copy");
  REQUIRE(node.ask_copy(kDigest, false).size() == 2);
  CHECK(*read_file("/proc/self/fd/" + std::to_string(node.copy.get())) == node.content);
}

TEST_CASE("what a name meant last is for who cannot ask, and for as long as the site says") {
  Node node;
  node.grant(7200);
  CHECK(is_no_copy(node.ask_copy(kDigest, false)));
  // Only the manifest that somebody has just been told, not the name.
  node.grant(10);
  CHECK(is_no_copy(node.ask_copy(kTag, false)));
  node.grant(7200);
  CHECK(node.ask_copy(kTag, true).size() == 2);
  CHECK(node.copied() == node.content);
  node.config.grant_offline = std::chrono::seconds(3600);
  CHECK(is_no_copy(node.ask_copy(kTag, true)));
  CHECK(is_no_copy(node.ask_copy("docker://registry.test#other", true)));
  CHECK(is_no_copy(node.ask_copy("oci:/somewhere", true)));
}

TEST_CASE("whoever sends something else hears no more than that, and whoever asks too much has to wait") {
  Node node;
  node.grant(0);
  CHECK(node.ask("nonsense", {}).empty());
  CHECK(!node.error.empty());
  const auto refused = [&](const message::Message& question, const std::vector<int>& fds) {
    const auto answers = node.ask(message::encode(question), fds);
    const auto* ended = answers.size() == 1 ? std::get_if<message::Ended>(&answers[0].message) : nullptr;
    return ended != nullptr && !ended->text.empty() && node.error.find(ended->text) == 0;
  };
  CHECK(refused(message::Copied(), {}));
  CHECK(refused(message::CopyWanted(), {}));
  CHECK(refused(message::CopyWanted(), {node.copy.get(), node.copy.get()}));
  const UniqueFd lock = *open_file(node.store.slots() + "/" + host_name() + "." + std::to_string(getuid()) + ".0",
                                   O_RDWR | O_CREAT, 0600);
  node.config.imports_per_user = 1;
  REQUIRE(flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  CHECK(is_no_copy(node.ask_copy(kDigest, false)));
  const auto answers = node.ask(message::encode(message::CommandWanted{{"images"}}), {});
  REQUIRE(answers.size() == 1);
  CHECK(std::get<message::Ended>(answers[0].message).text.find("1 imports and questions") != std::string::npos);
}

TEST_CASE("commands are about the images of the user who asks") {
  Node node;
  const auto say = [&](const std::vector<std::string>& words) {
    std::string text;
    for (const auto& answer : node.ask(message::encode(message::CommandWanted{words}), {})) {
      if (const auto* said = std::get_if<message::Said>(&answer.message)) text += said->text;
      if (const auto* ended = std::get_if<message::Ended>(&answer.message)) text += "[" + ended->text + "]";
    }
    return text;
  };
  CHECK(say({"images"}).find("registry.test/tiny:1") != std::string::npos);
  CHECK(say({"images", "--store", "/etc"}).find("--store is not an option") != std::string::npos);
  CHECK(say({"sweep"}).find("no such command") != std::string::npos);
  CHECK(say({}).find("no such command") != std::string::npos);
  CHECK(say({"pin", "registry.test/tiny"}).find("only the administrator") != std::string::npos);
  CHECK(say({"rm", "registry.test/tiny"}).ends_with("[]"));
  CHECK(say({"images"}).find("registry.test/tiny:1") == std::string::npos);
}
