#include "tests/userns/run_support.hpp"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/process.hpp"
#include "hooks/scripts/config_script.hpp"
#include "tests/support/memory_log.hpp"

namespace fs = std::filesystem;

namespace situla::test {
namespace {

constexpr const char* kBusybox = "/usr/bin/busybox";

void put_record(int fd, const std::string& key, const std::string& value) {
  const std::string bytes = key + '\n' + std::to_string(value.size()) + '\n' + value;
  if (!write_all(fd, bytes)) _exit(9);
}

std::map<std::string, std::string> parse_records(std::string_view bytes) {
  std::map<std::string, std::string> records;
  while (!bytes.empty()) {
    const size_t key_end = bytes.find('\n');
    const size_t size_end = bytes.find('\n', key_end + 1);
    const size_t size = std::stoul(std::string(bytes.substr(key_end + 1, size_end - key_end - 1)));
    records[std::string(bytes.substr(0, key_end))] = bytes.substr(size_end + 1, size);
    bytes.remove_prefix(size_end + 1 + size);
  }
  return records;
}

std::string run_inside(const std::string& command, const Container& container) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "pipe";
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  SpawnOptions options;
  options.program = "/bin/sh";
  options.arguments = {"sh", "-c", command};
  options.environment = container.environment.strings();
  options.directory = container.workdir;
  options.fds = {{write_end.get(), 1}, {write_end.get(), 2}};
  auto child = spawn(options);
  if (!child) return "spawn: " + child.error().message();
  write_end.reset();
  std::string output = read_all(read_end.get(), 1 << 20).value_or("?");
  const auto status = child->wait();
  if (status && !status->success()) output += "[" + status->text() + "]";
  return output;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  const char* base = std::getenv("TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/situla-test-XXXXXX";
  REQUIRE(mkdtemp(path_.data()) != nullptr);
}

TemporaryDirectory::~TemporaryDirectory() {
  (void)remove_tree(path_);
}

void put_file(const std::string& path, const std::string& content, mode_t mode) {
  fs::create_directories(fs::path(path).parent_path());
  fs::remove(path);
  std::ofstream(path) << content;
  REQUIRE(chmod(path.c_str(), mode) == 0);
}

std::string get_file(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

std::string image_rc(const std::string& workdir) {
  return "mkdir -p \"" + workdir + "\" 2> /dev/null\ncd \"" + workdir +
         "\" && unset OLDPWD || exit 1\n\nif [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n\n"
         "echo entrypoint ran > /tmp/entrypoint\nexec '/bin/entry' \"$@\"\n";
}

void make_busybox_root(const std::string& root, const std::string& workdir) {
  fs::create_directories(root + "/bin");
  fs::copy_file(kBusybox, root + "/bin/busybox");
  for (const char* applet : {"sh",    "cat",  "ls",   "id",   "mount", "umount", "touch",    "env",  "pwd",  "mkdir",
                             "sleep", "stat", "grep", "echo", "rm",    "ln",     "readlink", "true", "sort", "cut"})
    fs::create_symlink("busybox", root + "/bin/" + applet);
  put_file(root + "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n_apt:x:100:65534::/nonexistent:/usr/sbin/nologin\n");
  put_file(root + "/etc/group", "root:x:0:\nstaff:x:50:\n");
  put_file(root + "/etc/rc", image_rc(workdir));
  put_file(root + "/etc/environment", "PATH=/bin\nFROM_IMAGE=yes\nBOTH=image\n");
}

Scene::Scene() {
  root = directory / "image";
  sysconf = directory / "sysconf";
  data = directory / "data";
  make_busybox_root(root);
  host.set("PATH", "/usr/bin:/bin");
  host.set("HOME", directory / "home");
  host.set("USER", "tester");
  host.set("PWD", directory.path());
  host.set("ENROOT_SYSCONF_PATH", sysconf);
  host.set("ENROOT_CONFIG_PATH", directory / "config");
  host.set("ENROOT_DATA_PATH", data);
  fs::create_directories(directory / "home");
}

namespace {

/// In the child: namespaces as the broker and builder make them, then everything is told to the pipe.
void prepare_and_report(Scene& scene, int report, const std::vector<std::string>& commands,
                        const std::function<std::string()>& inside) {
  MemoryLog log;
  set_mount_api(scene.api);
  const auto report_error = [&](const Error& error) {
    put_record(report, "log", log.text(LogLevel::info));
    put_record(report, "error", error.text());
  };
  ContainerRequest wanted;
  wanted.spec = scene.spec;
  wanted.root.kind = scene.kind;
  wanted.root.path = scene.root;
  wanted.root.mount = scene.mount;
  if (scene.kind == RootSource::Kind::image) {
    auto image = open_file(scene.root, O_RDONLY);
    if (!image) return report_error(image.error());
    wanted.root.image = std::move(*image);
  }
  // Where relative sources are meant from.
  REQUIRE(chdir(scene.directory.path().c_str()) == 0);
  auto completed = complete(std::move(wanted), scene.host, log);
  if (!completed) return report_error(completed.error());
  ContainerRequest& request = *completed;
  request.step = scene.scratch_name;
  const std::string stage = scene.directory / "stage";
  request.config.set("ENROOT_RUNTIME_PATH", stage);
  fs::create_directories(stage);
  const auto setup = [&]() -> Result<void> {
    TRY(unshare_namespaces(kUserNs | kMountNs));
    TRY(write_own_id_maps(request.inside_uid(), request.uid, request.inside_gid(), request.gid));
    TRY(set_propagation("/", Propagation::private_mount, true));
    TRY_ASSIGN(const UniqueFd point, open_file(stage, O_PATH | O_DIRECTORY));
    return mount_new_at(point.get(), "tmpfs", "tmpfs", {{"mode", "700"}}, {}, stage);
  };
  if (const auto done = setup(); !done) return report_error(done.error());
  const auto begin = std::chrono::steady_clock::now();
  auto container = prepare_container(request, log, scene.rc_time);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  if (!container) return report_error(container.error());
  if (inside) put_record(report, "inside", inside());
  for (const std::string& command : commands) put_record(report, command, run_inside(command, *container));
  put_record(report, "log", log.text(LogLevel::info));
  put_record(report, "workdir", container->workdir);
  put_record(report, "environment", container->environment.block());
  put_record(report, "scratch", container->root.scratch.path());
  put_record(report, "milliseconds", std::to_string(took.count()));
}

}  // namespace

Outcome Scene::run(const std::vector<std::string>& commands, const std::function<std::string()>& inside) {
  const std::string report_path = directory / "report";
  put_file(report_path, "");
  auto report = open_file(report_path, O_RDWR | O_TRUNC);
  REQUIRE(report);
  auto child = fork_child();
  REQUIRE(child);
  if (!*child) {
    prepare_and_report(*this, report->get(), commands, inside);
    _exit(0);
  }
  const auto status = child->wait();
  REQUIRE(status);
  Outcome outcome;
  outcome.results = parse_records(get_file(report_path));
  outcome.error = outcome.results["error"];
  if (!status->success()) outcome.error += "child " + status->text();
  outcome.log = outcome.results["log"];
  outcome.workdir = outcome.results["workdir"];
  outcome.environment = Environment::from_block(outcome.results["environment"]);
  outcome.scratch_path = outcome.results["scratch"];
  outcome.milliseconds = std::atof(outcome.results["milliseconds"].c_str());
  return outcome;
}

Result<ContainerRequest> complete(ContainerRequest wanted, const Environment& host, LogSink& log) {
  TRY_ASSIGN(const EnrootConfig loaded, EnrootConfig::load(host, log));
  TRY_ASSIGN(EnrootConfig config, with_directives(loaded, wanted.start.configuration, log));
  ContainerRequest request = ContainerRequest::of_this_user(std::move(wanted.spec), host, std::move(config), log);
  request.root = std::move(wanted.root);
  request.start = std::move(wanted.start);
  request.command = std::move(wanted.command);
  return request;
}

std::vector<MountOption> mounts(const std::string& option) {
  auto parsed = parse_mount_options(option);
  REQUIRE(parsed);
  return *parsed;
}

}  // namespace situla::test
