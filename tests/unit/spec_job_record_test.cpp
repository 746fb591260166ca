#include <string>

#include <catch2/catch.hpp>

#include "common/spec/job_record.hpp"

using namespace situla;

namespace {

const std::string kDigest = "sha256:" + std::string(64, 'a');
const std::string kOther = "sha256:" + std::string(64, 'b');

}  // namespace

TEST_CASE("a job's record says an image's name, digest, size and source in one word") {
  CHECK(job_record_word({"docker://registry.test/pytorch:24.10-py3", kDigest, 729808896, "registry"}) ==
        "situla: docker://registry.test/pytorch:24.10-py3 " + kDigest + " 696.0MiB registry;");
  CHECK(job_record_word({"nvcr.io#nvidia/pytorch", kDigest, 0, "store"}) ==
        "situla: nvcr.io#nvidia/pytorch " + kDigest + " store;");
  CHECK(job_record_word({"./a.sqsh", "", 0, "file"}) == "situla: ./a.sqsh file;");
  CHECK(job_record_word({"", "", 0, "file"}) == "situla: - file;");
}

TEST_CASE("nothing in a foreign name gets through but letters, digits and a few marks") {
  CHECK(job_record_word({"a b=c;d\"e'f\ng\\h%i", "", 0, "file"}) == "situla: a%20b%3dc%3bd%22e%27f%0ag%5ch%25i file;");
  CHECK(job_record_word({"\xc3\xa9\x7f\x1b[1m", "", 0, "file"}) == "situla: %c3%a9%7f%1b%5b1m file;");
  CHECK(job_record_word({std::string("a\0b", 3), "", 0, "file"}) == "situla: a%00b file;");
  CHECK(job_record_word({"x Comment=y", kDigest, 0, "a b=;"}) ==
        "situla: x%20Comment%3dy " + kDigest + " a%20b%3d%3b;");
  // All of it is a word again.
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  for (size_t at = 0; at < every.size(); ++at) {
    const std::string word = job_record_word({every.substr(at) + every.substr(0, at), kDigest, 1, "registry"});
    CHECK(is_job_record_word(word));
    CHECK(word.find('=') == std::string::npos);
  }
}

TEST_CASE("a digest is sha256 and 64 digits, or is left out") {
  for (const std::string& digest : {std::string("sha256:12"), "sha256:" + std::string(64, 'G'),
                                    "sha512:" + std::string(64, 'a'), kDigest + " x", kDigest + "a"})
    CHECK(job_record_word({"a", digest, 0, "store"}) == "situla: a store;");
}

TEST_CASE("a long name is cut, and not in the middle of an escaped byte") {
  const std::string word = job_record_word({std::string(300, 'a'), "", 0, "file"});
  CHECK(word == "situla: " + std::string(253, 'a') + "... file;");
  for (size_t before = 250; before < 256; ++before) {
    const std::string cut = job_record_word({std::string(before, 'a') + "====", "", 0, "file"});
    CHECK(cut.size() <= 256 + std::string("situla:  file;").size());
    CHECK(cut.find("%.") == std::string::npos);
    CHECK(cut.find("%3.") == std::string::npos);
    CHECK(cut.ends_with("... file;"));
    CHECK(is_job_record_word(cut));
  }
  CHECK(job_record_word({std::string(100000, '='), kDigest, UINT64_MAX, std::string(100000, ' ')}).size() < 700);
}

TEST_CASE("what is no word of ours is not taken for one") {
  CHECK(is_job_record_word("situla: a file;"));
  CHECK(is_job_record_word("situla: a " + kDigest + " 1.0KiB store;"));
  for (const std::string& text :
       {std::string(), std::string("situla: a file"), std::string("situla: ;"), std::string("situla: file;"),
        std::string("a file;"), std::string("+=situla: a file;"), std::string("situla: a=b file;"),
        std::string("situla: a  file;"), std::string("situla: a b c d e;"), std::string("situla: a\nb file;"),
        std::string("situla: a; situla: b file;"), std::string("situla: \xc3\xa9 file;"),
        "situla: " + std::string(600, 'a') + " file;"})
    CHECK_FALSE(is_job_record_word(text));
}

TEST_CASE("the same image is said once, wherever it came from") {
  const std::string first = job_record_word({"ubuntu", kDigest, 1024, "registry"});
  CHECK(says_image(first, job_record_word({"ubuntu", kDigest, 1024, "store"})));
  CHECK(says_image("mine " + first + " more", first));
  CHECK_FALSE(says_image(first, job_record_word({"ubuntu", kOther, 1024, "store"})));
  CHECK_FALSE(says_image(first, job_record_word({"ubuntu:24.04", kDigest, 1024, "store"})));
  CHECK_FALSE(says_image(first, job_record_word({"buntu", kDigest, 1024, "store"})));
  CHECK_FALSE(says_image("", first));
  const std::string file = job_record_word({"./a.sqsh", "", 0, "file"});
  CHECK(says_image("x " + file, file));
  CHECK_FALSE(says_image("x " + file, job_record_word({"./a.sqsh2", "", 0, "file"})));
}

TEST_CASE("what a comment says stays, and there is an end to it") {
  const std::string word = job_record_word({"ubuntu", kDigest, 1024, "registry"});
  CHECK(add_image("", word) == word);
  CHECK(add_image("project \"x\" = 1;\n", word) == "project \"x\" = 1;\n " + word);
  CHECK(add_image(std::string(kMostJobComment - word.size() - 1, 'x'), word)->size() == kMostJobComment);
  const auto full = add_image(std::string(kMostJobComment - word.size(), 'x'), word);
  REQUIRE_FALSE(full);
  CHECK(full.error().kind() == ErrorKind::no_space);
  CHECK_FALSE(add_image("+=x", word));
  CHECK_FALSE(add_image("x", "situla: a=b file;"));
}

TEST_CASE("a job's number is one, or that of a part") {
  for (const char* text : {"1", "123_4", "123+1", "4294967295"}) CHECK(is_job_number(text));
  for (const char* text : {"", "_", "1_", "_1", "1_[1-3]", "1+", "1 2", "-1", "1=2", "12345678901", "1_2_3"})
    CHECK_FALSE(is_job_number(text));
}
