// list and remove: the containers under ENROOT_DATA_PATH.
#include <algorithm>
#include <filesystem>
#include <istream>
#include <memory>
#include <ostream>

#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

bool is_directory(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

Result<int> list(const Context& context) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(context.config.data_path(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with('.') && is_directory(it->path().string())) names.push_back(name);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return fail_errno(error.value(), "read " + context.config.data_path());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) context.streams.out << name << '\n';
  return 0;
}

bool confirmed(const Context& context, const std::string& path) {
  context.streams.err << "Do you really want to delete " << path << "? [y/N] " << std::flush;
  std::string answer;
  std::getline(context.streams.in, answer);
  return trim(answer) == "y" || trim(answer) == "Y";
}

Result<void> remove_one(const Context& context, const std::string& name, bool force) {
  TRY_ASSIGN(const std::string path, container_path(context.config, name));
  if (!is_directory(path)) return fail(no_such_file(path));
  if (!force && !confirmed(context, path)) return {};
  return remove_tree(path);
}

}  // namespace

Result<std::string> container_path(const EnrootConfig& config, std::string_view name) {
  if (name.empty() || name.starts_with('.') || name.find('/') != std::string_view::npos)
    return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(name))
                    .with_hint("a container's name has no slash and does not begin with a dot"));
  return config.data_path() + "/" + std::string(name);
}

Error already_exists(const std::string& path) {
  return Error(ErrorKind::exists, "File already exists: " + path).with_hint("--force replaces it");
}

Error no_such_file(const std::string& path) {
  return {ErrorKind::not_found, "No such file or directory: " + path};
}

void add_list(CLI::App& app, Actions& actions) {
  CLI::App* command = app.add_subcommand("list", "List the containers");
  auto fancy = std::make_shared<bool>(false);
  command->add_flag("-f,--fancy", *fancy, "Show the processes that run in them");
  actions["list"] = [fancy](const Context& context) -> Result<int> {
    if (*fancy) return fail(ErrorKind::unsupported, "list --fancy is not supported yet");
    return list(context);
  };
}

void add_remove(CLI::App& app, Actions& actions) {
  struct Options {
    bool force = false;
    std::vector<std::string> names;
  };
  CLI::App* command = app.add_subcommand("remove", "Delete containers");
  auto options = std::make_shared<Options>();
  command->add_flag("-f,--force", options->force, "Do not ask");
  command->add_option("NAME", options->names, "Names as list prints them")->required();
  actions["remove"] = [options](const Context& context) -> Result<int> {
    for (const std::string& name : options->names) TRY(remove_one(context, name, options->force));
    return 0;
  };
}

}  // namespace situla::cli
