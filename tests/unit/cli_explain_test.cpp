// The manual's page about errors, and the command that prints its sections.
#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/report/manual.hpp"
#include "hooks/cli/tool.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

struct Explained {
  int status;
  std::string out, err;
};

Explained explain(std::vector<std::string> words) {
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
  CHECK(cli::manual_summary(ErrorCode::site_config).find("situla.toml") != std::string::npos);
}

TEST_CASE("explain prints the section of a code, also as the message shows it") {
  const Explained said = explain({"registry-login"});
  CHECK(said.status == 0);
  CHECK(said.out == cli::manual_section(ErrorCode::registry_login, 80));
  CHECK(explain({"[registry-login]"}).out == said.out);
}

TEST_CASE("explain without a word lists the codes; a wrong one is an error with the one that was meant") {
  const Explained list = explain({});
  CHECK(list.status == 0);
  CHECK(list.out.starts_with("image-name            What was written is not the name of an image\n"));
  CHECK(std::count(list.out.begin(), list.out.end(), '\n') == static_cast<int>(last_of(ErrorCode{})));
  const Explained wrong = explain({"registry-logn"});
  CHECK(wrong.status == 1);
  CHECK_THAT(wrong.err, Catch::StartsWith("[ERROR] explain registry-logn: there is no such code [option]\nhint: ") &&
                            Catch::Contains("registry-login"));
}

TEST_CASE("a word that begins with a digit is a job's or a step's number; options are for these") {
  const Explained wrong = explain({"12x"});
  CHECK(wrong.status == 1);
  CHECK_THAT(wrong.err, Catch::StartsWith("[ERROR] explain 12x: not the number of a job or a step [option]\nhint: "));
  CHECK(explain({"12.x"}).status == 1);
  const Explained code = explain({"--json", "registry-login"});
  CHECK(code.status == 1);
  CHECK_THAT(code.err, Catch::Contains("are for the steps of a job [option]"));
  const test::TempDir dir;
  const Explained broken = explain({"--records", dir.write("records", "srun: hello\n"), "12"});
  CHECK(broken.status == 1);
  CHECK_THAT(broken.err, Catch::Contains("records: line 1: not JSON [wrong-input]"));
}

TEST_CASE("the records of other nodes are told and drawn as this node's") {
  const test::TempDir dir;
  const std::string file =
      dir.write("records", R"({"record":1,"job":4294967295,"step":0,"uid":1,"node":"far","phases":[],)"
                           R"("failure":{"code":"registry-login","text":"no","hint":"log in"}})"
                           "\n");
  const Explained told = explain({"--records", file, "4294967295"});
  CHECK(told.status == 0);
  CHECK_THAT(told.out,
             Catch::StartsWith("step 4294967295.0 on far: failed [registry-login]\n"
                               "  [ERROR] no [registry-login]\n  hint: log in\n") &&
                 Catch::EndsWith("\n[registry-login]\n" + cli::manual_section(ErrorCode::registry_login, 80)));
  const std::string picture = dir / "job.svg";
  CHECK(explain({"--records", file, "--svg", picture, "4294967295.0"}).out.empty());
  CHECK_THAT(read_file(picture).value(), Catch::EndsWith("</svg>\n"));
  CHECK_THAT(explain({"--records", file, "--svg", "-", "4294967295"}).out, Catch::StartsWith("<svg "));
}
