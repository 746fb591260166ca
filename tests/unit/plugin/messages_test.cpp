// The messages between the processes of a step: what is sent arrives, and nothing else is accepted.
#include "common/protocol/messages.hpp"

#include <random>
#include <variant>

#include <catch2/catch.hpp>

using namespace situla;

namespace {

template <typename T>
T round_trip(const T& message) {
  const auto decoded = decode(encode(message));
  REQUIRE(decoded);
  REQUIRE(std::holds_alternative<T>(*decoded));
  return std::get<T>(*decoded);
}

}  // namespace

TEST_CASE("every message arrives as it was sent") {
  StepToken token{};
  token[0] = 1;
  token[15] = 255;
  const JoinRequest join = round_trip(JoinRequest{token, "/home/alice"});
  CHECK(join.token == token);
  CHECK(join.directory == "/home/alice");
  const Isolation isolation{.pid = true, .net = false, .ipc = true, .uts = false};
  const JoinReply joined = round_trip(JoinReply{"/srv", isolation, true});
  CHECK(joined.workdir == "/srv");
  CHECK(joined.has_range);
  CHECK(joined.isolation == isolation);
  CHECK(round_trip(Found{joined, {7, 8, 9}}).container.isolation == isolation);
  const Note note = round_trip(Note{LogLevel::warning, "text"});
  CHECK(note.level == LogLevel::warning);
  CHECK(note.text == "text");
  const Failure failure = round_trip(Failure{ErrorKind::network, "text", "hint"});
  CHECK(failure.kind == ErrorKind::network);
  CHECK(failure.text == "text");
  CHECK(failure.hint == "hint");
  const auto digest = Digest::parse_hex(std::string(62, '0') + "1f");
  REQUIRE(digest);
  const ImportDone done = round_trip(ImportDone{*digest, "ab.cd", true});
  CHECK(done.digest == *digest);
  CHECK(done.store_name == "ab.cd");
  CHECK(done.stored);
  CHECK_FALSE(done.local);
  CHECK(round_trip(MapsWanted{true}).remap_root);
  round_trip(MapsWritten{});
  const Ready ready = round_trip(Ready{"/w", "/scratch", "kernel", true, isolation, true, 12, "0123", 5, 6});
  CHECK(ready.workdir == "/w");
  CHECK(ready.scratch_path == "/scratch");
  CHECK(ready.root == "kernel");
  CHECK(ready.on_image);
  CHECK(ready.isolation == isolation);
  CHECK(ready.stays);
  CHECK(ready.directory == 12);
  CHECK(ready.identity == "0123");
  CHECK((ready.hooks_ms == 5 && ready.scripts_ms == 6));
  const Prefetched fetched = round_trip(Prefetched{"sha256:01", true});
  CHECK((fetched.digest == "sha256:01" && fetched.stored));
  round_trip(Finish{});
  CHECK(round_trip(Finished{"digest=x"}).summary == "digest=x");
  const auto wanted = round_trip(RunningWanted{"text", "0123", 9, 12, 4294967291});
  CHECK(wanted.ignored == "text");
  CHECK(wanted.identity == "0123");
  CHECK(wanted.job == 12);
  CHECK(wanted.step == 4294967291);
  round_trip(NotRunning{});
  round_trip(ImageWanted{});
  round_trip(ImageReady{});
  const auto copied = round_trip(CopiedImageWanted{"0123", true, 1, 2, 18446744073709551615U});
  CHECK(copied.identity == "0123");
  CHECK(copied.is_new);
  CHECK(copied.inode == 1);
  CHECK(copied.bytes == 2);
  CHECK(copied.changed == 18446744073709551615U);
  round_trip(ImageMounted{});
  CHECK(round_trip(NotMounted{"why"}).why == "why");
  const auto other = round_trip(OtherImageWanted{"docker://python:3.12", 7, true});
  CHECK(other.reference == "docker://python:3.12");
  CHECK(other.number == 7);
  CHECK(other.optional);
  round_trip(ImageLent{});
  CHECK(round_trip(Saving{"1:name=/x"}).cgroups == "1:name=/x");
  (void)round_trip(TaskEnded{});
  CHECK(round_trip(ImportWaits{"the import of job 7.0"}).what == "the import of job 7.0");
  const ImportProgress progress = round_trip(ImportProgress{1, 18446744073709551615U});
  CHECK((progress.done == 1 && progress.total == 18446744073709551615U));
  CHECK(round_trip(ScratchPlace{"/x"}).path == "/x");
}

TEST_CASE("the largest message fits into a packet") {
  const std::string large(1 << 20, 'x');
  CHECK(encode(Failure{ErrorKind::failure, large, large}).size() <= kMaxMessageBytes);
}

TEST_CASE("truncated, extended and foreign messages are refused") {
  const std::string good = encode(Failure{ErrorKind::failure, "text", "hint"});
  for (size_t size = 0; size < good.size(); ++size) CHECK_FALSE(decode(std::string_view(good).substr(0, size)));
  CHECK_FALSE(decode(good + "x"));
  std::string other_version = good;
  other_version[0] = static_cast<char>(other_version[0] + 1);
  CHECK_FALSE(decode(other_version));
  std::string other_kind = good;
  other_kind[4] = 99;
  CHECK_FALSE(decode(other_kind));
}

TEST_CASE("flags and enums have no values beyond their own") {
  const auto refused = [](const Message& message, size_t field, char value) {
    constexpr size_t kHead = 5;  // the version and which message it is
    std::string bytes = encode(message);
    REQUIRE(decode(bytes));
    bytes.at(kHead + field) = value;
    const auto decoded = decode(bytes);
    return !decoded && decoded.error().kind() == ErrorKind::corrupt;
  };
  CHECK(refused(Note{LogLevel::error, ""}, 0, 5));
  CHECK(refused(Failure{ErrorKind::unreachable, "", ""}, 0, 11));
  CHECK(refused(MapsWanted{true}, 0, 2));
  CHECK(refused(JoinReply{"", Isolation{}}, 4, 2));
  StepRequest request;
  std::string bytes = encode_step_request(request);
  constexpr size_t kOrigin = 4 + (10 * 4);  // behind the version, nine numbers and an empty text
  bytes.at(kOrigin) = 4;
  CHECK_FALSE(decode_step_request(bytes));
}

TEST_CASE("random bytes behind a good header never do harm") {
  std::mt19937 random(4711);
  const std::string header = encode(Finish{}).substr(0, 4);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = header;
    bytes.push_back(static_cast<char>(random() % (std::variant_size_v<Message> + 1)));
    for (unsigned n = random() % 64; n > 0; --n) bytes.push_back(static_cast<char>(random() & 0xffU));
    (void)decode(bytes);
    (void)decode_step_request(bytes);
  }
  SUCCEED();
}

TEST_CASE("a step request arrives as it was sent") {
  StepRequest request;
  request.job_id = 7;
  request.step_id = 0xfffffffbU;
  request.uid = 1001;
  request.gid = 1002;
  request.groups = {10, 20, 30};
  request.local_tasks = 2;
  request.all_tasks = 5;
  request.origin = ImageOrigin::user;
  request.named = true;
  request.save = true;
  request.image = "debian:12";
  request.importer = "/opt/site/importer";
  request.importer_runtime = "/run/pyxis";
  request.use_squashfuse = true;
  request.token[3] = 9;
  request.spec = std::string("a\0b", 3);
  const auto decoded = decode_step_request(encode_step_request(request));
  REQUIRE(decoded);
  CHECK(decoded->job_id == 7);
  CHECK(decoded->step_id == 0xfffffffbU);
  CHECK(decoded->uid == 1001);
  CHECK(decoded->gid == 1002);
  CHECK(decoded->groups == request.groups);
  CHECK(decoded->origin == ImageOrigin::user);
  CHECK(decoded->local_tasks == 2);
  CHECK(decoded->all_tasks == 5);
  CHECK(decoded->named);
  CHECK_FALSE(decoded->job_scope);
  CHECK(decoded->save);
  CHECK(decoded->image == request.image);
  CHECK(decoded->importer == "/opt/site/importer");
  CHECK(decoded->importer_runtime == "/run/pyxis");
  CHECK(decoded->use_squashfuse);
  CHECK(decoded->token == request.token);
  CHECK(decoded->spec == request.spec);
  const std::string bytes = encode_step_request(request);
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(decode_step_request(std::string_view(bytes).substr(0, size)));
}
