// What does a program that Slurm started find around it? One line each, the same text whenever the same is found: run
// it as a task with and without a container and compare. Static, and needs nothing but /proc.
//
//   task_view                 prints and exits
//   task_view signals FILE    writes "ready", then one line per signal that comes; SIGTERM and SIGINT end it (status 7)
#include <algorithm>
#include <string>
#include <vector>

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

std::string read_file(const std::string& path) {
  std::string text;
  if (FILE* file = fopen(path.c_str(), "re")) {
    char buffer[4096];
    for (size_t size; (size = fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, size);
    fclose(file);
  }
  return text;
}

/// Kinds and flags; numbers of pipes differ from run to run.
void show_descriptors() {
  std::vector<int> fds;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return perror("/proc/self/fd");
  while (const dirent* entry = readdir(directory))
    if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(directory)) fds.push_back(atoi(entry->d_name));
  closedir(directory);
  std::sort(fds.begin(), fds.end());
  for (const int fd : fds) {
    struct stat status {};
    fstat(fd, &status);
    char target[4096] = "";
    if (readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target - 1) < 0) strcpy(target, "?");
    const std::string info = read_file("/proc/self/fdinfo/" + std::to_string(fd));
    const size_t flags = info.find("flags:");
    printf("fd %d: type %o, %s, %s\n", fd, status.st_mode & S_IFMT,
           strchr(target, ':') != nullptr ? "nameless" : target,
           flags == std::string::npos ? "?" : info.substr(flags, info.find('\n', flags) - flags).c_str());
  }
}

void show_status() {
  const std::string status = read_file("/proc/self/status");
  for (const char* key :
       {"Umask", "TracerPid", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff",
        "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Cpus_allowed_list"}) {
    const size_t at = status.find(std::string("\n") + key + ":");
    if (at != std::string::npos) printf("%s\n", status.substr(at + 1, status.find('\n', at + 1) - at - 1).c_str());
  }
}

void show_limits() {
  for (int resource = 0; resource < static_cast<int>(RLIM_NLIMITS); ++resource) {
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource>(resource), &limit);
    printf("limit %d: %llu %llu\n", resource, static_cast<unsigned long long>(limit.rlim_cur),
           static_cast<unsigned long long>(limit.rlim_max));
  }
}

void show_relations() {
  const std::string id = std::to_string(getpid());
  printf("children: %s\n", read_file("/proc/self/task/" + id + "/children").c_str());
  printf("leads its process group: %s\n", getpgrp() == getpid() ? "yes" : getpgrp() == 0 ? "from outside" : "no");
  printf("leads its session: %s\n", getsid(0) == getpid() ? "yes" : "no");
  printf("parent: %s",
         getppid() == 0 ? "outside\n" : read_file("/proc/" + std::to_string(getppid()) + "/comm").c_str());
  int death_signal = 0;
  prctl(PR_GET_PDEATHSIG, &death_signal);
  printf("parent's death: signal %d\n", death_signal);
  int reaper = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &reaper);
  printf("reaper %d, dumpable %d, slack %d, priority %d, policy %d, personality %s", reaper, prctl(PR_GET_DUMPABLE),
         prctl(PR_GET_TIMERSLACK), getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
         read_file("/proc/self/personality").c_str());
  printf("out of memory: %s", read_file("/proc/self/oom_score_adj").c_str());
  printf("core dumps: %s", read_file("/proc/self/coredump_filter").c_str());
  printf("name: %s", read_file("/proc/self/comm").c_str());
  printf("user %s, group %s\n", getuid() == geteuid() ? "plain" : "changed",
         getgid() == getegid() ? "plain" : "changed");
}

int count_signals(const char* path) {
  FILE* log = fopen(path, "we");
  if (log == nullptr) return perror(path), 1;
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  fprintf(log, "ready\n");
  fflush(log);
  for (siginfo_t info;;) {
    const int number = sigwaitinfo(&all, &info);
    if (number <= 0) continue;
    fprintf(log, "SIG%s\n", sigabbrev_np(number));
    fflush(log);
    if (number == SIGTERM || number == SIGINT) return 7;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "signals") == 0) return count_signals(argv[2]);
  show_descriptors();
  show_status();
  show_limits();
  show_relations();
  return 0;
}
