// What does another process have: memory, descriptors, mappings?
#pragma once

#include <string>
#include <vector>

#include <stdint.h>
#include <sys/types.h>

namespace situla::faults {

struct Mapping {
  uint64_t begin = 0, end = 0, offset = 0;
  bool executable = false;
  std::string file;
};
std::vector<Mapping> mappings_of(pid_t process);

/// Up to so many bytes; fewer where its memory ends.
std::string memory_of(pid_t process, uint64_t address, size_t size);
/// A string that ends with a null byte.
std::string text_of(pid_t process, uint64_t address);
uint64_t word_of(pid_t process, uint64_t address);

/// Path of its program, and its arguments.
std::string program_of(pid_t process);
/// By which name it was executed, of which the kernel keeps 15 characters.
std::string command_of(pid_t process);
std::vector<std::string> arguments_of(pid_t process);
/// Where its dynamic loader is mapped; 0 without one.
uint64_t loader_of(pid_t process);

struct Descriptor {
  bool open = false;
  bool regular = false;    ///< a file of a file system that has a disk, or could have one
  bool in_kernel = false;  ///< of /proc, /sys, cgroups
  bool waits = false;      ///< a pipe, socket, terminal: something that a call can wait for
  bool nonblocking = false;
  bool stream = false;  ///< a pipe, or a socket of type SOCK_STREAM
  std::string target;   ///< what /proc shows
};
Descriptor descriptor_of(pid_t process, int number);

}  // namespace situla::faults
