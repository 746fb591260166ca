// The manual's page about errors, and the command that prints its sections.
#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "hooks/cli/report/manual.hpp"
#include "hooks/cli/tool.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

struct Outcome {
  int status;
  std::string out, err;
};

Outcome explain(std::vector<std::string> words) {
  const test::TempDir dir;
  Environment environment;
  environment.set("HOME", dir.path());
  environment.set("ENROOT_SYSCONF_PATH", dir / "etc");
  words.insert(words.begin(), "explain");
  std::istringstream in;
  std::ostringstream out, err;
  const int status = cli::run_tool({"situla", std::move(words), environment}, {in, out, err});
  return {status, out.str(), err.str()};
}

}  // namespace

TEST_CASE("each code has a section in the manual, and each section a code") {
  std::set<std::string_view> sections;
  for (const std::string_view line : split(cli::errors_manual(), '\n'))
    if (line.starts_with("## ")) CHECK(sections.insert(line.substr(3)).second);
  for (int i = 1; i <= static_cast<int>(last_of(ErrorCode{})); ++i) {
    const std::string_view name = to_string(static_cast<ErrorCode>(i));
    CAPTURE(name);
    CHECK(sections.erase(name) == 1);
    CHECK(cli::manual_section(static_cast<ErrorCode>(i), 80).size() > 20);
  }
  CHECK(sections.empty());
  CHECK(cli::manual_section(ErrorCode::none, 80).empty());
}

TEST_CASE("a section is plain text of lines that fit") {
  const std::string text = cli::manual_section(ErrorCode::store_full, 80);
  CHECK(text.starts_with("The node's image store has no room for this image"));
  CHECK(text.find("Administrators: store_max, store_reserve, bytes_per_user in situla.toml(5).") == std::string::npos);
  for (const std::string_view line : split(text, '\n')) CHECK(line.size() <= 80);
  const std::string whole = cli::manual_section(ErrorCode::store_full, SIZE_MAX);
  CHECK(whole.ends_with("Administrators: store_max, store_reserve, bytes_per_user in situla.toml(5).\n"));
  CHECK(cli::manual_section(ErrorCode::gpu_requirement, SIZE_MAX).find("(NVIDIA_REQUIRE_* in the image)") !=
        std::string::npos);
  CHECK(cli::manual_summary(ErrorCode::container_exists) == "There is a container of that name");
}

TEST_CASE("explain prints the section of a code, also as the message shows it") {
  const Outcome said = explain({"registry-login"});
  CHECK(said.status == 0);
  CHECK(said.out == cli::manual_section(ErrorCode::registry_login, 80));
  CHECK(explain({"[registry-login]"}).out == said.out);
}

TEST_CASE("explain without a word lists the codes; a wrong one is an error with the one that was meant") {
  const Outcome list = explain({});
  CHECK(list.status == 0);
  CHECK(list.out.starts_with("image-name            What was written is not the name of an image\n"));
  CHECK(std::count(list.out.begin(), list.out.end(), '\n') == static_cast<int>(last_of(ErrorCode{})));
  const Outcome wrong = explain({"registry-logn"});
  CHECK(wrong.status == 1);
  CHECK_THAT(wrong.err, Catch::StartsWith("[ERROR] explain registry-logn: there is no such code [option]\nhint: ") &&
                            Catch::Contains("registry-login"));
}
