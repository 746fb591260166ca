#include "tests/plugin/slurm_host.hpp"

#include <cstdarg>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/plugin/faults.hpp"

/// Slurm's type is opaque to plugins.
struct spank_handle {
  situla::test::SlurmHost* host;
  int task;
};

namespace situla::test {
namespace {

// ESPANK_SUCCESS is a macro of another type.
constexpr auto kSuccess = static_cast<spank_err_t>(ESPANK_SUCCESS);

SlurmHost* g_host = nullptr;

int log_fd() {
  static const int fd = [] {
    const int made = memfd_create("slurm-log", MFD_CLOEXEC);
    // Tasks share it, and write as the user.
    if (made >= 0) (void)fcntl(made, F_SETFL, O_RDWR | O_APPEND);
    return made;
  }();
  return fd;
}

size_t log_size() {
  struct stat info {};
  return fstat(log_fd(), &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

void write_log(const char* prefix, const char* format, va_list arguments) {
  const OutsidePlugin outside;
  char text[4096];
  (void)vsnprintf(text, sizeof text, format, arguments);
  add_to_log(prefix + std::string(text));
}

char** pointers(const std::vector<std::string>& strings, std::vector<char*>& storage) {
  storage.clear();
  for (const std::string& text : strings) storage.push_back(const_cast<char*>(text.c_str()));
  storage.push_back(nullptr);
  return storage.data();
}

std::vector<std::string>::iterator find_variable(Job& job, const char* name) {
  const std::string start = std::string(name) + "=";
  auto entry = job.environment.begin();
  while (entry != job.environment.end() && !entry->starts_with(start)) ++entry;
  return entry;
}

/// Slurm's rules about what may be asked for where.
spank_err_t availability(const SlurmHost& host, spank_item_t item) {
  const bool identity = item == S_JOB_UID || item == S_JOB_GID;
  switch (host.context()) {
    case S_CTX_REMOTE:
      return kSuccess;
    case S_CTX_JOB_SCRIPT:
      return identity || item == S_JOB_ID ? kSuccess : ESPANK_NOT_AVAIL;
    case S_CTX_LOCAL:
      if (host.phase() != "local_user_init") return ESPANK_NOT_AVAIL;
      return identity || item == S_JOB_ID || item == S_JOB_STEPID || item == S_JOB_NNODES ||
                     item == S_JOB_TOTAL_TASK_COUNT
                 ? kSuccess
                 : ESPANK_NOT_REMOTE;
    case S_CTX_ALLOCATOR:
      return identity ? ESPANK_NOT_AVAIL : ESPANK_NOT_REMOTE;
    default:
      return ESPANK_NOT_AVAIL;
  }
}

spank_err_t answer(Job& job, int task, spank_item_t item, va_list arguments) {
  static std::vector<char*> environment, command;
  const auto number = [&](uint32_t value) {
    *va_arg(arguments, uint32_t*) = value;
    return kSuccess;
  };
  switch (item) {
    case S_JOB_UID:
      *va_arg(arguments, uid_t*) = job.uid;
      return kSuccess;
    case S_JOB_GID:
      *va_arg(arguments, gid_t*) = job.gid;
      return kSuccess;
    case S_JOB_SUPPLEMENTARY_GIDS:
      *va_arg(arguments, gid_t**) = job.groups.data();
      *va_arg(arguments, int*) = static_cast<int>(job.groups.size());
      return kSuccess;
    case S_JOB_ID:
      return number(job.job_id);
    case S_JOB_STEPID:
      return number(job.step_id);
    case S_JOB_NNODES:
      return number(1);
    case S_JOB_NODEID:
    case S_JOB_ARRAY_ID:
    case S_JOB_ARRAY_TASK_ID:
    case S_SLURM_RESTART_COUNT:
      return number(0);
    case S_JOB_LOCAL_TASK_COUNT:
      return number(job.local_tasks);
    case S_JOB_TOTAL_TASK_COUNT:
      return number(job.total_tasks);
    case S_JOB_ENV:
      *va_arg(arguments, char***) = pointers(job.environment, environment);
      return kSuccess;
    case S_JOB_ARGV:
      *va_arg(arguments, int*) = static_cast<int>(job.arguments.size());
      *va_arg(arguments, char***) = pointers(job.arguments, command);
      return kSuccess;
    case S_TASK_ID:
      *va_arg(arguments, int*) = task;
      return task < 0 ? ESPANK_NOT_TASK : kSuccess;
    case S_TASK_GLOBAL_ID:
      return task < 0 ? ESPANK_NOT_TASK : number(static_cast<uint32_t>(task));
    case S_TASK_EXIT_STATUS:
      *va_arg(arguments, int*) = 0;
      return task < 0 ? ESPANK_NOT_TASK : kSuccess;
    default:
      return ESPANK_BAD_ARG;
  }
}

std::string plugin_file() {
  return SITULA_TEST_PLUGIN;
}

}  // namespace

SlurmHost::SlurmHost(spank_context_t context, Job* job, std::vector<std::string> words)
    : context_(context), job_(job), words_(std::move(words)) {
  // Slurm resolves lazily first, so that a plugin for another program does not end it.
  handle_ = dlopen(plugin_file().c_str(), RTLD_LAZY);
  INFO((handle_ == nullptr ? dlerror() : "loaded"));
  REQUIRE(handle_ != nullptr);
  REQUIRE(g_host == nullptr);
  g_host = this;
  check_symbols();
}

SlurmHost::~SlurmHost() {
  g_host = nullptr;
  if (handle_ != nullptr) (void)dlclose(handle_);
  // A library that stays could leave a second load with the state of the first.
  CHECK(dlopen(plugin_file().c_str(), RTLD_LAZY | RTLD_NOLOAD) == nullptr);
}

void SlurmHost::check_symbols() const {
  const auto* name = static_cast<const char*>(dlsym(handle_, "plugin_name"));
  const auto* type = static_cast<const char*>(dlsym(handle_, "plugin_type"));
  const auto* version = static_cast<const unsigned*>(dlsym(handle_, "plugin_version"));
  const auto* spank = static_cast<const unsigned*>(dlsym(handle_, "spank_plugin_version"));
  REQUIRE((name != nullptr && type != nullptr && version != nullptr && spank != nullptr));
  CHECK(std::string(name) == "situla");
  CHECK(std::string(type) == "spank");
  CHECK(*version == SLURM_VERSION_NUMBER);
  CHECK(*spank == 1);
  // Slurm would call them, wherever in the plugin's libraries they were.
  CHECK(dlsym(handle_, "init") == nullptr);
  CHECK(dlsym(handle_, "fini") == nullptr);
}

namespace {

/// Not with CHECK: a forked task's would be lost.
int checked(const std::string& what, int status, size_t log_before) {
  // Slurm goes on after a positive status of task_init.
  if (status > 0) add_to_log("test: " + what + " returned " + std::to_string(status));
  // One task speaks for all of the node.
  const bool silent = log_size() == (what == "task_init" ? 0 : log_before);
  if (status < 0 && silent) add_to_log("test: " + what + " fails without a message");
  return status;
}

}  // namespace

int SlurmHost::call(const std::string& name, int task) {
  auto* const callback = reinterpret_cast<spank_f*>(dlsym(handle_, ("slurm_spank_" + name).c_str()));
  if (callback == nullptr) return 0;
  std::vector<char*> argv;
  pointers(words_, argv);
  spank_handle spank{this, task};
  const size_t log_before = log_size();
  phase_ = name;
  int status = 0;
  {
    const InsidePlugin inside;
    status = callback(&spank, static_cast<int>(words_.size()), argv.data());
  }
  phase_.clear();
  return checked(name, status, log_before);
}

int SlurmHost::set_option(const Option& option, const char* value) {
  const size_t log_before = log_size();
  int status = 0;
  {
    const InsidePlugin inside;
    status = option.callback(option.value, value, context_ == S_CTX_REMOTE ? 1 : 0);
  }
  return checked("option " + option.name, status, log_before);
}

int SlurmHost::set_option(const std::string& name, const char* value) {
  for (const Option& option : options_)
    if (option.name == name) return set_option(option, value);
  return 0;  // not registered, because that was made to fail
}

std::string log_text() {
  std::string text(log_size(), '\0');
  const ssize_t size = pread(log_fd(), text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

void clear_log() {
  (void)!ftruncate(log_fd(), 0);
}

void add_to_log(const std::string& line) {
  const std::string text = line + "\n";
  (void)!write(log_fd(), text.data(), text.size());
}

}  // namespace situla::test

// --- what Slurm exports to plugins

using situla::test::availability;
using situla::test::find_variable;
using situla::test::g_host;
using situla::test::Job;
using situla::test::kSuccess;
using situla::test::OutsidePlugin;
using situla::test::slurm_step_fails;

#define SLURM_EXPORT extern "C" __attribute__((visibility("default")))
#define SLURM_LOG(name, prefix)                         \
  SLURM_EXPORT void name(const char* format, ...) {     \
    va_list arguments;                                  \
    va_start(arguments, format);                        \
    situla::test::write_log(prefix, format, arguments); \
    va_end(arguments);                                  \
  }

SLURM_LOG(slurm_error, "error: ")
SLURM_LOG(slurm_info, "")
SLURM_LOG(slurm_spank_log, "")
SLURM_LOG(slurm_verbose, "debug: ")
SLURM_LOG(slurm_debug, "debug: ")
SLURM_LOG(slurm_debug2, "debug: ")
SLURM_LOG(slurm_debug3, "debug: ")

SLURM_EXPORT const char* spank_strerror(spank_err_t error) {
  return error == kSuccess ? "Success" : "refused for the test";
}

SLURM_EXPORT int spank_symbol_supported(const char*) {
  return 1;
}

SLURM_EXPORT spank_context_t spank_context(void) {
  return g_host == nullptr ? S_CTX_ERROR : g_host->context();
}

SLURM_EXPORT int spank_remote(spank_t spank) {
  if (spank == nullptr) return -1;
  return spank->host->context() == S_CTX_REMOTE ? 1 : 0;
}

SLURM_EXPORT spank_err_t spank_option_register(spank_t spank, struct spank_option* option) {
  if (slurm_step_fails()) return ESPANK_ERROR;
  const OutsidePlugin outside;
  if (spank->host->phase() != "init" || option->name == nullptr || option->usage == nullptr) return ESPANK_BAD_ARG;
  if (strlen(option->name) > SPANK_OPTION_MAXLEN) return ESPANK_NOSPACE;
  spank->host->add_option({option->name, option->has_arg != 0, option->val, option->cb});
  return kSuccess;
}

SLURM_EXPORT spank_err_t spank_option_getopt(spank_t, struct spank_option*, char** value) {
  if (value != nullptr) *value = nullptr;
  return slurm_step_fails() ? ESPANK_NOT_AVAIL : ESPANK_ERROR;
}

// Slurm's declaration: what comes before the dots is an enum, which may be promoted as they are.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wvarargs"
SLURM_EXPORT spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...) {
  if (slurm_step_fails()) return ESPANK_ERROR;
  const OutsidePlugin outside;
  const spank_err_t available = availability(*spank->host, item);
  if (available != kSuccess) return available;
  va_list arguments;
  va_start(arguments, item);
  const spank_err_t status = situla::test::answer(*spank->host->job(), spank->task, item, arguments);
  va_end(arguments);
  return status;
}
#pragma GCC diagnostic pop

SLURM_EXPORT spank_err_t spank_getenv(spank_t spank, const char* name, char* buffer, int size) {
  if (slurm_step_fails()) return ESPANK_ERROR;
  const OutsidePlugin outside;
  if (spank->host->context() != S_CTX_REMOTE) return ESPANK_NOT_REMOTE;
  Job& job = *spank->host->job();
  const auto entry = find_variable(job, name);
  if (entry == job.environment.end()) return ESPANK_ENV_NOEXIST;
  const int length = snprintf(buffer, static_cast<size_t>(size), "%s", entry->c_str() + strlen(name) + 1);
  return length < size ? kSuccess : ESPANK_NOSPACE;
}

SLURM_EXPORT spank_err_t spank_setenv(spank_t spank, const char* name, const char* value, int overwrite) {
  if (slurm_step_fails()) return ESPANK_ERROR;
  const OutsidePlugin outside;
  if (spank->host->context() != S_CTX_REMOTE) return ESPANK_NOT_REMOTE;
  Job& job = *spank->host->job();
  const std::string text = std::string(name) + "=" + value;
  const auto entry = find_variable(job, name);
  if (entry == job.environment.end())
    job.environment.push_back(text);
  else if (overwrite == 0)
    return ESPANK_ENV_EXISTS;
  else
    *entry = text;
  return kSuccess;
}

SLURM_EXPORT spank_err_t spank_unsetenv(spank_t spank, const char* name) {
  if (slurm_step_fails()) return ESPANK_ERROR;
  const OutsidePlugin outside;
  if (spank->host->context() != S_CTX_REMOTE) return ESPANK_NOT_REMOTE;
  Job& job = *spank->host->job();
  const auto entry = find_variable(job, name);
  if (entry != job.environment.end()) job.environment.erase(entry);
  return kSuccess;
}

SLURM_EXPORT spank_err_t spank_job_control_setenv(spank_t, const char*, const char*, int) {
  return slurm_step_fails() ? ESPANK_ERROR : kSuccess;
}

SLURM_EXPORT spank_err_t spank_job_control_getenv(spank_t, const char*, char*, int) {
  return ESPANK_ENV_NOEXIST;
}

SLURM_EXPORT spank_err_t spank_job_control_unsetenv(spank_t, const char*) {
  return slurm_step_fails() ? ESPANK_ERROR : kSuccess;
}
