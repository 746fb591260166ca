// Do the built-in hooks propose what enroot's scripts would do? COMPAT.md 6, last paragraph.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/inject/hooks.hpp"
#include "hooks/run/login.hpp"
#include "tests/support/memory_log.hpp"

namespace fs = std::filesystem;
using namespace situla;

namespace {

struct Scene {
  Scene() {
    std::string path = fs::temp_directory_path() / "situla-inject-XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
    base = path;
    fs::create_directories(base + "/root/etc");
    fs::create_directories(base + "/host/etc");
    host.set("HOME", "/home/me");
  }
  ~Scene() { (void)remove_tree(base); }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  void put(const std::string& path, const std::string& content, mode_t mode = 0644) const {
    fs::create_directories(fs::path(base + path).parent_path());
    std::ofstream(base + path) << content;
    REQUIRE(chmod((base + path).c_str(), mode) == 0);
  }
  Result<ContainerEdits> run_hook(Result<ContainerEdits> (*hook)(const HookContext&)) const {
    const RootDir root = *RootDir::open(base + "/root");
    const RootDir host_root = *RootDir::open(base + "/host");
    HookContext context{root, host_root, host, container, user, remap_root, mount_home, restrict_devices, own_ipc, log};
    context.has_range = has_range;
    return hook(context);
  }
  ContainerEdits run(Result<ContainerEdits> (*hook)(const HookContext&)) const {
    auto edits = run_hook(hook);
    if (!edits) FAIL(edits.error().text());
    return *edits;
  }
  std::string error(Result<ContainerEdits> (*hook)(const HookContext&)) const {
    const auto edits = run_hook(hook);
    return edits ? "" : edits.error().message();
  }
  static const FileChange* change(const ContainerEdits& edits, const std::string& path) {
    for (const FileChange& file : edits.files)
      if (file.path == path) return &file;
    return nullptr;
  }

  std::string base;
  mutable test::MemoryLog log;
  Environment host, container;
  UserEntry user{"me", "Me,,,", "/home/me", "/bin/bash", "us", 1000, 100};
  bool remap_root = false, mount_home = false, restrict_devices = false, own_ipc = false, has_range = false;
};

}  // namespace

TEST_CASE("shadow: generated entries first, duplicates and _apt gone, shell if the image has it") {
  Scene scene;
  scene.put("/root/etc/passwd",
            "root:x:0:0:old:/root:/bin/sh\n_apt:x:42::/:/x\nme:x:5:5::/:/x\nother:x:1000:7::/o:/x\nother:x:8:8::/:/y");
  scene.put("/root/etc/group", "root:x:0:\n_apt:x:42:\nstaff:x:50:other\n");
  ContainerEdits edits = scene.run(shadow_hook);
  CHECK(Scene::change(edits, "/etc/passwd")->content ==
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/sbin/nologin\nme:x:1000:100:Me,,,:/home/me:/bin/"
        "sh\n"
        "other:x:1000:7::/o:/x\nother:x:8:8::/:/y\n");
  CHECK(Scene::change(edits, "/etc/group")->content == "root:x:0:\nnogroup:x:65534:\nus:x:100:\nstaff:x:50:other\n");
  scene.put("/root/bin/bash", "x", 0755);
  edits = scene.run(shadow_hook);
  CHECK_THAT(Scene::change(edits, "/etc/passwd")->content, Catch::Contains("me:x:1000:100:Me,,,:/home/me:/bin/bash\n"));
  // Programs that can become it find it.
  scene.has_range = true;
  edits = scene.run(shadow_hook);
  CHECK_THAT(Scene::change(edits, "/etc/passwd")->content, Catch::Contains("_apt:x:42::/:/x\n"));
  CHECK_THAT(Scene::change(edits, "/etc/group")->content, Catch::Contains("_apt:x:42:\n"));
}

TEST_CASE("shadow: the user's other groups come last, where the image has not the same name and number") {
  Scene scene;
  scene.user.groups = {{"crew", 5000}, {"staff", 50}, {"video", 39}, {"team:x", 51}};
  scene.put("/root/etc/group", "staff:x:50:\nvideo:x:44:\nbakers:x:5000:\n");
  CHECK_THAT(Scene::change(scene.run(shadow_hook), "/etc/group")->content,
             Catch::EndsWith("bakers:x:5000:\ncrew:x:5000:me\nvideo:x:39:me\nteamx:x:51:me\n"));
}

TEST_CASE("shadow: an image with no databases at all, and a user with a hostile name") {
  Scene scene;
  scene.user.gecos = "x:0:0\nroot2:x:0:0:";
  const ContainerEdits edits = scene.run(shadow_hook);
  const std::string& passwd = Scene::change(edits, "/etc/passwd")->content;
  CHECK(std::count(passwd.begin(), passwd.end(), '\n') == 3);
}

TEST_CASE("shadow: nobody has the kernel's overflow numbers, and a missing shell gives way to the image's default") {
  Scene scene;
  scene.put("/host/proc/sys/kernel/overflowuid", "65500\n");
  scene.put("/host/proc/sys/kernel/overflowgid", "65501\n");
  const ContainerEdits edits = scene.run(shadow_hook);
  CHECK_THAT(Scene::change(edits, "/etc/passwd")->content,
             Catch::Contains("nobody:x:65500:65501:nobody:/:/sbin/nologin\n"));
  CHECK_THAT(Scene::change(edits, "/etc/group")->content, Catch::Contains("nogroup:x:65501:\n"));
  scene.put("/root/etc/login.defs", "SHELL /bin/ash\n");
  CHECK_THAT(Scene::change(scene.run(shadow_hook), "/etc/passwd")->content, Catch::Contains(":/home/me:/bin/ash\n"));
  scene.put("/root/etc/default/useradd", "SHELL=/bin/dash\n");
  CHECK_THAT(Scene::change(scene.run(shadow_hook), "/etc/passwd")->content, Catch::Contains(":/home/me:/bin/dash\n"));
}

TEST_CASE("shadow: a mail spool only where the image's settings ask for one") {
  Scene scene;
  CHECK(Scene::change(scene.run(shadow_hook), "/var/mail/me") == nullptr);
  scene.put("/root/etc/default/useradd", "CREATE_MAIL_SPOOL=yes\n");
  const ContainerEdits edits = scene.run(shadow_hook);
  REQUIRE(Scene::change(edits, "/var/mail/me") != nullptr);
  CHECK(Scene::change(edits, "/var/mail/me")->mode == 0660);
  scene.put("/root/var/mail/me", "mail\n");
  CHECK(Scene::change(scene.run(shadow_hook), "/var/mail/me") == nullptr);
}

TEST_CASE("shadow: a home directory from the skeleton, unless there is one") {
  Scene scene;
  scene.put("/root/etc/skel/.profile", "p\n");
  scene.put("/root/etc/skel/sub/file", "f\n", 0600);
  fs::create_symlink("/etc/passwd", scene.base + "/root/etc/skel/link");
  scene.put("/root/etc/passwd", "x:x:1:1::/:/x\n");
  ContainerEdits edits = scene.run(shadow_hook);
  REQUIRE(Scene::change(edits, "/home/me") != nullptr);
  CHECK(Scene::change(edits, "/home/me")->mode == 0700);
  CHECK(Scene::change(edits, "/home/me/.profile")->content == "p\n");
  CHECK(Scene::change(edits, "/home/me/sub/file")->mode == 0600);
  CHECK(Scene::change(edits, "/home/me/link")->content == "x:x:1:1::/:/x\n");
  scene.put("/root/etc/login.defs", "# c\nUMASK 022\n");
  CHECK(Scene::change(scene.run(shadow_hook), "/home/me")->mode == 0755);
  scene.put("/root/etc/login.defs", "CREATE_HOME no\n");
  CHECK(Scene::change(scene.run(shadow_hook), "/home/me") == nullptr);
  scene.put("/root/etc/login.defs", "");
  fs::create_directories(scene.base + "/root/home/me");
  edits = scene.run(shadow_hook);
  CHECK(Scene::change(edits, "/home/me/.profile") == nullptr);
}

TEST_CASE("shadow: a skeleton whose links make it endless, or with too much in it, is copied within limits") {
  Scene scene;
  scene.put("/root/etc/skel/file", std::string(100000, 'x'));
  for (const char* name : {"a", "b"}) fs::create_symlink(".", scene.base + "/root/etc/skel/" + name);
  ContainerEdits edits = scene.run(shadow_hook);
  CHECK(Scene::change(edits, "/home/me/file") != nullptr);
  CHECK(edits.files.size() == 2 + 1 + 1 + 2);
  CHECK(scene.log.text(LogLevel::warning).empty());
  for (const char* name : {"a", "b"}) fs::remove(scene.base + "/root/etc/skel/" + name);
  // One file under many names: each name is a copy.
  for (int i = 0; i < 100; ++i) fs::create_symlink("file", scene.base + "/root/etc/skel/n" + std::to_string(i));
  edits = scene.run(shadow_hook);
  size_t bytes = 0;
  for (const FileChange& file : edits.files) bytes += file.content.size();
  CHECK(bytes > size_t{7} << 20U);
  CHECK(bytes < (size_t{8} << 20U) + 10000);
  CHECK_THAT(scene.log.text(LogLevel::warning), Catch::Contains("/etc/skel, which has more than 1000 entries or 8"));
  CHECK(remove_tree(scene.base + "/root/etc/skel"));
  scene.log.messages.clear();
  for (int i = 0; i < 1001; ++i) scene.put("/root/etc/skel/n" + std::to_string(i), "");
  CHECK(scene.run(shadow_hook).files.size() == 2 + 1 + 1000);
  CHECK_THAT(scene.log.text(LogLevel::warning), Catch::Contains("1000 entries"));
  // As an image may have it in login.defs(5).
  scene.put("/root/etc/login.defs", "SKEL /\n");
  CHECK(scene.run(shadow_hook).files.size() <= 2 + 1 + 1000);
}

TEST_CASE("home: only if asked for; /root when remapped") {
  Scene scene;
  CHECK(scene.run(home_hook).mounts_after_hooks.empty());
  scene.mount_home = true;
  ContainerEdits edits = scene.run(home_hook);
  REQUIRE(edits.mounts_after_hooks.size() == 1);
  CHECK(describe(edits.mounts_after_hooks[0]) ==
        "bind /home/me on /home/me [nosuid, create directory]  (built-in hook home)");
  CHECK(edits.environment.get("HOME") == "/home/me");
  scene.remap_root = true;
  scene.host.unset("HOME");
  edits = scene.run(home_hook);
  CHECK(edits.mounts_after_hooks[0].source == "/home/me");
  CHECK(edits.mounts_after_hooks[0].target == "/root");
  CHECK(edits.environment.get("HOME") == "/root");
}

TEST_CASE("localtime: the link and the zone behind it") {
  Scene scene;
  CHECK(scene.run(localtime_hook).files.empty());
  scene.put("/host/usr/share/zoneinfo/Here", "zone");
  fs::create_symlink("/usr/share/zoneinfo/Here", scene.base + "/host/etc/localtime");
  ContainerEdits edits = scene.run(localtime_hook);
  REQUIRE(edits.files.size() == 2);
  CHECK(edits.files[0].path == "/usr/share/zoneinfo/Here");
  CHECK(edits.files[0].content == "zone");
  CHECK(edits.files[1].kind == FileChange::Kind::link);
  CHECK(edits.files[1].content == "/usr/share/zoneinfo/Here");
  scene.put("/root/usr/share/zoneinfo/Here", "its own");
  CHECK(scene.run(localtime_hook).files.size() == 1);
}

TEST_CASE("aptfix: Debian with remapped root only") {
  Scene scene;
  scene.put("/root/etc/debian_version", "12");
  CHECK(scene.run(aptfix_hook).files.empty());
  scene.remap_root = true;
  CHECK(scene.run(aptfix_hook).files.size() == 1);
  scene.has_range = true;
  CHECK(scene.run(aptfix_hook).files.empty());
}

namespace {

std::vector<std::string> described(const std::vector<MountStep>& steps) {
  std::vector<std::string> lines;
  for (const MountStep& step : steps) lines.push_back(describe(step).substr(0, describe(step).find("  (")));
  return lines;
}

}  // namespace

TEST_CASE("cgroups: the own group of every hierarchy in its mount's place, read-only") {
  Scene scene;
  scene.put("/host/proc/self/cgroup",
            "5:cpu,cpuacct:/job_7/step_0\n4:memory:/\n1:name=systemd:/other\n0::/unified/me\n");
  scene.put("/host/proc/self/mountinfo",
            "30 1 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
            "31 1 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "32 1 0:28 /unified /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  CHECK(
      described(scene.run(cgroups_hook).mounts_after_hooks) ==
      std::vector<std::string>{
          "bind /sys/fs/cgroup/cpu,cpuacct//job_7/step_0 on /sys/fs/cgroup/cpu,cpuacct [recursive, ro, nosuid, nodev, "
          "noexec, create directory, if possible]",
          "bind /sys/fs/cgroup/unified//me on /sys/fs/cgroup/unified [recursive, ro, nosuid, nodev, noexec, create "
          "directory, if possible]",
          "remount /sys/fs/cgroup [ro, nosuid, nodev, noexec, rslave, if possible]"});
  // A /sys of its own.
  fs::create_directories(scene.base + "/root/sys/fs/cgroup");
  CHECK(described(scene.run(cgroups_hook).mounts_after_hooks).at(0) ==
        "mount tmpfs on /sys/fs/cgroup [nosuid, nodev, noexec, mode=755, if possible]");
}

TEST_CASE("cgroups: in a step the group of all its tasks, whatever groups they have beneath it") {
  Scene scene;
  const auto sources = [&] {
    std::vector<std::string> found;
    for (const MountStep& step : scene.run(cgroups_hook).mounts_after_hooks)
      if (step.kind == StepKind::bind) found.push_back(step.source);
    return found;
  };
  scene.put("/host/proc/self/cgroup",
            "3:memory:/slurm/job_7/step_0/task_1\n2:freezer:/slurm/job_7/step_0\n1:pids:/task_pool\n"
            "0::/system.slice/slurmstepd.scope/job_7/step_0/user/situla\n");
  scene.put(
      "/host/proc/self/mountinfo",
      "31 1 0:27 / /cg/memory rw - cgroup cgroup rw,memory\n32 1 0:28 / /cg/freezer rw - cgroup cgroup rw,freezer\n"
      "33 1 0:29 / /cg/pids rw - cgroup cgroup rw,pids\n34 1 0:30 / /cg/unified rw - cgroup2 cgroup2 rw\n");
  CHECK(sources() == std::vector<std::string>{"/cg/memory//slurm/job_7/step_0/task_1",
                                              "/cg/freezer//slurm/job_7/step_0", "/cg/pids//task_pool",
                                              "/cg/unified//system.slice/slurmstepd.scope/job_7/step_0/user/situla"});
  scene.host.set("SLURM_STEP_ID", "0");
  CHECK(sources() == std::vector<std::string>{"/cg/memory//slurm/job_7/step_0", "/cg/freezer//slurm/job_7/step_0",
                                              "/cg/pids//task_pool",
                                              "/cg/unified//system.slice/slurmstepd.scope/job_7/step_0/user"});
}

TEST_CASE("devices: only when asked for, before what other hooks mount there") {
  Scene scene;
  CHECK(scene.run(devices_hook).mounts.empty());
  scene.restrict_devices = true;
  ContainerEdits edits = scene.run(devices_hook);
  std::vector<std::string> lines = described(edits.mounts);
  REQUIRE(lines.size() >= 13);
  CHECK(lines[0] == "unmount /dev [if possible]");
  CHECK(lines[1] == "mount tmpfs on /dev [nosuid, noexec, mode=755, slave, create directory]");
  CHECK(std::find(lines.begin(), lines.end(), "bind /dev/null on /dev/null [nosuid, noexec, private, create file]") !=
        lines.end());
  CHECK_THAT(lines[9], Catch::StartsWith("bind /dev/shm on /dev/shm"));
  CHECK(Scene::change(edits, "/dev/ptmx")->content == "/dev/pts/ptmx");
  scene.restrict_devices = false;
  scene.own_ipc = true;
  lines = described(scene.run(devices_hook).mounts);
  CHECK_THAT(lines[9], Catch::StartsWith("mount tmpfs on /dev/shm"));
  CHECK_THAT(lines[10], Catch::StartsWith("mount mqueue on /dev/mqueue"));
}

TEST_CASE("slurm-pmi: variables, and the PMIx server's directories") {
  Scene scene;
  scene.host.set("SLURM_NTASKS", "2");
  scene.host.set("PMIX_RANK", "0");
  CHECK(scene.run(slurm_pmi_hook).environment.entries().empty());
  scene.host.set("SLURM_JOB_ID", "7");
  scene.host.set("SLURM_STEP_ID", "3");
  scene.host.set("SLURM_JOB_UID", "1000");
  scene.host.set("PMIX_GDS_MODULE", "hash");
  scene.host.set("PMIX_SERVER_TMPDIR", "/spool/pmix.7.3");
  scene.host.set("PMI_SIZE", "2");
  scene.host.set("OTHER", "x");
  ContainerEdits edits = scene.run(slurm_pmi_hook);
  CHECK(edits.environment.get("SLURM_NTASKS") == "2");
  CHECK(edits.environment.get("PMIX_MCA_gds") == "hash");
  CHECK_FALSE(edits.environment.has("PMIX_MCA_ptl"));
  CHECK(edits.environment.get("PMI_SIZE") == "2");
  CHECK_FALSE(edits.environment.has("OTHER"));
  REQUIRE(edits.mounts_after_hooks.size() == 2);
  CHECK(edits.mounts_after_hooks[0].source == "/tmp/spmix_appdir_7.3");
  CHECK(edits.mounts_after_hooks[1].source == "/spool/pmix.7.3");
  fs::create_directories(scene.base + "/host/tmp/spmix_appdir_1000_7.3");
  CHECK(scene.run(slurm_pmi_hook).mounts_after_hooks[0].source == "/tmp/spmix_appdir_1000_7.3");
  CHECK(scene.run(slurm_pmi_hook).mounts_after_hooks.size() == 2);
  scene.put("/host/etc/slurm/slurm.conf", "TmpFS=/local\n");
  fs::create_directories(scene.base + "/host/local/spmix_appdir_1000_7.3");
  REQUIRE(scene.run(slurm_pmi_hook).mounts_after_hooks.size() == 3);
  CHECK(scene.run(slurm_pmi_hook).mounts_after_hooks[2].source == "/local/spmix_appdir_1000_7.3");
  scene.host.set("PMIX_PTL_MODULE", "tcp");
  scene.host.set("PMIX_SECURITY_MODE", "munge,native");
  scene.host.set("PMIX_MCA_psec", "native");
  edits = scene.run(slurm_pmi_hook);
  CHECK(edits.environment.get("PMIX_MCA_ptl") == "tcp");
  CHECK(edits.environment.get("PMIX_MCA_psec") == "native");
  scene.host.set("SLURM_MPI_TYPE", "pmi2");
  edits = scene.run(slurm_pmi_hook);
  CHECK(edits.mounts_after_hooks.empty());
  CHECK_FALSE(edits.environment.has("PMIX_RANK"));
}

TEST_CASE("slurm-pmix: what there is of the PMIx server's directories, and for a remapped root munge's") {
  Scene scene;
  const auto mounts = [&] { return described(scene.run(slurm_pmix_hook).mounts_after_hooks); };
  scene.host.set("SLURM_JOB_ID", "7");
  scene.host.set("SLURM_STEP_ID", "3");
  scene.host.set("SLURM_JOB_UID", "1000");
  scene.host.set("PMIX_SERVER_TMPDIR", "/spool/pmix.7.3/");
  scene.put("/host/etc/slurm/slurm.conf", "ClusterName=x\n#TmpFS=/no\n tmpFS = /local/%n  # of each node\n");
  scene.put("/host/etc/slurm/mpi.conf", "PMIxDebug=1\nPMIxCliTmpDirBase=/fast\n");
  scene.host.set("SLURMD_NODENAME", "n1");
  scene.host.set("PMIX_SECURITY_MODE", "munge,native");
  fs::create_directories(scene.base + "/host/spool/pmix.7.3");
  fs::create_directories(scene.base + "/host/fast/spmix_appdir_1000_7.3");
  fs::create_directories(scene.base + "/host/local/n1/spmix_appdir_1000_7.3");
  fs::create_directories(scene.base + "/host/tmp/spmix_appdir_7.3");
  fs::create_directories(scene.base + "/host/tmp/spmix_appdir_1000_7.4");
  CHECK(mounts().empty());
  scene.host.set("PMIX_NAMESPACE", "slurm.pmix.7.3");
  const std::vector<std::string> all = {"bind /spool/pmix.7.3/ on /spool/pmix.7.3/",
                                        "bind /fast/spmix_appdir_1000_7.3 on /fast/spmix_appdir_1000_7.3",
                                        "bind /local/n1/spmix_appdir_1000_7.3 on /local/n1/spmix_appdir_1000_7.3",
                                        "bind /tmp/spmix_appdir_7.3 on /tmp/spmix_appdir_7.3"};
  REQUIRE(mounts().size() == all.size());
  for (size_t i = 0; i < all.size(); ++i) CHECK_THAT(mounts()[i], Catch::StartsWith(all[i]));
  // The modules that Slurm's plugin uses, unless the job or the image says others.
  scene.host.set("PMIX_PTL_MODULE", "^usock");
  scene.host.set("PMIX_GDS_MODULE", "hash");
  scene.host.set("PMIX_MCA_ptl", "tcp");
  CHECK(scene.run(slurm_pmix_hook).environment.strings() ==
        std::vector<std::string>{"PMIX_MCA_psec=munge,native", "PMIX_MCA_gds=hash"});
  scene.container.set("PMIX_MCA_gds", "ds21");
  CHECK(scene.run(slurm_pmix_hook).environment.strings() == std::vector<std::string>{"PMIX_MCA_psec=munge,native"});

  scene.remap_root = true;
  CHECK(mounts().size() == all.size());
  fs::create_directories(scene.base + "/host/run/munge");
  REQUIRE(mounts().size() == all.size() + 1);
  CHECK_THAT(mounts().back(), Catch::StartsWith("bind /run/munge on /run/munge [ro"));
  scene.host.set("PMIX_SECURITY_MODE", "native");
  CHECK(mounts().size() == all.size());

  scene.host.set("SLURM_MPI_TYPE", "pmix_v4");
  CHECK(mounts().size() == all.size());
  scene.host.set("SLURM_MPI_TYPE", "none");
  CHECK(mounts().empty());
}

TEST_CASE("slurm-pytorch: what torch.distributed reads, only where PyTorch is and only what is unset") {
  Scene scene;
  scene.host.set("SLURM_JOB_ID", "5000");
  scene.host.set("SLURM_STEP_NODELIST", "gpu[07-09,12],other");
  scene.host.set("SLURM_NTASKS", "16");
  scene.host.set("SLURM_STEP_NUM_TASKS", "16");
  scene.host.set("SLURM_STEP_NUM_NODES", "2");
  CHECK(scene.run(slurm_pytorch_hook).environment.entries().empty());
  scene.container.set("PYTORCH_VERSION", "2.5");
  scene.container.set("WORLD_SIZE", "1");
  CHECK(scene.run(slurm_pytorch_hook).environment.strings() ==
        std::vector<std::string>{"MASTER_ADDR=gpu07", "MASTER_PORT=" + std::to_string(5000 % 4536 + 61000),
                                 "OMP_NUM_THREADS=1"});
  CHECK(first_host("node1") == "node1");
  CHECK(first_host("a2,b3") == "a2");
  CHECK(first_host("r[1-2]n[03,5].x,z") == "r1n03.x");
  CHECK(first_host("broken[1") == "broken1");
}

TEST_CASE("sharp: with a SHARP network or its daemon, and a visible adapter") {
  Scene scene;
  scene.host.set("SLURM_NETWORK", "sharp");
  CHECK(scene.run(sharp_hook).environment.entries().empty());
  scene.container.set("MELLANOX_VISIBLE_DEVICES", "all");
  scene.container.set("NCCL_COLLNET_ENABLE", "0");
  scene.host.set("SLURM_STEP_NUM_NODES", "4");
  CHECK(scene.run(sharp_hook).environment.strings() ==
        std::vector<std::string>{"SHARP_COLL_LOCK_ON_COMM_INIT=1",
                                 "SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD=0",
                                 "NCCL_SHARP_GROUP_SIZE_THRESH=4"});
  scene.host.unset("SLURM_NETWORK");
  CHECK(scene.run(sharp_hook).environment.entries().empty());
  scene.put("/host/proc/self/net/unix", "Num RefCount Protocol Flags Type St Inode Path\n0: 2 0 0 1 1 5 @sharpd_x\n");
  CHECK(scene.run(sharp_hook).environment.get("SHARP_COLL_SHARPD_SOCKET_NAME") == "sharpd_x");
  scene.host.set("MELLANOX_VISIBLE_DEVICES", "none");
  CHECK(scene.run(sharp_hook).environment.entries().empty());
}

TEST_CASE("mig-config: asks nvidia-smi about the visible devices") {
  Scene scene;
  scene.put("/host/bin/nvidia-smi", "#!/bin/sh\ncase \"$*\" in *'-i 1'*) echo Disabled ;; *) echo Enabled ;; esac\n",
            0755);
  scene.host.set("PATH", scene.base + "/host/bin:/bin");
  CHECK(scene.run(mig_config_hook).environment.entries().empty());
  scene.host.set("NVIDIA_VISIBLE_DEVICES", "all");
  CHECK(scene.run(mig_config_hook).environment.strings() == std::vector<std::string>{"NVIDIA_MIG_CONFIG_DEVICES=all"});
  for (const char* devices : {"1", "none", "void", "MIG-1-2", "0:1", "--help"}) {
    scene.host.set("NVIDIA_VISIBLE_DEVICES", devices);
    CHECK(scene.run(mig_config_hook).environment.entries().empty());
  }
}

TEST_CASE("mig-config: what the image says counts where the job says nothing, and needs no driver") {
  Scene scene;
  const std::vector<std::string> all = {"NVIDIA_MIG_CONFIG_DEVICES=all"};
  scene.container.set("NVIDIA_VISIBLE_DEVICES", "all");
  scene.host.set("PATH", scene.base + "/host/bin");
  CHECK(scene.run(mig_config_hook).environment.entries().empty());
  scene.put("/host/bin/nvidia-smi", "#!/bin/sh\necho Enabled\n", 0755);
  CHECK(scene.run(mig_config_hook).environment.strings() == all);
  scene.host.set("NVIDIA_VISIBLE_DEVICES", "void");
  CHECK(scene.run(mig_config_hook).environment.entries().empty());
  scene.host.set("NVIDIA_VISIBLE_DEVICES", "all");
  scene.container.set("NVIDIA_VISIBLE_DEVICES", "void");
  CHECK(scene.run(mig_config_hook).environment.strings() == all);
  scene.host.set("PATH", scene.base + "/nowhere");
  CHECK(scene.error(mig_config_hook) == "Command not found: nvidia-smi");
}

TEST_CASE("file changes replace links instead of following them") {
  Scene scene;
  scene.put("/host/victim", "untouched");
  fs::create_symlink(scene.base + "/host/victim", scene.base + "/root/etc/passwd");
  const RootDir root = *RootDir::open(scene.base + "/root");
  NullLog log;
  REQUIRE(apply_file_changes({{FileChange::Kind::write, "/etc/passwd", "new", 0644},
                              {FileChange::Kind::link, "/etc/localtime", "target", 0777},
                              {FileChange::Kind::directory, "/a/b/c", "", 0750}},
                             root, log));
  CHECK(*read_file(scene.base + "/host/victim") == "untouched");
  CHECK(*read_file(scene.base + "/root/etc/passwd") == "new");
  CHECK(fs::read_symlink(scene.base + "/root/etc/localtime") == "target");
  CHECK(fs::is_directory(scene.base + "/root/a/b/c"));
}

TEST_CASE("login: what is absent is set, from passwd and login.defs; what is there stays") {
  Scene scene;
  scene.put("/root/etc/passwd", "root:x:0:0::/root:/bin/sh\nme:x:1000:100::/home/me:/bin/bash\n");
  scene.put("/root/bin/sh", "x", 0755);
  const RootDir root = *RootDir::open(scene.base + "/root");
  Environment environment;
  environment.set("TERM", "given");
  Login login = prepare_login(root, environment, {1000, 1000}, true);
  CHECK(login.shell == "/bin/sh");
  CHECK(login.argv0 == "-sh");
  CHECK(login.directory == "/");
  CHECK(login.environment.strings() == std::vector<std::string>{"TERM=given", "HOME=/home/me", "SHELL=/bin/bash",
                                                                "USER=me", "LOGNAME=me",
                                                                "PATH=/usr/local/bin:/bin:/usr/bin"});
  scene.put("/root/bin/bash", "x", 0755);
  scene.put("/root/home/me/x", "");
  scene.put("/root/etc/login.defs",
            "ENV_PATH PATH=/from/login.defs\nENV_SUPATH\tPATH=/super\nUMASK 027\nENV_TZ TZ=Here\n");
  scene.put("/root/etc/locale.conf", "LANG=\"C.UTF-8\"\nOTHER=x\n");
  login = prepare_login(root, {}, {1000, 1000}, true);
  CHECK(login.argv0 == "-bash");
  CHECK(login.directory == "/home/me");
  CHECK(login.environment.get("PATH") == "/from/login.defs");
  CHECK(login.environment.get("TZ") == "Here");
  CHECK(login.environment.get("LANG") == "C.UTF-8");
  CHECK_FALSE(login.environment.has("OTHER"));
  CHECK(login.umask == 027);
  login = prepare_login(root, {}, {0, 1000}, true);
  CHECK(login.environment.get("PATH") == "/super");
  CHECK(login.environment.get("HOME") == "/root");
  CHECK(login.environment.get("LOGNAME") == "me");
  login = prepare_login(root, {}, {1000, 1000}, false);
  CHECK(login.argv0 == "sh");
  CHECK(login.environment.entries().empty());
}

TEST_CASE("login: who has a group of his own lets it do what he lets himself do, where the image says so") {
  Scene scene;
  scene.put("/root/etc/passwd", "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/:/bin/sh\nus:x:1001:100::/:/bin/sh\n");
  scene.put("/root/etc/group", "root:x:0:\nusers:x:100:\nme:x:1000:\n");
  scene.put("/root/etc/login.defs", "UMASK 022\nUSERGROUPS_ENAB yes\n");
  const RootDir root = *RootDir::open(scene.base + "/root");
  CHECK(prepare_login(root, {}, {1000, 1000}, true).umask == 002);
  CHECK(prepare_login(root, {}, {1001, 1001}, true).umask == 022);
  CHECK(prepare_login(root, {}, {0, 1000}, true).umask == 022);
  scene.put("/root/etc/login.defs", "UMASK 077\nUSERGROUPS_ENAB yes\n");
  CHECK(prepare_login(root, {}, {1000, 1000}, true).umask == 007);
  scene.put("/root/etc/login.defs", "UMASK 022\nUSERGROUPS_ENAB no\n");
  CHECK(prepare_login(root, {}, {1000, 1000}, true).umask == 022);
  scene.put("/root/etc/group", "root:x:0:\nother:x:1000:\n");
  scene.put("/root/etc/login.defs", "UMASK 022\nUSERGROUPS_ENAB yes\n");
  CHECK(prepare_login(root, {}, {1000, 1000}, true).umask == 022);
}

TEST_CASE("login: a shell that cannot read rc is not taken; none at all is no error") {
  Scene scene;
  for (const char* shell : {"/root/bin/sh", "/root/bin/tcsh", "/root/sbin/nologin"}) scene.put(shell, "x", 0755);
  const RootDir root = *RootDir::open(scene.base + "/root");
  for (const char* shell : {"/bin/tcsh", "/sbin/nologin", "/bin/zsh", "sh", ""}) {
    Environment environment;
    environment.set("SHELL", shell);
    CHECK(prepare_login(root, environment, {1000, 1000}, true).shell == "/bin/sh");
  }
  fs::remove(scene.base + "/root/bin/sh");
  CHECK(prepare_login(root, {}, {1000, 1000}, true).shell.empty());
}
