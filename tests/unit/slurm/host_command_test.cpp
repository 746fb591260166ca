// Does each path of a Slurm command line mean what host_command.hpp says?
#include "hooks/slurm/host_command.hpp"

#include <cerrno>
#include <map>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/socket.hpp"
#include "hooks/slurm/outside.hpp"

using namespace situla;
using slurm_line::Request;

namespace {

using Words = std::vector<std::string>;
constexpr const char* kFile = "/proc/self/fd/10";

/// A container that has /data from the host's /lustre/data, and its own /work, where things are typed.
struct Container {
  std::map<std::string, std::string> files = {{"job.sh", "#!/bin/sh\n"}};
  std::map<std::string, std::optional<std::string>> directories = {{".", std::nullopt},
                                                                   {"/work", std::nullopt},
                                                                   {"/data", "/lustre/data"},
                                                                   {"/data/logs", "/lustre/data/logs"},
                                                                   {"/", std::nullopt}};
  std::string directory = "/work";
  Words environment = {};
  bool batch = true, dropped = false;

  [[nodiscard]] Result<HostCommand> run(const std::string& command, const Words& arguments) const {
    ContainerFiles container;
    container.open = [this](const std::string& path) -> Result<UniqueFd> {
      const auto found = files.find(path);
      if (found == files.end()) return fail_errno(ENOENT, "open " + path);
      TRY_ASSIGN(UniqueFd file, memory_file("file"));
      TRY(write_memory(file.get(), found->second));
      return file;
    };
    container.host_path = [this](const std::string& path) -> Result<std::optional<std::string>> {
      const auto found = directories.find(path);
      if (found == directories.end()) return fail_errno(ENOENT, "open " + path);
      return found->second;
    };
    Request request;
    request.command = command;
    request.arguments = arguments;
    request.directory = directory;
    request.environment = environment;
    return host_command(request, container, {batch, dropped});
  }

  /// What is wrong, or the first word.
  [[nodiscard]] std::string first_word(const std::string& command, const Words& arguments) const {
    return words(command, arguments).at(0);
  }
  [[nodiscard]] Words words(const std::string& command, const Words& arguments) const {
    auto made = run(command, arguments);
    return made ? made->arguments : Words{made.error().message()};
  }
};

Container on_data() {
  Container container;
  container.directory = "/data";
  container.directories["."] = "/lustre/data";
  return container;
}

}  // namespace

TEST_CASE("where srun writes is on the host") {
  const Container inside;
  CHECK(inside.words("srun", {"-o", "/data/x", "a"}) == Words{"--output=/lustre/data/x", "a"});
  CHECK(inside.words("srun", {"--error=/data/logs/%j-%t", "a"}) == Words{"--error=/lustre/data/logs/%j-%t", "a"});
  CHECK(inside.words("srun", {"--error=/data/%j/%t", "a"}) == Words{"--error=/lustre/data/%j/%t", "a"});
  CHECK(inside.words("srun", {"--output=none", "-e", "1", "-i", "all", "a"}) ==
        Words{"--output=none", "-e", "1", "-i", "all", "a"});
  CHECK(inside.words("srun", {"--output=/dev/null", "a"}) == Words{"--output=/dev/null", "a"});
  CHECK(inside.words("srun", {"-o", "x", "a"}) ==
        Words{"--output=x: /work is in the container alone, and Slurm writes on the host"});
  CHECK(inside.words("srun", {"-o", "/nowhere/x", "a"}) == Words{"open /nowhere: No such file or directory"});
  CHECK(on_data().words("srun", {"-o", "x", "a"}) == Words{"--output=/lustre/data/x", "a"});
  CHECK(on_data().words("srun", {"-luo", "x", "a"}) == Words{"-lu", "--output=/lustre/data/x", "a"});
  CHECK(inside.words("srun", {"-o", "-", "-e", "NONE", "a"}) == Words{"-o", "-", "-e", "NONE", "a"});
  CHECK(on_data().words("srun", {"a", "-o", "x"}) == Words{"a", "-o", "x"});
}

TEST_CASE("what Slurm reads is the container's") {
  Container inside;
  inside.files["/work/conf"] = "0 a\n";
  CHECK(inside.words("srun", {"-i", "/work/conf", "a"}) == Words{std::string("--input=") + kFile, "a"});
  CHECK(inside.words("srun", {"--multi-prog", "/work/conf", "x"}) == Words{"--multi-prog", kFile, "x"});
  CHECK(inside.words("srun", {"-w", "node1", "a"}) == Words{"-w", "node1", "a"});
  CHECK(inside.words("srun", {"-w", "/work/conf", "a"}) == Words{std::string("--nodelist=") + kFile, "a"});
  inside.files["/dev/fd/63"] = "of a process substitution";
  CHECK(inside.words("srun", {"-i", "/dev/fd/63", "a"}) == Words{std::string("--input=") + kFile, "a"});
  CHECK(inside.words("srun", {"-i", "/dev/null", "a"}) == Words{"-i", "/dev/null", "a"});
  CHECK(inside.words("srun", {"-i", "/work/none", "a"}) ==
        Words{"--input=/work/none: open /work/none: No such file or directory"});
  const auto made = inside.run("srun", {"--bbf=/work/conf", "-F", "/work/conf", "a"});
  REQUIRE(made);
  CHECK(made->files.size() == 2);
  CHECK(made->arguments == Words{"--bbf=/proc/self/fd/10", "--nodefile=/proc/self/fd/11", "a"});
}

TEST_CASE("srun runs in the same container unless it is told otherwise") {
  const Container inside;
  CHECK(inside.run("srun", {"a"})->same_container);
  CHECK(inside.run("srun", {"--container-mounts=/x", "a"})->same_container);
  for (const char* other : {"--container-image=x", "--container-name=x", "--environment=x", "--no-container"})
    CHECK(!inside.run("srun", {other, "a"})->same_container);
  CHECK(!inside.run("sbatch", {"-D", "/data", "job.sh"})->same_container);
  Container dropped;
  dropped.dropped = true;
  CHECK(!dropped.run("srun", {"a"})->same_container);
  CHECK(inside.first_word("srun", {"--bcast", "a"}).starts_with("--bcast is not for containers"));
}

TEST_CASE("--chdir is a directory of the container for tasks there, and of the host for others") {
  const Container inside;
  auto made = inside.run("srun", {"-D", "/work", "a"});
  REQUIRE(made);
  CHECK(made->workdir == "/work");
  CHECK(made->directory.empty());
  CHECK(made->arguments == Words{"a"});
  made = inside.run("srun", {"--chdir=/data", "a"});
  CHECK(made->workdir == "/data");
  CHECK(made->directory == "/lustre/data");
  CHECK(inside.run("srun", {"a"})->workdir == "/work");
  CHECK(inside.words("srun", {"--no-container", "-D", "/data", "a"}) ==
        Words{"--no-container", "--chdir=/lustre/data", "a"});
  CHECK(inside.first_word("srun", {"--no-container", "-D", "/work", "a"})
            .starts_with("--chdir=/work: /work is in the container alone"));
}

TEST_CASE("a batch job begins on the host, with the script of the container") {
  Container inside = on_data();
  CHECK(inside.words("sbatch", {"job.sh", "x"}) == Words{"--job-name=job.sh", kFile, "x"});
  CHECK(inside.words("sbatch", {"-J", "n", "job.sh"}) == Words{"-J", "n", kFile});
  CHECK(inside.words("sbatch", {"--wrap", "a"}) == Words{"--wrap", "a"});
  CHECK(inside.words("sbatch", {"-n2"}) == Words{"-n2"});
  CHECK(inside.words("sbatch", {"none.sh"}) == Words{"open none.sh: No such file or directory"});
  inside.files["job.sh"] = "#!/bin/sh\n#SBATCH -N1 -J mine\n";
  CHECK(inside.words("sbatch", {"job.sh"}) == Words{kFile});
  inside.environment = {"PATH=/bin:/opt", "SBATCH_JOB_NAME=x"};
  inside.files["/opt/other.sh"] = "";
  CHECK(inside.words("sbatch", {"other.sh"}) == Words{kFile});
  CHECK(Container().words("sbatch", {"job.sh"}) ==
        Words{"the working directory of the job: /work is in the container alone, and Slurm writes on the host"});
  CHECK(Container().words("sbatch", {"-D", "/data", "job.sh"}) ==
        Words{"--job-name=job.sh", "--chdir=/lustre/data", kFile});
}

TEST_CASE("what a batch job says of its directory itself counts; who asks about sbatch needs none") {
  Container inside;
  CHECK(inside.words("sbatch", {"--version"}) == Words{"--version"});
  CHECK(inside.words("sbatch", {"-h"}) == Words{"-h"});
  inside.files["job.sh"] = "#!/bin/sh\n#SBATCH --chdir=/data\n";
  CHECK(inside.words("sbatch", {"-J", "n", "-o", "log", "job.sh"}) == Words{"-J", "n", "-o", "log", kFile});
  inside.directories.erase(".");
  CHECK(inside.words("squeue", {}).empty());
  CHECK(inside.words("sbatch", {"-D", "/data", "-o", "x/%j", "-e", "/data/y", "--wrap=a"}) ==
        Words{"--chdir=/lustre/data", "-o", "x/%j", "--error=/lustre/data/y", "--wrap=a"});
}

TEST_CASE(
    "a step shares with the one that it is typed in, unless something else is said; in a batch script none does") {
  Container inside;
  CHECK(inside.words("srun", {"a"}) == Words{"a"});
  inside.batch = false;
  CHECK(inside.words("srun", {"a"}) == Words{"--overlap", "a"});
  for (const char* other : {"--overlap", "--exact", "--exclusive"})
    CHECK(inside.words("srun", {other, "a"}) == Words{other, "a"});
}

TEST_CASE("variables of --export are those inside; parts of heterogeneous jobs are refused") {
  const Container inside;
  CHECK(inside.words("srun", {"--export=ALL,A=1,B,SLURM_X=2", "a"}) ==
        Words{"--export=ALL,SITULA_KEPT_A=1,SITULA_KEPT_B,SLURM_X=2", "a"});
  CHECK(inside.words("srun", {"--export", "A='x,y',B=1", "a"}) ==
        Words{"--export=SITULA_KEPT_A='x,y',SITULA_KEPT_B=1", "a"});
  CHECK(inside.words("srun", {"--no-container", "--export=A", "a"}) == Words{"--no-container", "--export=A", "a"});
  CHECK(inside.words("srun", {"--export=all,A=1", "a"}) == Words{"--export=all,SITULA_KEPT_A=1", "a"});
  for (const char* command : {"srun", "sbatch", "salloc"}) {
    INFO(command);
    CHECK(inside.first_word(command, {"-n1", ":", "b"}).starts_with("the parts of a heterogeneous job"));
    CHECK(inside.first_word(command, {"--comment", ":", "job.sh"}) != "the parts of a heterogeneous job");
  }
  CHECK(inside.first_word("srun", {"a", ":", "b"}).starts_with("the parts of a heterogeneous job"));
  CHECK(inside.run("sbatch", {"-D", "/data", "job.sh", ":"}));
  CHECK(inside.run("salloc", {"sh", "-c", ":"}));
  CHECK(inside.words("srun", {"--comment", ":", "a"}) == Words{"--comment", ":", "a"});
  CHECK(inside.words("squeue", {":"}) == Words{":"});
}

TEST_CASE("salloc's command stays inside") {
  const Container inside;
  auto made = inside.run("salloc", {"-N1", "-D", "/data", "make", "-j4"});
  REQUIRE(made);
  CHECK(made->arguments == Words{"-N1"});
  REQUIRE(made->inside);
  CHECK(made->inside->command == Words{"make", "-j4"});
  CHECK(made->inside->directory == "/data");
  CHECK(inside.run("salloc", {})->inside->command.empty());
  CHECK(!inside.run("salloc", {"--no-shell"})->inside);
}

TEST_CASE("sbcast takes from the container and writes on the host") {
  Container inside;
  inside.files["prog"] = "x";
  CHECK(inside.words("sbcast", {"-f", "prog", "/data/prog"}) == Words{"-f", kFile, "/lustre/data/prog"});
  CHECK(inside.first_word("sbcast", {"prog", "/work/prog"}).starts_with("the destination: /work is in the container"));
  CHECK(inside.words("squeue", {"-o", "%i"}) == Words{"-o", "%i"});
}

TEST_CASE("a directory's place on the host, by the mounts of both") {
  const auto container = parse_mount_table(
      "10 1 0:50 / / rw - overlay situla rw\n"
      "11 10 8:1 /srv/data /data rw - ext4 /dev/sda1 rw\n"
      "12 11 8:1 /srv/other /data/other rw - ext4 /dev/sda1 rw\n");
  const auto host = parse_mount_table(
      "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "2 1 8:1 /srv /mnt/srv rw - ext4 /dev/sda1 rw\n"
      "3 1 8:2 /srv /mnt/two rw - ext4 /dev/sda2 rw\n");
  CHECK(host_candidates(container, 11, "/data/x", host) == Words{"/srv/data/x", "/mnt/srv/data/x"});
  CHECK(host_candidates(container, 11, "/data", host) == Words{"/srv/data", "/mnt/srv/data"});
  CHECK(host_candidates(container, 12, "/data/other/y", host) == Words{"/srv/other/y", "/mnt/srv/other/y"});
  CHECK(host_candidates(container, 10, "/x", host).empty());
  CHECK(host_candidates(container, 99, "/x", host).empty());
  CHECK(host_candidates(container, 11, "/database", host).empty());
}
