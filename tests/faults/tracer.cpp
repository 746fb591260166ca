#include "tests/faults/tracer.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faults/process_view.hpp"

namespace situla::faults {
namespace {

constexpr long kOptions =
    PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
constexpr int kSystemCall = SIGTRAP | 0x80;
constexpr size_t kStackRead = 16 * 1024;
constexpr size_t kNearCallers = 2 * 1024;
constexpr size_t kMostCallers = 16;

volatile sig_atomic_t stop_is_over = 0, asked_to_end = 0;

long trace(int request, pid_t tid, void* address, void* data) {
  return ptrace(static_cast<__ptrace_request>(request), tid, address, data);
}

pid_t process_of(pid_t tid) {
  std::ifstream lines("/proc/" + std::to_string(tid) + "/status");
  pid_t process = tid;
  for (std::string word; lines >> word;)
    if (word == "Tgid:" && lines >> process) break;
  return process;
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

template <typename Visit>
void for_each_word(const std::string& bytes, Visit visit) {
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    bytes.copy(reinterpret_cast<char*>(&word), sizeof word, at);
    if (!visit(word)) return;
  }
}

/// A return address; other numbers on the stack may look like one.
bool follows_call(pid_t process, uint64_t address) {
  constexpr size_t kLongestCall = 7;
  const std::string code = memory_of(process, address - kLongestCall, kLongestCall);
  if (code.size() < kLongestCall) return false;
  // CALL rel32; CALL through a register or memory, of 2 to 7 bytes.
  if (code[kLongestCall - 5] == '\xe8') return true;
  for (size_t size = 2; size <= kLongestCall; ++size)
    if (code[kLongestCall - size] == '\xff' &&
        (static_cast<unsigned char>(code[kLongestCall - size + 1]) & 0x38U) == 0x10U)
      return true;
  return false;
}

bool is_of_c_library(const std::string& name) {
  for (const char* begin : {"libc.", "libc-", "libstdc++", "libgcc_s", "libm.", "libnss_", "ld-linux"})
    if (name.rfind(begin, 0) == 0) return true;
  return false;
}

const Mapping* mapping_with(const std::vector<Mapping>& mappings, uint64_t address) {
  for (const Mapping& mapping : mappings)
    if (address >= mapping.begin && address < mapping.end) return &mapping;
  return nullptr;
}

/// Clocks are read by system calls then, as on machines without vdso(7). Right after execve(2): on the stack lie the
/// number of arguments, these, the variables and the auxiliary vector, each with a null word at its end.
void hide_vdso(pid_t tid) {
  user_regs_struct registers{};
  trace(PTRACE_GETREGS, tid, nullptr, &registers);
  uint64_t at = registers.rsp + sizeof(uint64_t);
  for (int lists = 0; lists < 2; at += sizeof(uint64_t))
    if (word_of(tid, at) == 0) ++lists;
  uint64_t type = AT_NULL;
  for (; (type = word_of(tid, at)) != AT_NULL; at += sizeof(Elf64_auxv_t))
    if (type == AT_SYSINFO_EHDR)
      trace(PTRACE_POKEDATA, tid, reinterpret_cast<void*>(at), reinterpret_cast<void*>(uint64_t{AT_IGNORE}));
}

}  // namespace

bool Tracer::seize(pid_t process) {
  bool any = false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", error)) {
    const pid_t tid = std::stoi(entry.path().filename());
    if (trace(PTRACE_SEIZE, tid, nullptr, reinterpret_cast<void*>(kOptions)) != 0) continue;
    any = true;
    Thread& thread = threads_[tid];
    thread.known = true;
    thread.process = process;
    thread.program = look_at(process);
    // Its calls are seen from its next stop on.
    if (thread.program.chosen) trace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  }
  return any;
}

Tracer::Program Tracer::look_at(pid_t process) const {
  Program program;
  // Distributions have other names for what is executed by this one: slurmstepd-wlm.
  if (base_name(program_of(process)) != order_.program && command_of(process) != order_.program) return program;
  const std::vector<std::string> words = arguments_of(process);
  program.chosen = order_.argument.empty() || std::find(words.begin(), words.end(), order_.argument) != words.end();
  const uint64_t loader = loader_of(process);
  const std::vector<Mapping> mappings = mappings_of(process);
  const Mapping* first = loader == 0 ? nullptr : mapping_with(mappings, loader);
  if (first == nullptr) return program;
  program.loader_begin = first->begin;
  for (const Mapping& mapping : mappings)
    if (mapping.file == first->file) program.loader_end = std::max(program.loader_end, mapping.end);
  return program;
}

int Tracer::run(pid_t command) {
  struct sigaction action {};
  action.sa_handler = [](int number) { (number == SIGALRM ? stop_is_over : asked_to_end) = 1; };
  sigaction(SIGALRM, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  while (asked_to_end == 0) {
    int status = 0;
    const pid_t tid = waitpid(-1, &status, __WALL);
    if (stop_is_over != 0) {
      stop_is_over = 0;
      ::kill(stopped_process_, SIGCONT);
    }
    if (tid < 0 && errno == ECHILD) break;
    if (tid < 0) continue;
    if (WIFSTOPPED(status)) {
      stopped(tid, status);
      continue;
    }
    threads_.erase(tid);
    if (tid != command) continue;
    // What outlives the command, and holds its standard error, is not stopped for ever.
    if (stopped_process_ != 0) ::kill(stopped_process_, SIGCONT);
    return status;
  }
  return 0;
}

void Tracer::go_on(pid_t tid, const Thread& thread, int signal) const {
  const bool calls = thread.due || (thread.program.chosen && !over());
  trace(calls ? PTRACE_SYSCALL : PTRACE_CONT, tid, nullptr, reinterpret_cast<void*>(static_cast<long>(signal)));
}

void Tracer::stopped(pid_t tid, int status) {
  const int signal = WSTOPSIG(status), event = status >> 16;
  Thread& thread = threads_[tid];
  if (!thread.known) {
    thread.held = true;
    return;
  }
  if (signal == kSystemCall) {
    at_call(tid, thread);
    return;
  }
  if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
    trace(PTRACE_LISTEN, tid, nullptr, nullptr);
    return;
  }
  if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
    unsigned long child = 0;
    trace(PTRACE_GETEVENTMSG, tid, nullptr, &child);
    started(tid, static_cast<pid_t>(child));
    go_on(tid, threads_[tid], 0);
    return;
  }
  if (event == PTRACE_EVENT_EXEC) executed(tid);
  go_on(tid, threads_[tid], event == 0 ? signal : 0);
}

void Tracer::started(pid_t parent, pid_t child) {
  const Program program = threads_[parent].program;
  Thread& thread = threads_[child];
  thread.program = program;
  thread.process = process_of(child);
  thread.known = true;
  if (!thread.held) return;
  thread.held = false;
  go_on(child, thread, 0);
}

void Tracer::executed(pid_t tid) {
  unsigned long before = 0;
  trace(PTRACE_GETEVENTMSG, tid, nullptr, &before);
  if (static_cast<pid_t>(before) != tid) threads_.erase(static_cast<pid_t>(before));
  Thread& thread = threads_[tid];
  thread.process = tid;
  thread.known = true;
  thread.due.reset();
  thread.program = look_at(tid);
  if (thread.program.chosen && clock_step(order_.fault) != 0) hide_vdso(tid);
}

void Tracer::at_call(pid_t tid, Thread& thread) {
  __ptrace_syscall_info info{};
  if (trace(PTRACE_GET_SYSCALL_INFO, tid, reinterpret_cast<void*>(sizeof info), &info) < 0) return;
  if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
    if (thread.due) at_exit(tid, thread);
  } else if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
    Call call{thread.process, info.entry.nr, {}};
    std::copy(std::begin(info.entry.args), std::end(info.entry.args), std::begin(call.arguments));
    at_entry(tid, thread, call, info.instruction_pointer, info.stack_pointer);
  }
  go_on(tid, thread, 0);
}

void Tracer::at_entry(pid_t tid, Thread& thread, const Call& call, uint64_t instruction, uint64_t stack) {
  if (over() || !thread.program.chosen) return;
  if (instruction >= thread.program.loader_begin && instruction < thread.program.loader_end) return;
  const auto failure = failure_of(call, order_.fault);
  if (failure && failure->way == Failure::Way::clock && outcome_.reached) thread.due = failure;
  if (!failure || outcome_.reached || !is_meant(call, stack)) return;
  if (++outcome_.possible != order_.nth) return;
  outcome_.reached = true;
  note(thread, call, stack);
  strike(tid, thread, *failure);
}

bool Tracer::is_meant(const Call& call, uint64_t stack) const {
  if (!order_.call.empty() && name_of(call.number) != order_.call) return false;
  if (!order_.operand.empty()) {
    const std::string operand = operand_of(call);
    const size_t size = order_.operand.size();
    if (operand.size() < size || operand.compare(operand.size() - size, size, order_.operand) != 0) return false;
  }
  return order_.inside.empty() || made_inside(call.process, stack);
}

void Tracer::strike(pid_t tid, Thread& thread, const Failure& failure) {
  switch (order_.fault) {
    case Fault::kill:
    case Fault::term:
      ::kill(thread.process, order_.fault == Fault::kill ? SIGKILL : SIGTERM);
      return;
    case Fault::stop:
      stopped_process_ = thread.process;
      ::kill(thread.process, SIGSTOP);
      alarm(order_.seconds);
      return;
    default:
      break;
  }
  user_regs_struct registers{};
  trace(PTRACE_GETREGS, tid, nullptr, &registers);
  decltype(registers.rdi)* const arguments[] = {&registers.rdi, &registers.rsi, &registers.rdx,
                                                &registers.r10, &registers.r8,  &registers.r9};
  if (failure.way == Failure::Way::instead) registers.orig_rax = static_cast<decltype(registers.orig_rax)>(-1);
  if (failure.way == Failure::Way::less) {
    thread.argument_before = *arguments[failure.argument];
    *arguments[failure.argument] = failure.value;
  }
  trace(PTRACE_SETREGS, tid, nullptr, &registers);
  thread.due = failure;
}

void Tracer::at_exit(pid_t tid, Thread& thread) {
  user_regs_struct registers{};
  trace(PTRACE_GETREGS, tid, nullptr, &registers);
  decltype(registers.rdi)* const arguments[] = {&registers.rdi, &registers.rsi, &registers.rdx,
                                                &registers.r10, &registers.r8,  &registers.r9};
  if (thread.due->way == Failure::Way::less) {
    *arguments[thread.due->argument] = thread.argument_before;
  } else if (thread.due->way == Failure::Way::clock) {
    const uint64_t seconds = *arguments[thread.due->argument];
    const auto step = static_cast<uint64_t>(clock_step(order_.fault));
    if (seconds != 0)
      trace(PTRACE_POKEDATA, tid, reinterpret_cast<void*>(seconds),
            reinterpret_cast<void*>(word_of(tid, seconds) + step));
    if (registers.orig_rax == SYS_time) registers.rax += step;
  } else {
    registers.rax = static_cast<decltype(registers.rax)>(-error_number(order_.fault));
  }
  trace(PTRACE_SETREGS, tid, nullptr, &registers);
  thread.due.reset();
}

/// Of whom the C libraries' functions were called: whatever else lies on the stack may be left from earlier calls.
bool Tracer::made_inside(pid_t process, uint64_t stack) const {
  const std::vector<Mapping> mappings = mappings_of(process);
  bool found = false;
  for_each_word(memory_of(process, stack, kNearCallers), [&](uint64_t word) {
    const Mapping* mapping = mapping_with(mappings, word);
    if (mapping == nullptr || !mapping->executable || !follows_call(process, word)) return true;
    const std::string name = base_name(mapping->file);
    if (is_of_c_library(name)) return true;
    found = name == order_.inside;
    return false;
  });
  return found;
}

void Tracer::note(const Thread& thread, const Call& call, uint64_t stack) {
  outcome_.process = thread.process;
  outcome_.call = name_of(call.number);
  outcome_.operand = operand_of(call);
  outcome_.arguments = arguments_of(thread.process);
  const std::vector<Mapping> mappings = mappings_of(call.process);
  for_each_word(memory_of(call.process, stack, kStackRead), [&](uint64_t word) {
    const Mapping* mapping = mapping_with(mappings, word);
    if (mapping == nullptr || !mapping->executable || !follows_call(call.process, word)) return true;
    const std::string name = base_name(mapping->file);
    if (name.rfind("situla", 0) != 0 && name != "spank_situla.so") return true;
    std::ostringstream text;
    text << name << "+0x" << std::hex << word - mapping->begin + mapping->offset;
    outcome_.callers.push_back(text.str());
    return outcome_.callers.size() < kMostCallers;
  });
}

}  // namespace situla::faults
