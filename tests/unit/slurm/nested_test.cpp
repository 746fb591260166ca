// What goes with an srun from one container to the next?
#include "hooks/slurm/nested.hpp"

#include <catch2/catch.hpp>

#include "common/protocol/slurm_inside.hpp"
#include "hooks/slurm/messages.hpp"

using namespace situla;

namespace {

Environment environment(std::initializer_list<std::pair<const char*, const char*>> entries) {
  Environment made;
  for (const auto& [name, value] : entries) made.set(name, value);
  return made;
}

const std::string kDigest = "sha256:" + std::string(64, 'a');

OuterContainer outer(const std::string& image) {
  OuterContainer made{{}, "/home/me", kDigest};
  made.spec.image = image;
  return made;
}

}  // namespace

TEST_CASE("the same image, whatever its tag means by then") {
  const auto image = [](const OuterContainer& from) {
    const ContainerSpec spec = same_container(from, "/", {});
    return spec.image + " " + spec.pinned;
  };
  CHECK(image(outer("ubuntu:24.04")) == "ubuntu:24.04 " + kDigest);
  CHECK(image(outer("me@reg.test#a/b")) == "me@reg.test#a/b " + kDigest);
  CHECK(image(outer("a@" + kDigest)) == "a@" + kDigest + " ");
  OuterContainer pinned = outer("a");
  pinned.spec.pinned = "sha256:" + std::string(64, 'b');
  CHECK(image(pinned) == "a " + pinned.spec.pinned);
  CHECK(image(outer("./x.sqsh")) == "/home/me/./x.sqsh ");
  CHECK(image(outer("/x.sqsh")) == "/x.sqsh ");
  CHECK(image(outer("dockerd://x")) == "dockerd://x ");
  CHECK(image(outer("")) == " ");
}

TEST_CASE("mounts and options go with it, what belongs to the step alone does not") {
  OuterContainer made = outer("a");
  made.spec.name = "n";
  made.spec.name_flag = NameFlag::create;
  made.spec.directory = "pyxis_n";
  made.spec.save = "/x.sqsh";
  made.spec.remap_root = Tristate::yes;
  for (const auto& [kind, source] : {std::pair{MountOption::Kind::bind, "data"},
                                     {MountOption::Kind::bind, "$X/data"},
                                     {MountOption::Kind::bind, "/abs"},
                                     {MountOption::Kind::script, "/spool/script"}}) {
    MountOption mount;
    mount.kind = kind;
    mount.source = source;
    made.spec.mounts.push_back(mount);
  }
  const ContainerSpec spec = same_container(
      made, "/w",
      environment({{"PATH", "/bin"}, {"SLURM_NTASKS", "1"}, {"BASH_FUNC_x%%", "()"}, {"MINE", "1"}, {"_", "x"}}));
  CHECK(spec.name == "n");
  CHECK(spec.name_flag == NameFlag::automatic);
  CHECK(spec.directory.empty());
  CHECK(spec.save.empty());
  CHECK(spec.remap_root == Tristate::yes);
  CHECK(spec.workdir == "/w");
  CHECK(spec.keep_env == std::vector<std::string>{"PATH", "MINE"});
  REQUIRE(spec.mounts.size() == 3);
  CHECK(spec.mounts[0].source == "/home/me/data");
  CHECK(spec.mounts[1].source == "$X/data");
  CHECK(spec.mounts[2].source == "/abs");
}

TEST_CASE("a command of the host has nothing of the container that would change what it is") {
  const Environment inside = environment({{"PATH", "/c"},
                                          {"HOME", "/root"},
                                          {"LD_PRELOAD", "/evil.so"},
                                          {"GCONV_PATH", "/evil"},
                                          {"SLURM_CONF", "/evil"},
                                          {"SITULA_SLURM_INSIDE", "@x"},
                                          {"MINE", "1"},
                                          {"_SLURM_SPANK_OPTION_situla_container_image", "x"},
                                          {"SLURM_JOB_ID", "7"}});
  const Environment outside = environment({{"PATH", "/h"}, {"HOME", "/home/me"}, {"SLURM_CONF", "/etc/slurm.conf"}});
  const Environment squeue = host_environment("squeue", inside, outside, "");
  for (const char* gone : {"LD_PRELOAD", "GCONV_PATH", "SITULA_SLURM_INSIDE",
                           "_SLURM_SPANK_OPTION_situla_container_image", "SITULA_KEPT_LD_PRELOAD", "SLURM_OVERLAP"})
    CHECK(!squeue.has(gone));
  CHECK(squeue.get("SLURM_CONF") == "/etc/slurm.conf");
  CHECK(squeue.get("SLURM_JOB_ID") == "7");
  CHECK(squeue.get("MINE") == "1");
  const Environment srun = host_environment("srun", inside, outside, "");
  CHECK(srun.get("SITULA_KEPT_LD_PRELOAD") == "/evil.so");
  CHECK(!srun.has("LD_PRELOAD"));
  CHECK(srun.get("PATH") == "/c");
  CHECK(srun.get("SLURM_OVERLAP") == "1");
  const Environment sbatch = host_environment("sbatch", inside, outside, "");
  CHECK(sbatch.get("PATH") == "/h");
  CHECK(sbatch.get("HOME") == "/home/me");
  CHECK(!sbatch.has("SITULA_KEPT_LD_PRELOAD"));
  CHECK(host_environment("squeue", inside, {}, "/x.conf").get("SLURM_CONF") == "/x.conf");
  CHECK(!host_environment("squeue", inside, {}, "").has("SLURM_CONF"));
}

TEST_CASE("where a step listens, as a variable") {
  SlurmDoor door;
  door.address = std::string(
      "\0"
      "00b3f",
      6);
  for (size_t i = 0; i < door.token.size(); ++i) door.token.at(i) = static_cast<uint8_t>(i * 17);
  const auto back = SlurmDoor::parse(door.text());
  REQUIRE(back);
  CHECK(back->address == door.address);
  CHECK(back->token == door.token);
  for (const char* wrong : {"", "@", "00b3f:AAAA", "@00b3f:AAAA", "@00b3f", "@00b3f:!!"})
    CHECK(!SlurmDoor::parse(wrong));
}

TEST_CASE("messages of commands") {
  using namespace situla::slurm_line;
  const auto back = slurm_line::decode(slurm_line::encode(Open{"/x", true}));
  REQUIRE(back);
  CHECK(std::get<Open>(*back).path == "/x");
  CHECK(!slurm_line::decode(slurm_line::encode(Ended{1, 2}) + "x"));
  CHECK(!slurm_line::decode(""));
  Request request;
  request.command = "srun";
  request.arguments = {"a", ""};
  request.limits = {1, UINT64_MAX};
  const auto same = decode_request(encode_request(request));
  REQUIRE(same);
  CHECK(same->arguments == request.arguments);
  CHECK(same->limits == request.limits);
  request.arguments = {std::string("a\0b", 3)};
  CHECK(!decode_request(encode_request(request)));
}
