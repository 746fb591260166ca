// How is a start told what it shall be? The options that `situla start` and every bundle have, declared once.
#pragma once

#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "hooks/containers/request.hpp"

namespace situla {

inline void add_environment_option(
    CLI::App& app, std::vector<std::string>& words,
    const std::string& meaning = "Set a variable in the container; without a value, to the caller's") {
  app.add_option("-e,--env", words, meaning)->type_name("KEY[=VALUE]")->allow_extra_args(false);
}

inline void add_start_options(CLI::App& app, StartOptions& start, const std::string& configuration) {
  app.add_option("-c,--conf", start.configuration, configuration)->type_name("FILE");
  add_environment_option(app, start.environment);
  app.add_option("-m,--mount", start.mounts, "Mount something: the fields of an fstab line")
      ->type_name("SRC:DST[:TYPE[:OPTIONS]]")
      ->allow_extra_args(false);
  app.add_option("--rc", start.rc, "Script that runs in place of the image's /etc/rc")->type_name("FILE");
  app.add_flag("-r,--root", start.root, "Be root inside");
  app.add_flag("-w,--rw", start.writable, "Make the root file system writable");
}

}  // namespace situla
