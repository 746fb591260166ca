// Is an engine of this machine asked as it understands, and does every way in which it can fail end in one clear error?
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "hooks/import/layer_stream.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/request/engine_settings.hpp"
#include "hooks/sources/open_source.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/unit/import/tar.hpp"

using namespace situla;
using test::Tar;
namespace fs = std::filesystem;

namespace {

/// One image as `docker save` writes it.
struct Saved {
  std::string layer = Tar().directory("d/").file("d/file", "content").bytes();
  std::string config = R"({"architecture":"amd64","rootfs":{"diff_ids":[")" + digest_of(layer).text() + R"("]}})";
  std::string name = digest_of(config).hex() + ".json";
  std::string tar =
      Tar()
          .file(name, config)
          .file("a/layer.tar", layer)
          .file("manifest.json", R"([{"Config":")" + name + R"(","RepoTags":["x:1"],"Layers":["a/layer.tar"]}])")
          .bytes();
};

struct Place {
  fs::path path = fs::temp_directory_path() / ("situla-engine-" + std::to_string(getpid()));
  Place() { fs::create_directories(path / "temp"); }
  ~Place() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  [[nodiscard]] bool left() const { return !fs::is_empty(path / "temp"); }
  /// A program of the user; $out is a file for it to tell what it was asked.
  [[nodiscard]] std::string program(const std::string& script) const {
    const fs::path file = path / "engine";
    std::ofstream(file) << "#!/bin/sh\nout=" << (path / "out").string() << "\necho \"$@\" >>$out\n" << script << "\n";
    fs::permissions(file, fs::perms::owner_all);
    return file;
  }
  [[nodiscard]] std::string told() const {
    std::ifstream file(path / "out");
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

std::string http(const std::string& status, const std::string& body, size_t promised = SIZE_MAX) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(promised == SIZE_MAX ? body.size() : promised) +
         "\r\n\r\n" + body;
}

/// Answers each path with prepared bytes, one request per connection.
class FakeApi {
 public:
  FakeApi(const std::string& socket, std::map<std::string, std::string> answers) : answers_(std::move(answers)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket.copy(address.sun_path, sizeof address.sun_path - 1);
    unlink(socket.c_str());
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener_, 8) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  FakeApi(const FakeApi&) = delete;
  FakeApi& operator=(const FakeApi&) = delete;
  ~FakeApi() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

 private:
  void serve() const {
    while (true) {
      const int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) return;
      std::string request(4096, '\0');
      const ssize_t size = read(peer, request.data(), request.size());
      request.resize(size > 0 ? static_cast<size_t>(size) : 0);
      const size_t end = request.find(' ', 4);
      const auto found = request.starts_with("GET ") ? answers_.find(request.substr(4, end - 4)) : answers_.end();
      const std::string answer = found == answers_.end() ? http("404 Not Found", "{}") : found->second;
      (void)!send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(peer);
    }
  }

  const std::map<std::string, std::string> answers_;
  int listener_ = -1;
  std::thread thread_;
};

struct Impatient final : Progress {
  void phase(std::string_view) noexcept override {}
  void bytes(uint64_t, uint64_t) noexcept override {}
  void note(std::string_view) noexcept override {}
  void finish(std::string_view) noexcept override {}
  [[nodiscard]] bool cancelled() const noexcept override { return true; }
};

ImportRequest request(const Place& place, const std::string& image, std::vector<std::string> sockets,
                      const std::string& program = "") {
  ImportRequest wanted;
  wanted.image = image;
  wanted.engine = {std::move(sockets), program, {"PATH=/usr/bin:/bin"}, place.path / "temp"};
  return wanted;
}

/// The digest and the layer.
Result<std::pair<Digest, std::string>> pull(const ImportRequest& wanted) {
  NullProgress progress;
  TRY_ASSIGN(const auto source, open_source(wanted, progress));
  TRY_ASSIGN(const ResolvedImage resolved, source->resolve(Platform::parse("amd64").value()));
  TRY(source->fetch_config(resolved.manifest.config));
  std::vector<Blob> blobs;
  for (const Descriptor& each : resolved.manifest.layers)
    blobs.push_back({each.digest, each.size, "layer", each.urls, each.of_content});
  TRY_ASSIGN(const BlobStream opened, source->open_blobs(blobs));
  LayerStream stream(blobs, opened.read, opened.stop);
  std::string layer;
  while (true) {
    TRY_ASSIGN(const std::string_view bytes, stream.read());
    if (bytes.empty()) break;
    layer += bytes;
  }
  TRY(stream.drain());
  CHECK(source->uri(resolved.digest) == wanted.image);
  return std::pair(resolved.digest, layer);
}

std::string error_of(const ImportRequest& wanted) {
  const auto pulled = pull(wanted);
  return pulled ? "no error" : pulled.error().text();
}

const std::string kFound = http("200 OK", R"({"Id":"sha256:x","Size":100})");

}  // namespace

TEST_CASE("an engine's API: the paths of docker and of podman") {
  const Place place;
  const Saved image;
  const std::string socket = place.path / "engine.sock";
  const std::string podman = "/v4.0.0/libpod/images/";
  const FakeApi api(socket, {{"/images/x:1/json", kFound},
                             {"/images/x:1/get", http("200 OK", image.tar)},
                             {podman + "host:5000/a/x:latest/json", kFound},
                             {podman + "host:5000/a/x:latest/get?format=docker-archive", http("200 OK", image.tar)}});
  for (const char* name : {"dockerd://x:1", "podman://host:5000/a/x"}) {
    INFO(name);
    const auto pulled = pull(request(place, name, {place.path / "none.sock", socket}));
    REQUIRE(pulled);
    CHECK(pulled->first == digest_of(image.config));
    CHECK(pulled->second == image.layer);
    CHECK_FALSE(place.left());
  }
}

TEST_CASE("Docker 25 and later write an OCI layout, and manifest.json beside it") {
  const Place place;
  const Saved image;
  const auto blob = [](const std::string& bytes) { return "blobs/sha256/" + digest_of(bytes).hex(); };
  const auto named = [](const std::string& bytes) {
    return R"({"digest":")" + digest_of(bytes).text() + R"(","size":)" + std::to_string(bytes.size()) + "}";
  };
  const std::string manifest =
      R"({"schemaVersion":2,"config":)" + named(image.config) + R"(,"layers":[)" + named(image.layer) + "]}";
  const auto layout = [&] {
    return Tar()
        .directory("blobs/")
        .directory("blobs/sha256/")
        .file(blob(image.config), image.config)
        .file(blob(image.layer), image.layer)
        .file(blob(manifest), manifest)
        .file("index.json", R"({"schemaVersion":2,"manifests":[)" + named(manifest) + "]}")
        .file("oci-layout", R"({"imageLayoutVersion":"1.0.0"})");
  };
  const std::string list = R"([{"Config":")" + blob(image.config) + R"(","RepoTags":["x:latest"],"Layers":[")" +
                           blob(image.layer) + R"("]}])";
  const std::string socket = place.path / "engine.sock";
  for (const bool beside : {true, false}) {
    INFO(beside);
    const std::string tar = beside ? layout().file("manifest.json", list).bytes() : layout().bytes();
    const FakeApi api(socket, {{"/images/x:latest/json", kFound}, {"/images/x:latest/get", http("200 OK", tar)}});
    const auto pulled = pull(request(place, "dockerd://x", {socket}));
    REQUIRE(pulled);
    CHECK(pulled->first == digest_of(beside ? image.config : manifest));
    CHECK(pulled->second == image.layer);
  }
}

TEST_CASE("what an engine's API may answer instead of an image") {
  const Place place;
  const Saved image;
  const std::string socket = place.path / "engine.sock";
  const auto error = [&](const std::string& found, const std::string& saved) {
    const FakeApi api(socket, {{"/images/x:latest/json", found}, {"/images/x:latest/get", saved}});
    std::string text = error_of(request(place, "dockerd://x", {socket}));
    CHECK_FALSE(place.left());
    return text;
  };
  CHECK_THAT(error(http("404 Not Found", "{}"), ""),
             Catch::Contains("docker has no x:latest (" + socket + ") [image-not-found]\nhint: "));
  CHECK_THAT(error(http("500 Oops", R"({"message":"disk on fire"})"), ""),
             Catch::Contains("ask " + socket + ": disk on fire"));
  CHECK_THAT(error(http("503 Oops", "<html>"), ""), Catch::Contains("answers with status 503"));
  CHECK_THAT(error(http("403 Forbidden", R"({"message":"policy"})"), ""),
             Catch::Contains("policy") && Catch::Contains("ask the administrator"));
  CHECK_THAT(error(http("200 OK", "<html>"), ""), Catch::Contains("does not answer as a container engine"));
  CHECK_THAT(error("nonsense\r\n\r\n", ""), Catch::Contains("talk to " + socket));
  CHECK_THAT(error("", ""), Catch::Contains("talk to " + socket));
  CHECK_THAT(error(kFound, http("500 Oops", R"({"message":"layer is gone"})")),
             Catch::Contains("save the image to a temporary file") && Catch::Contains("layer is gone [engine]"));
  CHECK_THAT(error(kFound, http("200 OK", image.tar, image.tar.size() + 1)), Catch::Contains("talk to " + socket));
  CHECK_THAT(error(kFound, http("200 OK", image.tar.substr(0, image.tar.size() / 2))),
             Catch::Contains("the archive from " + socket));
  CHECK_THAT(error(kFound, http("200 OK", "")), Catch::Contains("there is no manifest.json"));
}

TEST_CASE("sockets that are not there, or serve nobody") {
  const Place place;
  const std::string none = place.path / "none.sock";
  CHECK_THAT(error_of(request(place, "dockerd://x", {none})),
             Catch::Contains("connect to " + none + ": No such file") && Catch::Contains("DOCKER_HOST=unix:///PATH"));
  CHECK_THAT(error_of(request(place, "podman://x", {none})), Catch::Contains("CONTAINER_HOST=unix:///PATH"));
  CHECK_THAT(error_of(request(place, "dockerd://x", {})),
             Catch::Contains("no program docker in PATH") && Catch::Contains(" [engine]\nhint: "));
  std::ofstream(place.path / "file") << "";
  CHECK_THAT(error_of(request(place, "dockerd://x", {place.path / "file"})), Catch::Contains("Connection refused"));
}

TEST_CASE("an engine's command: what it is asked, and that nothing of it is left") {
  const Place place;
  const Saved image;
  std::ofstream(place.path / "image.tar", std::ios::binary) << image.tar;
  const std::string tar = place.path / "image.tar";
  const std::string find = "[ \"$1\" != image ] || { echo 100; exit 0; }\n";
  const auto program = place.program(find + "echo junk >$TMPDIR/junk; echo warning >&2\ncat " + tar);
  const auto pulled = pull(request(place, "dockerd://x", {}, program));
  REQUIRE(pulled);
  CHECK(pulled->first == digest_of(image.config));
  CHECK(pulled->second == image.layer);
  CHECK(place.told() == "image inspect --format {{.Size}} x:latest\nsave x:latest\n");
  REQUIRE(pull(request(place, "podman://x", {place.path / "none.sock"}, program)));
  CHECK_THAT(place.told(), Catch::EndsWith("save -q --format docker-archive -o /dev/stdout x:latest\n"));
  CHECK_FALSE(place.left());
}

TEST_CASE("an engine's command fails") {
  const Place place;
  const auto error = [&](const std::string& script) {
    std::string text = error_of(request(place, "podman://x", {}, place.program(script)));
    CHECK_FALSE(place.left());
    return text;
  };
  const std::string find = "[ \"$1\" != image ] || { echo 100; exit 0; }\n";
  for (const char* text :
       {"Error: inspecting object: x: image not known", "Error: No such image: x", "error: no such object: x"})
    CHECK_THAT(error(std::string("echo '") + text + "' >&2; exit 125"), Catch::Contains("podman has no x:latest"));
  CHECK_THAT(error("echo 'Cannot connect: permission denied' >&2; exit 1"),
             Catch::Contains("permission denied") && Catch::Contains("another user's"));
  CHECK_THAT(error("exit 3"), Catch::Contains("exited with return code 3"));
  CHECK_THAT(error(find + "touch $TMPDIR/junk; kill -KILL $$"), Catch::Contains("SIGKILL"));
  CHECK_THAT(error(find + "echo part; printf 'first\\n\\033[31mlast\\n' >&2; exit 1"),
             Catch::Contains("\\x1b[31mlast") && !Catch::Contains("first"));
  CHECK_THAT(error(find + "exit 0"), Catch::Contains("there is no manifest.json"));
  CHECK_THAT(error(find + "yes | head -c 1000000 >&2; exit 1"), Catch::Contains(": y"));
}

TEST_CASE("an engine that hangs is left when the import is cancelled") {
  const Place place;
  Impatient progress;
  const auto wanted = request(place, "podman://x", {}, place.program("touch $TMPDIR/junk; exec sleep 100"));
  const auto source = open_source(wanted, progress);
  REQUIRE(source);
  const auto resolved = (*source)->resolve(Platform::host());
  REQUIRE_FALSE(resolved);
  CHECK(resolved.error().kind() == ErrorKind::cancelled);
  CHECK_FALSE(place.left());
}

TEST_CASE("where engines are looked for") {
  const Place place;
  const auto settings = [&](ImageKind kind, const std::map<std::string, std::string>& variables) {
    Environment environment;
    environment.set("PATH", place.path.string());
    environment.set("ENROOT_TEMP_PATH", "/scratch");
    for (const auto& [name, value] : variables) environment.set(name, value);
    test::MemoryLog log;
    return collect_engine_settings(kind, EnrootConfig::load(environment, log).value(), environment);
  };
  const auto docker = ImageKind::docker_daemon, podman = ImageKind::podman;
  using Texts = std::vector<std::string>;
  CHECK(settings(docker, {}).sockets == Texts{"/var/run/docker.sock"});
  CHECK(settings(docker, {}).temp_directory == "/scratch");
  CHECK(settings(docker, {{"XDG_RUNTIME_DIR", "/r"}}).sockets == Texts{"/var/run/docker.sock", "/r/docker.sock"});
  CHECK(settings(podman, {{"XDG_RUNTIME_DIR", "/r"}}).sockets ==
        Texts{"/r/podman/podman.sock", "/run/podman/podman.sock"});
  CHECK(settings(docker, {{"CONTAINER_HOST", "unix:///c"}, {"DOCKER_CONTEXT", "default"}}).sockets ==
        Texts{"/var/run/docker.sock"});
  fs::copy("/bin/true", place.path / "docker");
  fs::copy("/bin/true", place.path / "podman");
  for (const auto& [kind, variable] : {std::pair(docker, "DOCKER_HOST"), std::pair(podman, "CONTAINER_HOST")}) {
    const EngineSettings named = settings(kind, {{variable, "unix:///x y"}});
    CHECK(named.sockets == Texts{"/x y"});
    CHECK(named.program.empty());
    const EngineSettings remote = settings(kind, {{variable, "ssh://host"}});
    CHECK(remote.sockets.empty());
    CHECK(remote.program == (place.path / (kind == docker ? "docker" : "podman")).string());
    CHECK(std::count(remote.environment.begin(), remote.environment.end(), std::string(variable) + "=ssh://host") == 1);
  }
  CHECK(settings(docker, {{"DOCKER_CONTEXT", "elsewhere"}}).sockets.empty());
  CHECK(settings(docker, {}).program == (place.path / "docker").string());
}
