// Is a Slurm command line read as the command itself reads it?
#include "hooks/slurm/command_line.hpp"

#include <catch2/catch.hpp>

#include "plugin/option_table.hpp"

using namespace situla;

namespace {

using Words = std::vector<std::string>;

/// "option=value" of each option, then "|" and the rest.
Words read(std::string_view command, const Words& arguments) {
  const CommandLine line = parse_command_line(command, arguments);
  CHECK(line.words().size() >= line.rest.size());
  Words shown;
  for (const CommandWord& word : line.options)
    shown.push_back(word.has_value ? word.option + "=" + word.value : word.option);
  shown.emplace_back("|");
  shown.insert(shown.end(), line.rest.begin(), line.rest.end());
  return shown;
}

}  // namespace

TEST_CASE("where options end and the program begins") {
  CHECK(read("srun", {"-N2", "-n", "4", "hostname", "-f"}) == Words{"nodes=2", "ntasks=4", "|", "hostname", "-f"});
  CHECK(read("srun", {"--nodes", "2", "--ntasks=4", "--", "-x"}) == Words{"nodes=2", "ntasks=4", "", "|", "-x"});
  CHECK(read("srun", {"--pty", "bash"}) == Words{"pty", "|", "bash"});
  CHECK(read("srun", {"-lN2", "-", "x"}) == Words{"nodes=2", "|", "-", "x"});
  CHECK(read("srun", {"--exclusive", "a"}) == Words{"exclusive", "|", "a"});
  CHECK(read("srun", {"-I", "a"}) == Words{"", "|", "a"});
  CHECK(read("srun", {"-I5", "a"}) == Words{"", "|", "a"});
  CHECK(read("srun", {"-K1", "a"}) == Words{"", "|", "a"});
  CHECK(read("sbatch", {"-kN2", "a"}) == Words{"", "|", "a"});
  CHECK(read("srun", {"-lun", "2", "a"}) == Words{"ntasks=2", "|", "a"});
  CHECK(read("srun", {"-W", "5", "a"}) == Words{"wait=5", "|", "a"});
  CHECK(read("srun", {"--bcast", "a"}) == Words{"bcast", "|", "a"});
  CHECK(read("srun", {"--wait", "5", "a"}) == Words{"wait=5", "|", "a"});
  CHECK(read("sbatch", {"--wait", "a"}) == Words{"wait", "|", "a"});
  CHECK(read("sbatch", {"--wait-all-nodes", "1", "a"}) == Words{"wait-all-nodes=1", "|", "a"});
  CHECK(read("srun", {"-n"}) == Words{"ntasks", "|"});
  CHECK(read("srun", {}) == Words{"|"});
  CHECK(read("sbatch", {"-W", "job.sh", "-n"}) == Words{"", "|", "job.sh", "-n"});
  CHECK(read("sbatch", {"--wrap", "a b"}) == Words{"wrap=a b", "|"});
  CHECK(read("sbcast", {"-C", "-F", "4", "a", "b"}) == Words{"", "fanout=4", "|", "a", "b"});
  CHECK(read("sbcast", {"a", "-s4", "b", "--force"}) == Words{"size=4", "force", "|", "a", "b"});
  CHECK(read("sbcast", {"-s", "4", "a", "b"}) == Words{"size=4", "|", "a", "b"});
}

TEST_CASE("names that are shortened") {
  CHECK(read("srun", {"--out", "x", "a"}) == Words{"output=x", "|", "a"});
  CHECK(read("srun", {"--outp=x", "a"}) == Words{"output=x", "|", "a"});
  // Several begin like this: Slurm refuses it, and so it may say.
  CHECK(read("srun", {"--cpu", "x"}) == Words{"cpu", "|", "x"});
  CHECK(read("srun", {"--mem", "x", "a"}) == Words{"mem=x", "|", "a"});
}

TEST_CASE("what is run is what was typed") {
  const Words typed = {"-lN2", "--out", "x", "-I5", "--", "a", "-b"};
  const Words run = parse_command_line("srun", typed).words();
  CHECK(run == typed);
}

TEST_CASE("Situla's own options take a value where the plugin says so") {
  for (const OptionInfo& option : option_table())
    CHECK(takes_value("srun", option.name) == (option.argument != nullptr));
}
