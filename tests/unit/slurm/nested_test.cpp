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
    const ContainerSpec spec = same_container(from, "/");
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
  CHECK(image(outer("oci:layout:12")) == "oci:/home/me/layout:12 ");
  CHECK(image(outer("docker-archive:/a/b.tar:x:1")) == "docker-archive:/a/b.tar:x:1 ");
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
                                     {MountOption::Kind::bind, "docker://a:1"},
                                     {MountOption::Kind::script, "/spool/script"}}) {
    MountOption mount;
    mount.kind = kind;
    mount.source = source;
    made.spec.mounts.push_back(mount);
  }
  made.spec.keep_env = {"MINE"};
  const ContainerSpec spec = same_container(made, "/w");
  CHECK(spec.name == "n");
  CHECK(spec.name_flag == NameFlag::automatic);
  CHECK(spec.directory.empty());
  CHECK(spec.save.empty());
  CHECK(spec.remap_root == Tristate::yes);
  CHECK(spec.workdir == "/w");
  CHECK(spec.keep_env == std::vector<std::string>{"MINE"});
  REQUIRE(spec.mounts.size() == 4);
  CHECK(spec.mounts[0].source == "/home/me/data");
  CHECK(spec.mounts[1].source == "$X/data");
  CHECK(spec.mounts[2].source == "/abs");
  CHECK(spec.mounts[3].source == "docker://a:1");
}

TEST_CASE("a command of the host has nothing of the container that would change what it is") {
  const Environment inside = environment({{"PATH", "/c"},
                                          {"HOME", "/root"},
                                          {"LD_PRELOAD", "/evil.so"},
                                          {"GCONV_PATH", "/evil"},
                                          {"BASH_ENV", "/etc/image.rc"},
                                          {"SLURM_CONF", "/evil"},
                                          {"SITULA_SLURM_INSIDE", "@x"},
                                          {"SITULA_CONTAINER_IMAGE", "of the step"},
                                          {"PYXIS_CONTAINER_MOUNTS", "/set/inside"},
                                          {"MINE", "1"},
                                          {"_SLURM_SPANK_OPTION_situla_container_image", "x"},
                                          {"SLURM_JOB_ID", "7"}});
  const Environment outside = environment({{"PATH", "/h"},
                                           {"HOME", "/home/me"},
                                           {"SITULA_CONTAINER_IMAGE", "of the step"},
                                           {"LD_LIBRARY_PATH", "/h/gcc/lib"},
                                           {"SLURM_CONF", "/etc/slurm.conf"},
                                           {"SLURM_JOB_ID", "7"}});
  const Environment host = host_environment(false, inside, outside, "");
  for (const char* gone : {"LD_PRELOAD", "GCONV_PATH", "BASH_ENV", "SITULA_SLURM_INSIDE", "SITULA_CONTAINER_IMAGE",
                           "_SLURM_SPANK_OPTION_situla_container_image", "SITULA_KEPT_LD_PRELOAD", "SITULA_KEPT_"})
    CHECK(!host.has(gone));
  CHECK(host.get("SLURM_CONF") == "/etc/slurm.conf");
  CHECK(host.get("SLURM_JOB_ID") == "7");
  CHECK(host.get("MINE") == "1");
  CHECK(host.get("PATH") == "/h");
  CHECK(host.get("HOME") == "/home/me");
  CHECK(host.get("LD_LIBRARY_PATH") == "/h/gcc/lib");
  CHECK(host.get("PYXIS_CONTAINER_MOUNTS") == "/set/inside");
  CHECK(host_environment(false, inside, {}, "/x.conf").get("SLURM_CONF") == "/x.conf");
  CHECK(!host_environment(false, inside, {}, "").has("SLURM_CONF"));
  // Of an allocation that was made inside: what salloc said of its steps holds.
  Environment other = inside;
  other.set("SLURM_JOB_ID", "8");
  CHECK(host_environment(false, other, outside, "").has("_SLURM_SPANK_OPTION_situla_container_image"));
}

TEST_CASE("who makes the same container again has what was outside; its tasks have what is inside") {
  const Environment inside = environment({{"PATH", "/c"},
                                          {"HOME", "/root"},
                                          {"LD_PRELOAD", "/x.so"},
                                          {"EMPTY", ""},
                                          {"SLURM_NTASKS", "2"},
                                          {"CUDA_VISIBLE_DEVICES", "0"},
                                          {"HOSTNAME", "node1"},
                                          {"PMIX_RANK", "0"},
                                          {"PMIX_MCA_gds", "hash"},
                                          {"SLINGSHOT_VNIS", "7"},
                                          {"PALS_RANKID", "3"},
                                          {"FI_CXI_COLL_JOB_ID", "5"},
                                          {"FI_CXI_RX_MATCH_MODE", "hybrid"},
                                          {"SLURM_EXPORT_ENV", "ALL,DATA=/new,SLURM_X"},
                                          {"ENROOT_X", "1"}});
  const Environment outside =
      environment({{"PATH", "/h"}, {"HOME", "/home/me"}, {"ENROOT_DATA_PATH", "/d"}, {"SLURM_NTASKS", "1"}});
  const Environment made = host_environment(true, inside, outside, "");
  CHECK(made.get("PATH") == "/h");
  CHECK(made.get("HOME") == "/home/me");
  CHECK(made.get("ENROOT_DATA_PATH") == "/d");
  CHECK(made.get("SLURM_NTASKS") == "2");
  CHECK(made.get("CUDA_VISIBLE_DEVICES") == "0");
  CHECK(made.has("SITULA_KEPT_"));
  CHECK(made.get("SITULA_KEPT_PATH") == "/c");
  CHECK(made.get("SITULA_KEPT_HOME") == "/root");
  CHECK(made.get("SITULA_KEPT_LD_PRELOAD") == "/x.so");
  CHECK(made.get("SITULA_KEPT_EMPTY") == "");
  CHECK(made.get("SITULA_KEPT_PMIX_MCA_gds") == "hash");
  CHECK(made.get("SITULA_KEPT_FI_CXI_RX_MATCH_MODE") == "hybrid");
  CHECK(made.get("SLURM_EXPORT_ENV") == "ALL,SITULA_KEPT_DATA=/new,SLURM_X");
  for (const char* gone : {"LD_PRELOAD", "SITULA_KEPT_HOSTNAME", "SITULA_KEPT_CUDA_VISIBLE_DEVICES",
                           "SITULA_KEPT_PMIX_RANK", "SITULA_KEPT_ENROOT_X", "SITULA_KEPT_SLINGSHOT_VNIS",
                           "SITULA_KEPT_PALS_RANKID", "SITULA_KEPT_FI_CXI_COLL_JOB_ID"})
    CHECK(!made.has(gone));
}

TEST_CASE("a script gets rid of sbatch's image by either of its variables") {
  const std::string prefix = "SLURM_SPANK__SLURM_SPANK_OPTION_", image = "_container_image";
  Environment outside;
  for (const char* plugin : {"situla", "pyxis"}) outside.set(prefix + plugin + image, "x");
  CHECK(!has_dropped_image(outside, outside));
  CHECK(!has_dropped_image({}, {}));
  for (const char* plugin : {"situla", "pyxis"}) {
    Environment inside = outside;
    inside.unset(prefix + plugin + image);
    CHECK(has_dropped_image(inside, outside));
  }
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
