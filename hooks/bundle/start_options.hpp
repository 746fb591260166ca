// How is a start told what it shall be? The options that `situla start` and every bundle have, declared once.
#pragma once

#include <string>
#include <vector>

#include "hooks/arguments/arguments.hpp"
#include "hooks/containers/request.hpp"

namespace situla {

inline void add_environment_option(
    const Command& command, std::vector<std::string>& words,
    const std::string& meaning = "Set a variable in the container; without a value, to the caller's") {
  command.option("-e,--env", words, meaning).value("KEY[=VALUE]").one_at_a_time();
}

inline void add_start_options(const Command& command, StartOptions& start, const std::string& configuration) {
  command.option("-c,--conf", start.configuration, configuration).value("FILE");
  add_environment_option(command, start.environment);
  command.option("-m,--mount", start.mounts, "Mount something: the fields of an fstab line")
      .value("SRC:DST[:TYPE[:OPTIONS]]")
      .one_at_a_time();
  command.option("--rc", start.rc, "Script that runs in place of the image's /etc/rc").value("FILE");
  command.flag("-r,--root", start.root, "Be root inside");
  command.flag("-w,--rw", start.writable, "Make the root file system writable");
}

}  // namespace situla
