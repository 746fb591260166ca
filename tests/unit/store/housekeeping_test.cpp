// What does the administrator see of the store, and what goes when he says so?
#include "hooks/store/housekeeping.hpp"

#include <array>
#include <filesystem>
#include <sstream>

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "common/spec/json.hpp"
#include "common/sys/file.hpp"
#include "hooks/store/grants.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr int64_t kNow = 2'000'000'000;
constexpr int64_t kDay = 86400;

struct House {
  House() : store(*ImageStore::open(directory.path())) {}

  ImageKey add(char digit, const std::string& repository, const std::string& name, int64_t age, size_t bytes = 1000,
               const std::string& tag = "") {
    const ImageKey key{*Digest::parse_hex(std::string(64, digit)), origin_key({"registry.test", repository}), "", {}};
    auto file = store.create();
    REQUIRE((file && write_all(file->fd(), std::string(bytes, 'x')) && file->seal()));
    StoreRecord record;
    record.uid = 1000;
    record.source = "registry.test/" + repository;
    record.name = name;
    record.tag = tag;
    record.imported = kNow - age - 5;
    REQUIRE(*store.publish(*file, key, record));
    const std::array<timespec, 2> times{{{0, UTIME_OMIT}, {kNow - age, 0}}};
    REQUIRE(utimensat(AT_FDCWD, store.record_path(key).c_str(), times.data(), 0) == 0);
    return key;
  }
  template <typename Action>
  std::string say(const Action& action) {
    std::ostringstream out;
    const Housekeeping house(store, out, kNow);
    const Result<void> done = action(house);
    return out.str() + (done ? "" : "error: " + done.error().text());
  }

  test::TempDir directory;
  ImageStore store;
};

std::string words_of(const std::string& table) {
  std::string words;
  for (const char c : table)
    if (c != ' ' || !words.ends_with(' ')) words += c == '\n' ? '|' : c;
  return words;
}

}  // namespace

TEST_CASE("images are listed with what an administrator decides by") {
  House house;
  const ImageKey old = house.add('a', "debian", "12", 3 * kDay, 2048);
  house.add('b', "tiny", "sha256:" + std::string(64, 'c'), 90);
  const UniqueFd used(open(house.store.image_path(old).c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(house.store.pin(old.name(), true));
  for (const uid_t uid : {1000U, 1001U})
    REQUIRE(Grants(house.directory.path(), uid)
                .put({uid, {"registry.test", "debian"}, "12", "linux/amd64/"}, {old.digest, old.digest, 1}));
  const std::string table = house.say([](const Housekeeping& it) { return it.show(false); });
  CHECK(
      words_of(table) ==
      "REFERENCE DIGEST SIZE LAST USE USERS STATE|registry.test/tiny@sha256:cccccccccccc bbbbbbbbbbbb 1000 B 1 min ago "
      "0|registry.test/debian:12 aaaaaaaaaaaa 2.0 KiB 3 d ago 2 in use, pinned|");
  const auto json = parse_json(house.say([](const Housekeeping& it) { return it.show(true); }));
  REQUIRE(json);
  REQUIRE((json->as_list() != nullptr && json->as_list()->size() == 2));
  const Json& second = json->as_list()->at(1);
  CHECK(second.text("reference") == "registry.test/debian:12");
  CHECK(second.find("bytes")->as_number() == 2048U);
  CHECK(second.find("used")->as_number() == static_cast<uint64_t>(kNow - 3 * kDay));
  CHECK(second.find("in_use")->as_truth() == true);
  CHECK(second.find("pinned")->as_truth() == true);
  CHECK(second.items("users").size() == 2);
}

TEST_CASE("what nobody asks for goes, the oldest first, and never what is in use or pinned") {
  House house;
  const ImageKey used = house.add('a', "used", "1", 50 * kDay), pinned = house.add('b', "pinned", "1", 49 * kDay);
  const ImageKey old = house.add('c', "old", "1", 48 * kDay), older = house.add('d', "older", "1", 60 * kDay);
  const ImageKey young = house.add('e', "young", "1", kDay);
  const UniqueFd open_file(open(house.store.image_path(used).c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(house.store.pin(pinned.name(), true));
  const auto prune = [&](const Housekeeping::Prune& what) {
    return house.say([&](const Housekeeping& it) { return it.prune(what); });
  };
  const std::string would = prune({std::chrono::hours(30 * 24), std::nullopt, true});
  CHECK(would ==
        "would remove registry.test/older:1 dddddddddddd, 1000 B, last used 60 d ago\n"
        "would remove registry.test/old:1 cccccccccccc, 1000 B, last used 48 d ago\n"
        "2.0 KiB would be freed, 2.9 KiB left\n");
  CHECK(house.store.find(older));
  CHECK_THAT(prune({std::chrono::seconds(0), 4500, false}), Catch::StartsWith("removed registry.test/older:1"));
  CHECK((house.store.find(old) && !house.store.find(older)));
  CHECK_THAT(prune({std::chrono::hours(30 * 24), std::nullopt, false}),
             Catch::StartsWith("removed registry.test/old:1"));
  CHECK((house.store.find(used) && house.store.find(pinned) && house.store.find(young)));
}

TEST_CASE("an image is named by reference, with or without a tag, or by a digest") {
  House house;
  const ImageKey one = house.add('a', "debian", "12", 1), two = house.add('b', "debian", "13", 1);
  const ImageKey other = house.add('c', "tools/debian", "12", 1);
  const auto remove = [&](const std::vector<std::string>& words) {
    return house.say([&](const Housekeeping& it) { return it.remove(words); });
  };
  CHECK_THAT(remove({"registry.test/debian:14"}),
             Catch::Contains("there is no image 'registry.test/debian:14'") &&
                 Catch::Contains("hint: did you mean registry.test/debian:1"));  // 12 or 13
  CHECK_THAT(remove({"aaaaa"}), Catch::Contains("there is no image"));           // too short
  REQUIRE(house.store.pin(one.name(), true));
  CHECK_THAT(
      remove({"registry.test/debian"}),
      Catch::Contains("removed registry.test/debian:13") &&
          Catch::Contains("debian:12: it is pinned [image-in-use]\nhint: situla pin --undo registry.test/debian"));
  CHECK((house.store.find(one) && !house.store.find(two) && house.store.find(other)));
  house.say([&](const Housekeeping& it) { return it.pin({"registry.test#debian:12"}, false); });
  CHECK_THAT(remove({"sha256:aaaaaa", "cccccccc"}), !Catch::Contains("error"));
  // srun says its digest beside the tag, for all nodes of a step.
  house.add('d', "cuda", "sha256:" + std::string(64, 'e'), 1, 1000, "12.4");
  CHECK_THAT(remove({"registry.test/cuda:12.5"}), Catch::Contains("did you mean registry.test/cuda:12.4"));
  CHECK_THAT(remove({"registry.test/cuda:12.4"}), Catch::StartsWith("removed registry.test/cuda:12.4"));
  CHECK(std::filesystem::is_empty(house.directory / "images/sha256"));
}

TEST_CASE("an image in use, or pinned, stays, and the error says which it is") {
  House house;
  const ImageKey used = house.add('a', "used", "1", 1), pinned = house.add('b', "pinned", "1", 1);
  REQUIRE(house.store.pin(pinned.name(), true));
  const UniqueFd file(open(house.store.image_path(used).c_str(), O_RDONLY | O_CLOEXEC));
  const auto remove = [&](const std::string& word, std::optional<uid_t> user) {
    std::ostringstream out;
    const auto removed = Housekeeping(house.store, out, kNow, user).remove({word});
    return removed ? "removed" : removed.error().text();
  };
  CHECK_THAT(
      remove("registry.test/used:1", {}),
      Catch::StartsWith("remove registry.test/used:1: it is in use on this node [image-in-use]\nhint: try again"));
  CHECK_THAT(remove("registry.test/pinned:1", 1000),
             Catch::EndsWith("it is pinned [image-in-use]\nhint: ask the administrator: situla pin --undo "
                             "registry.test/pinned:1"));
  CHECK((house.store.find(used) && house.store.find(pinned)));
  // Of several the last one ends the command; the others are said.
  CHECK_THAT(
      house.say([](const Housekeeping& it) {
        return it.remove({"registry.test/used:1", "nothing"});
      }),
      Catch::StartsWith(
          "remove registry.test/used:1: it is in use on this node [image-in-use]\nerror: there is no image 'nothing'"));
}

TEST_CASE("for a name that the registry does not have, the image that is here and was meant") {
  House house;
  house.add('a', "team/pytorch", "24.10-py3", kDay);
  house.add('b', "team/tiny", "latest", kDay);
  const Origin misspelt{"registry.test", "team/pytroch"};
  const auto alike = [&](const Origin& origin, const std::string& name, uid_t user = 1000) {
    return image_alike(house.store, user, origin, name);
  };
  CHECK(alike(misspelt, "24.10-py3") == "registry.test/team/pytorch:24.10-py3");
  CHECK(alike({"registry.test", "team/pytorch"}, "24.01-py3") == "registry.test/team/pytorch:24.10-py3");
  CHECK(alike({"registry.test", "team/tinny"}, "latest") == "registry.test/team/tiny:latest");
  // What is far away, is the same, or is a digest.
  CHECK(alike({"registry.test", "team/debian"}, "latest").empty());
  CHECK(alike({"registry.test", "team/tiny"}, "latest").empty());
  CHECK(alike(misspelt, "sha256:" + std::string(64, 'a')).empty());
  CHECK(alike(misspelt, std::string(5000, 'x')).empty());
  // Somebody else's.
  CHECK(alike(misspelt, "24.10-py3", 1001).empty());
}

TEST_CASE("what images hold is compared with what they held after their import") {
  House house;
  const ImageKey old = house.add('a', "debian", "12", kDay), other = house.add('b', "tiny", "latest", 0);
  const auto verify = [&](const std::vector<std::string>& words) {
    return words_of(house.say([&](const Housekeeping& some) { return some.verify(words); }));
  };
  CHECK(verify({}) ==
        "first read: registry.test/debian:12 aaaaaaaaaaaa, 1000 B|"
        "first read: registry.test/tiny:latest bbbbbbbbbbbb, 1000 B|");
  CHECK(verify({"registry.test/tiny"}) == "ok: registry.test/tiny:latest bbbbbbbbbbbb, 1000 B|");
  const std::string path = house.store.image_path(old);
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  REQUIRE(truncate(path.c_str(), 999) == 0);
  const std::string said = verify({});
  CHECK(said.starts_with("damaged: registry.test/debian:12 aaaaaaaaaaaa, 999 B|ok: registry.test/tiny:latest "));
  CHECK(said.find("error: 1 of 2 images do not hold what they held after their import") != std::string::npos);
  CHECK(verify({"nothing"}).find("there is no image 'nothing'") != std::string::npos);
  CHECK(house.store.remove_unused(other.name()));
  CHECK_FALSE(house.store.content(other.name()));
}

TEST_CASE("what a crash left beside images that are not there goes after an hour") {
  House house;
  const ImageKey whole = house.add('a', "debian", "12", 0), gone = house.add('b', "tiny", "latest", 0);
  REQUIRE(house.store.pin(gone.name(), true));
  REQUIRE(house.store.note_content(whole.name(), gone.digest));
  REQUIRE(std::filesystem::remove(house.store.image_path(gone)));
  (void)house.directory.write("images/sha256/." + whole.name() + ".json.0123456789abcdef", "half");
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(house.store.images()),
                         std::filesystem::directory_iterator());
  };
  const int64_t now = std::time(nullptr);
  house.store.sweep(now);
  // The record's time is that of its last use, which is long to come here.
  CHECK(files() == 6);
  house.store.sweep(now + kNow);
  CHECK(files() == 3);
  CHECK(house.store.list().size() == 1);
}
