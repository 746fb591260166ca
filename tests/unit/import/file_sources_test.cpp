// Are images in files read where they are, and damaged or hostile ones refused with one clear error?
#include <filesystem>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>

#include "hooks/import/import.hpp"
#include "hooks/import/layer_stream.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/sources/image_files.hpp"
#include "hooks/sources/open_source.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/unit/import/tar.hpp"

using namespace situla;
using test::Tar;
namespace fs = std::filesystem;

namespace {

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string quoted(const std::string& text) {
  return "\"" + text + "\"";
}

std::string descriptor(const std::string& bytes, const std::string& more = "") {
  return "{\"digest\":" + quoted(digest_of(bytes).text()) + ",\"size\":" + std::to_string(bytes.size()) + more + "}";
}

std::string layer(const std::string& text) {
  return Tar().directory("d/").file("d/file", text).bytes();
}

/// One image and every form it can take in files: name -> content.
struct Image {
  std::string one = layer("one"), two = layer("two");
  std::string packed = gzip(one);
  std::string config = "{\"architecture\":\"amd64\",\"rootfs\":{\"diff_ids\":[" + quoted(digest_of(one).text()) + "," +
                       quoted(digest_of(two).text()) + "]}}";
  std::string manifest = "{\"schemaVersion\":2,\"config\":" + descriptor(config) + ",\"layers\":[" +
                         descriptor(packed) + "," + descriptor(two) + "]}";

  using Files = std::map<std::string, std::string>;
  static std::string blob(const std::string& bytes) { return "blobs/sha256/" + digest_of(bytes).hex(); }
  [[nodiscard]] Files oci(const std::string& entries) const {
    return {{"oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}"},
            {"index.json", "{\"schemaVersion\":2,\"manifests\":[" + entries + "]}"},
            {blob(config), config},
            {blob(manifest), manifest},
            {blob(packed), packed},
            {blob(two), two}};
  }
  [[nodiscard]] Files oci() const { return oci(descriptor(manifest, tag("1"))); }
  [[nodiscard]] Files dir() const {
    return {{"version", "Directory Transport Version: 1.1\n"},
            {"manifest.json", manifest},
            {digest_of(config).hex(), config},
            {digest_of(packed).hex(), packed},
            {digest_of(two).hex(), two}};
  }
  [[nodiscard]] Files saved(const std::string& first, const std::string& tags = "\"x:1\"") const {
    const std::string name = digest_of(config).hex() + ".json";
    return {{name, config},
            {"a/layer.tar", first},
            {"b/layer.tar", two},
            {"manifest.json", "[{\"Config\":" + quoted(name) + ",\"RepoTags\":[" + tags +
                                  "],\"Layers\":[\"a/layer.tar\",\"b/layer.tar\"]}]"}};
  }
  static std::string tag(const std::string& name) {
    return ",\"annotations\":{\"org.opencontainers.image.ref.name\":" + quoted(name) + "}";
  }
};

std::string tar_of(const Image::Files& files, const std::string& prefix = "") {
  Tar tar;
  for (const auto& [name, content] : files) tar.file(prefix + name, content);
  return tar.bytes();
}

struct Pulled {
  Digest digest;
  std::vector<std::string> layers;
};

struct Directory {
  fs::path path = fs::temp_directory_path() / ("situla-sources-" + std::to_string(getpid()));
  Directory() { fs::create_directories(path); }
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string write(const std::string& name, const std::string& content) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << content;
    return path / name;
  }
  std::string write(const std::string& name, const Image::Files& files) const {
    fs::remove_all(path / name);
    for (const auto& [file, content] : files) write(name + "/" + file, content);
    return path / name;
  }

  static ImportRequest request(const std::string& image) {
    ImportRequest request;
    request.image = image;
    request.platform = "amd64";
    return request;
  }
  static Result<Pulled> pull(const std::string& image) {
    NullProgress progress;
    const ImportRequest wanted = request(image);
    TRY_ASSIGN(const auto source, open_source(wanted, progress));
    TRY_ASSIGN(const ResolvedImage resolved, source->resolve(Platform::parse("amd64").value()));
    TRY(source->fetch_config(resolved.manifest.config));
    std::vector<Blob> blobs;
    for (const Descriptor& each : resolved.manifest.layers)
      blobs.push_back({each.digest, each.size, "layer", each.urls, each.of_content});
    TRY_ASSIGN(BlobStream opened, source->open_blobs(blobs));
    LayerStream stream(blobs, opened.read, opened.stop);
    Pulled pulled{resolved.digest, {}};
    for (size_t i = 0; i < blobs.size(); ++i) {
      pulled.layers.emplace_back();
      while (true) {
        TRY_ASSIGN(const std::string_view bytes, stream.read());
        if (bytes.empty()) break;
        pulled.layers.back() += bytes;
      }
      TRY(stream.drain());
    }
    return pulled;
  }
};

/// The error that a user sees, and its hint behind a newline.
std::string error_of(const std::string& image) {
  const auto pulled = Directory::pull(image);
  return pulled ? "no error" : pulled.error().text();
}

}  // namespace

TEST_CASE("the same image in every form") {
  const Directory directory;
  const Image image;
  const std::vector<std::string> layers = {image.one, image.two};
  const auto check = [&](const std::string& name, const Digest& digest) {
    INFO(name);
    const auto pulled = Directory::pull(name);
    if (!pulled) FAIL(pulled.error().text());
    CHECK(pulled->layers == layers);
    CHECK(pulled->digest == digest);
  };
  const Digest manifest = digest_of(image.manifest), config = digest_of(image.config);
  const std::string layout = directory.write("layout", image.oci());
  for (const auto* end : {"", ":", ":1", ":@0", "/:1"}) check("oci:" + layout + end, manifest);
  const std::string archive = directory.write("a.tar", tar_of(image.oci()));
  check("oci-archive:" + archive, manifest);
  check("oci-archive:" + archive + ":1", manifest);
  check("oci-archive:" + directory.write("b.tar", tar_of(image.oci(), "./")), manifest);
  check("dir:" + directory.write("dir", image.dir()), manifest);
  check("dir:" + directory.write("with:colon", image.dir()), manifest);
  const std::string saved = directory.write("c.tar", tar_of(image.saved(image.one)));
  for (const auto* end : {"", ":x:1", ":docker.io/library/x:1", ":@0"}) check("docker-archive:" + saved + end, config);
  check("docker-archive:" + directory.write("d.tar", tar_of(image.saved(image.packed))), config);
  check("docker-archive:" + archive, manifest);  // a newer Docker's, without a manifest.json
}

TEST_CASE("names that need pax headers, links inside the archive, and the last of two files of a name") {
  const Directory directory;
  const Image image;
  const std::string deep(150, 'n'), config = digest_of(image.config).hex() + ".json";
  const std::string manifest =
      "[{\"Config\":" + quoted(config) + ",\"Layers\":[" + quoted(deep + "/layer.tar") + ",\"two\"]}]";
  Tar tar;
  tar.file("manifest.json", "wrong").file(config, image.config).file(deep + "/real.tar", image.one);
  tar.symlink("link", "../outside").add(deep + "/layer.tar", "", {'2', 0777, "./real.tar", {}});
  tar.file("x/two", image.two).hardlink("two", "x/two").file("manifest.json", manifest);
  const auto pulled = Directory::pull("docker-archive:" + directory.write("a.tar", tar.bytes()));
  if (!pulled) FAIL(pulled.error().text());
  CHECK(pulled->layers == std::vector<std::string>{image.one, image.two});
}

TEST_CASE("one of several images is named, or the error lists them") {
  const Directory directory;
  const Image image;
  Image other;
  other.config = "{\"architecture\":\"arm64\"}";
  other.manifest = "{\"config\":" + descriptor(other.config) + ",\"layers\":[]}";
  auto files =
      image.oci(descriptor(image.manifest, Image::tag("1")) + "," + descriptor(other.manifest, Image::tag("2")));
  files[Image::blob(other.manifest)] = other.manifest;
  files[Image::blob(other.config)] = other.config;
  const std::string layout = directory.write("layout", files);
  CHECK(Directory::pull("oci:" + layout + ":2")->digest == digest_of(other.manifest));
  CHECK(Directory::pull("oci:" + layout + ":@1")->digest == digest_of(other.manifest));
  CHECK(Directory::pull("oci:" + layout + ":1")->digest == digest_of(image.manifest));
  CHECK_THAT(error_of("oci:" + layout), Catch::Contains("several images") &&
                                            Catch::Contains("hint: it has oci:" + layout + ":1, oci:" + layout + ":2"));
  CHECK_THAT(error_of("oci:" + layout + ":3"),
             Catch::Contains("no image has the tag '3' [image-not-found]") && Catch::Contains(":1, "));
  CHECK_THAT(error_of("oci:" + layout + ":@2"), Catch::Contains("has only 2 images [image-not-found]"));
  CHECK_THAT(error_of("docker-archive:" + directory.write("a.tar", tar_of(image.saved(image.one))) + ":x:2"),
             Catch::Contains("there is no image x:2") && Catch::Contains("it has x:1"));
}

TEST_CASE("an index inside the layout is chosen from by platform") {
  const Directory directory;
  const Image image;
  const auto platform = [](const std::string& name) {
    return ",\"platform\":{\"os\":\"linux\",\"architecture\":" + quoted(name) + "}";
  };
  const std::string inner = "{\"manifests\":[" + descriptor("other", platform("ppc64le")) + "," +
                            descriptor(image.manifest, platform("amd64")) + "]}";
  auto files = image.oci(descriptor(inner, Image::tag("1")));
  files[Image::blob(inner)] = inner;
  CHECK(Directory::pull("oci:" + directory.write("nested", files))->digest == digest_of(image.manifest));
  files = image.oci(descriptor("other", platform("ppc64le")) + "," + descriptor(image.manifest, platform("amd64")));
  CHECK(Directory::pull("oci:" + directory.write("flat", files))->digest == digest_of(image.manifest));
  auto directory_files = image.dir();
  directory_files["manifest.json"] = inner;
  directory_files[digest_of(image.manifest).hex() + ".manifest.json"] = image.manifest;
  CHECK(Directory::pull("dir:" + directory.write("dir", directory_files))->digest == digest_of(image.manifest));
  std::string nested = inner;
  for (int depth = 0; depth < 6; ++depth) {
    files[Image::blob(nested)] = nested;
    nested = "{\"manifests\":[" + descriptor(nested, platform("amd64")) + "]}";
  }
  files["index.json"] = nested;
  CHECK_THAT(error_of("oci:" + directory.write("deep", files)), Catch::Contains("indexes inside indexes"));
}

TEST_CASE("damaged layouts") {
  const Directory directory;
  const Image image;
  const auto check = [&](const std::string& name, const std::string& content, const std::string& error) {
    auto files = image.oci();
    if (content == "missing")
      files.erase(name);
    else
      files[name] = content;
    INFO(name << ": " << content.substr(0, 40));
    CHECK_THAT(error_of("oci:" + directory.write("layout", files)), Catch::Contains(error));
    CHECK_THAT(error_of("oci-archive:" + directory.write("a.tar", tar_of(files))), Catch::Contains(error));
  };
  std::string changed = image.packed;
  changed[changed.size() / 2] ^= 1;
  check(Image::blob(image.packed), changed, "layer: its content has the digest sha256:");
  check(Image::blob(image.packed), image.packed + "x", "bytes instead of");
  check(Image::blob(image.packed), "missing", Image::blob(image.packed));
  check(Image::blob(image.config), "missing", "configuration sha256:");
  changed = image.config;
  changed[5] ^= 1;
  check(Image::blob(image.config), changed, "its content has the digest");
  check(Image::blob(image.manifest), std::string(image.manifest.size(), ' '), "its content has the digest");
  check("index.json", "missing", "index.json");
  check("index.json", "{\"manifests\":[]}", "there is no image in it");
  check("index.json", image.manifest, "not an index");
  check("index.json", "{\"fsLayers\":[]}", "Docker schema 1 is not supported");
  check("index.json", std::string(5U << 20U, ' '), "the limit is 4.0 MiB");
  check("index.json", "{\"manifests\":[{\"digest\":\"sha256:../../../../etc/passwd\",\"size\":1}]}",
        "does not have 64");
  check("index.json",
        "{\"manifests\":[{\"digest\":\"" + digest_of(image.manifest).text() + "\",\"size\":9223372036854775807}]}",
        "bytes instead of 9223372036854775807");
}

TEST_CASE("what lies in a layout's directory instead of a blob") {
  const Directory directory;
  const Image image;
  const std::string layout = directory.write("layout", image.oci());
  const fs::path blob = fs::path(layout) / Image::blob(image.two);
  fs::rename(blob, directory.path / "outside");
  fs::create_symlink(directory.path / "outside", blob);
  CHECK(Directory::pull("oci:" + layout));  // the caller's own right
  fs::remove(blob);
  fs::create_symlink("/dev/zero", blob);
  CHECK_THAT(error_of("oci:" + layout), Catch::Contains("not a regular file"));
  fs::remove(blob);
  REQUIRE(mkfifo(blob.c_str(), 0600) == 0);  // nobody writes: it must not wait
  CHECK_THAT(error_of("oci:" + layout), Catch::Contains("not a regular file"));
  CHECK_THAT(error_of("oci:" + layout + "/none"), Catch::Contains("No such file or directory"));
  CHECK_THAT(error_of("oci:" + directory.write("a:b", image.oci())),
             Catch::Contains("[image-not-found]\nhint: the path ends at the first ':'"));
  CHECK_THAT(error_of("oci:" + directory.write("dir", image.dir())), Catch::Contains("hint: this looks like"));
  CHECK_THAT(error_of("dir:" + layout), Catch::Contains("oci:PATH"));
}

TEST_CASE("schema 1, and other formats of the tools") {
  const Directory directory;
  const Image image;
  auto files = image.dir();
  files["manifest.json"] = "{\"schemaVersion\":1,\"fsLayers\":[],\"history\":[]}";
  CHECK_THAT(error_of("dir:" + directory.write("dir", files)), Catch::Contains("Docker schema 1 is not supported"));
  files = image.dir();
  files["version"] = "Directory Transport Version: 2.0\n";
  CHECK_THAT(error_of("dir:" + directory.write("dir", files)), Catch::Contains("is not 'Directory Transport Version"));
  auto layout = image.oci(descriptor("{\"fsLayers\":[]}"));
  layout[Image::blob("{\"fsLayers\":[]}")] = "{\"fsLayers\":[]}";
  CHECK_THAT(error_of("oci:" + directory.write("layout", layout)), Catch::Contains("Docker schema 1"));
  CHECK_THAT(error_of("docker-archive:" + directory.write("a.tar", Tar().file("repositories", "{}").bytes())),
             Catch::Contains("a Docker before 1.10"));
  CHECK_THAT(error_of("docker-archive:" + directory.write("a.tar", layer("exported"))),
             Catch::Contains("there is no manifest.json") && Catch::Contains("docker export"));
}

TEST_CASE("damaged archives") {
  const Directory directory;
  const Image image;
  const std::string whole = tar_of(image.saved(image.one));
  const auto error = [&](const std::string& bytes) {
    return error_of("docker-archive:" + directory.write("a.tar", bytes));
  };
  CHECK_THAT(error(gzip(whole)),
             Catch::Contains("is compressed with gzip") && Catch::Contains("hint: decompress it first: gunzip"));
  CHECK_THAT(error("\x28\xb5\x2f\xfd rest"), Catch::Contains("zstd") && Catch::Contains("unzstd"));
  CHECK_THAT(error("not a tar at all, but some text"), Catch::Contains("read tar: "));
  CHECK_THAT(error(""), Catch::Contains("there is no manifest.json"));
  // Up to the last content: what fills its last record, and the end of the archive, may be missing.
  for (size_t size = 512; size + 1024 + 512 < whole.size(); size += 300) {
    INFO(size);
    const std::string text = error(whole.substr(0, size));
    CHECK(text != "no error");
    CHECK(text.find("hint: ") != std::string::npos);
  }
}

TEST_CASE("hostile archives of docker save") {
  const Directory directory;
  const Image image;
  const auto error = [&](const std::string& manifest, const std::string& config) {
    auto files = image.saved(image.one);
    files["manifest.json"] = manifest;
    files["config"] = config;
    return error_of("docker-archive:" + directory.write("a.tar", tar_of(files)));
  };
  const std::string two_ids = image.config;
  CHECK_THAT(error("[{\"Config\":\"../../../etc/passwd\",\"Layers\":[]}]", ""),
             Catch::Contains("there is no file ../"));
  CHECK_THAT(error("[{\"Config\":\"/etc/passwd\",\"Layers\":[]}]", ""),
             Catch::Contains("there is no file /etc/passwd"));
  CHECK_THAT(error("[{\"Config\":\"config\",\"Layers\":[\"a/layer.tar\"]}]", two_ids),
             Catch::Contains("has 1 layers, the configuration 2"));
  CHECK_THAT(error("[{\"Config\":\"config\",\"Layers\":[\"b/layer.tar\",\"a/layer.tar\"]}]", two_ids),
             Catch::Contains("its content has the digest"));
  CHECK_THAT(error("[{\"Config\":\"config\",\"Layers\":[\"none\",\"a/layer.tar\"]}]", two_ids),
             Catch::Contains("layer 1 of 2: there is no file none"));
  CHECK_THAT(error("[{\"Config\":\"config\",\"Layers\":[]}]", "{}"), Catch::Contains("has no diff_ids"));
  CHECK_THAT(error("[{\"Config\":\"config\",\"Layers\":[\"a\"]}]", "{\"rootfs\":{\"diff_ids\":[\"md5:1\"]}}"),
             Catch::Contains("diff_ids: "));
  for (const auto* manifest : {"", "[]", "{}", "[5]", "[{\"Layers\":[]}]", "[{\"Config\":5}]"})
    CHECK_THAT(error(manifest, ""), Catch::Contains("manifest.json: "));
  auto files = image.saved(image.one);
  files[digest_of(image.config).hex() + ".json"] += " ";
  CHECK_THAT(error_of("docker-archive:" + directory.write("a.tar", tar_of(files))), Catch::Contains("has the digest"));
  Tar loop;
  loop.symlink("manifest.json", "b").symlink("b", "manifest.json");
  CHECK_THAT(error_of("docker-archive:" + directory.write("a.tar", loop.bytes())), Catch::Contains("no manifest.json"));
  Tar sparse;
  sparse.add("manifest.json", std::string(512, 'x'),
             {'0',
              0644,
              {},
              {{"GNU.sparse.major", "0"},
               {"GNU.sparse.minor", "1"},
               {"GNU.sparse.map", "0,512"},
               {"GNU.sparse.size", "1024"}}});
  CHECK_THAT(error_of("docker-archive:" + directory.write("a.tar", sparse.bytes())), Catch::Contains("sparse file"));
}
