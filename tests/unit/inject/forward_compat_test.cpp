// When are an image's newer CUDA libraries used? GPU.md's rule is the toolkit's of 2026.
#include "hooks/inject/ldcache/forward_compat.hpp"

#include <filesystem>

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "tests/support/elf_library.hpp"
#include "tests/support/temp_dir.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

constexpr const char* kNote =
    R"({"Format": 1, "CUDA Version": "13.1", "Driver": [535, 550, 580, 590], "Device": [1, 2]})";

struct CompatImage {
  TempDir directory;
  /// A libcuda of that version with that note.
  void add(const std::string& version, const std::string& note = "",
           const std::string& where = "usr/local/cuda/compat") const {
    directory.write(where + "/libcuda.so." + version,
                    elf_library(ElfLibrary{.soname = "libcuda.so.1", .cuda_compat = note}));
  }
  /// "" for no.
  [[nodiscard]] std::string asked(const std::string& driver, const std::string& cuda = "") const {
    const auto root = RootDir::open(directory.path());
    REQUIRE(root);
    const auto answer = forward_compat_directory(*root, kCudaCompatDirectory, driver, cuda);
    return answer ? answer->value_or("") : "error: " + answer.error().text();
  }
};

}  // namespace

TEST_CASE("without a note the newer branch of the driver is used", "[compat]") {
  const CompatImage image;
  CHECK(image.asked("222.55.66").empty());
  image.add("333.88.99");
  CHECK(image.asked("222.55.66") == "/usr/local/cuda/compat");
  CHECK(image.asked("99.55.66") == "/usr/local/cuda/compat");  // as numbers
  CHECK(image.asked("333.55.66").empty());
  CHECK(image.asked("444.55.66").empty());
  CHECK(image.asked("").empty());
}

TEST_CASE("the note says which branches of the driver it is for", "[compat]") {
  const CompatImage image;
  image.add("590.44.01", kNote);
  CHECK(image.asked("550.54.14", "12.4") == "/usr/local/cuda/compat");
  CHECK(image.asked("560.28.03", "12.6").empty());
  CHECK(image.asked("590.44.01", "13.1").empty());  // the same
  CHECK(image.asked("590.48.01", "13.1").empty());  // newer than the image's
  CHECK(image.asked("590.12.01", "13.0") == "/usr/local/cuda/compat");
  CHECK(image.asked("", "13.0") == "/usr/local/cuda/compat");
  CHECK(image.asked("", "13.1").empty());
  CHECK(image.asked("", "").empty());
}

TEST_CASE("a note without branches goes by the version of CUDA", "[compat]") {
  const CompatImage image;
  image.add("1.1", R"({"Format": 1, "CUDA Version": "13.2.1", "Driver": []})");
  CHECK(image.asked("540.4.0", "12.10") == "/usr/local/cuda/compat");
  CHECK(image.asked("540.4.0", "13.2.1").empty());
  CHECK(image.asked("540.4.0", "").empty());
}

TEST_CASE("links are followed, and stay in the image", "[compat]") {
  const CompatImage image;
  image.add("333.88.99", "", "opt/cuda-13/compat");
  fs::create_directories(image.directory / "usr/local");
  fs::create_directories(image.directory / "etc/alternatives");
  fs::create_directory_symlink("/etc/alternatives/cuda", image.directory / "usr/local/cuda");
  fs::create_directory_symlink("../../../../../../opt/cuda-13", image.directory / "etc/alternatives/cuda");
  CHECK(image.asked("222.55.66") == "/opt/cuda-13/compat");
}

TEST_CASE("an image that is not clear about it is not asked further", "[compat]") {
  const CompatImage image;
  fs::create_directories(image.directory / "usr/local/cuda/compat/libcuda.so.400.1");
  REQUIRE(mkfifo((image.directory / "usr/local/cuda/compat/libcuda.so.500.1").c_str(), 0666) == 0);
  fs::create_symlink("/etc/nothing", image.directory / "usr/local/cuda/compat/libcuda.so.600.1");
  fs::create_symlink("/dev/null", image.directory / "usr/local/cuda/compat/libcuda.so.1");
  CHECK(image.asked("222.55.66").empty());
  image.add("333.88.99");
  CHECK(image.asked("222.55.66") == "/usr/local/cuda/compat");
  image.add("334.88.99");
  CHECK(image.asked("222.55.66").starts_with("error: more than one libcuda.so.*.*"));
}

TEST_CASE("a libcuda that is none, or whose note is none, is an error", "[compat]") {
  {
    const CompatImage image;
    image.directory.write("usr/local/cuda/compat/libcuda.so.333.1", "text");
    CHECK(image.asked("222.55.66").find("libcuda.so.333.1: read the library: it is no ELF file") != std::string::npos);
  }
  {
    const CompatImage image;
    image.add("333.1", "{\"Driver\": [");
    CHECK(image.asked("222.55.66").find("no JSON object") != std::string::npos);
  }
}
