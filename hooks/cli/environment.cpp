// environment: which environment files are there, what do they come to, and what is wrong with them?
#include <ostream>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/edf/edf.hpp"

namespace situla::cli {

edf::EdfPlaces edf_places(const Context& context) {
  return edf::EdfPlaces::of(context.invocation.environment, current_directory(), SITULA_SYSCONF_DIR "/environments");
}

namespace {

using edf::Said;

struct EnvironmentOptions {
  std::string action;
  std::vector<std::string> names;
  bool json = false;
};

constexpr std::string_view kDefault = "default";

/// "KEY = VALUE  # FILE:LINE": what is printed is a file itself.
std::string line(const std::string& key, const std::string& value, std::string_view where) {
  return key + " = " + value + "  # " + printable(where) + "\n";
}

/// A dollar sign that is left is one; in mounts it has a backslash, for the node.
std::string quoted(const Said<std::string>& said) {
  std::string text;
  for (const char c : said.value) {
    if (c == '$' && text.ends_with('\\')) text.pop_back();
    text += c == '$' ? std::string("$$") : std::string(1, c);
  }
  return json_quote(text);
}

std::string list_text(const std::string& key, const std::vector<Said<std::string>>& list) {
  if (list.empty()) return "";
  std::string out = key + " = [\n";
  for (const auto& entry : list) out += "  " + quoted(entry) + ",  # " + printable(entry.where) + "\n";
  return out + "]\n";
}

std::string table_text(const std::string& name, const std::map<std::string, Said<std::string>>& table) {
  if (table.empty()) return "";
  std::string out = "\n[" + name + "]\n";
  const bool env = name == "env";  // its references are the node's
  for (const auto& [key, said] : table)
    out += line(env ? key : json_quote(key), env ? json_quote(said.value) : quoted(said), said.where);
  return out;
}

std::string flag_text(const std::string& key, const std::optional<Said<bool>>& flag, bool otherwise) {
  return line(key, (flag ? flag->value : otherwise) ? "true" : "false", flag ? flag->where : kDefault);
}

/// Devices that are paths are mounted as well.
std::vector<Said<std::string>> all_mounts(const edf::EdfFile& file) {
  std::vector<Said<std::string>> mounts = file.mounts;
  mounts.insert(mounts.end(), file.device_mounts.begin(), file.device_mounts.end());
  return mounts;
}

std::string shown(const edf::Edf& edf) {
  const edf::EdfFile& file = edf.combined;
  std::string out = "# " + printable(edf.name) + ": " + printable(join(edf.files, ", ")) + "\n";
  if (file.image) out += line("image", quoted(*file.image), file.image->where);
  if (file.workdir) out += line("workdir", quoted(*file.workdir), file.workdir->where);
  out += flag_text("writable", file.writable, true) + flag_text("entrypoint", file.entrypoint, true);
  out += list_text("mounts", all_mounts(file)) + list_text("devices", file.devices);
  return out + table_text("env", file.env) + table_text("annotations", file.annotations);
}

Json as_json(const Said<std::string>& said) {
  return Json::object({{"value", said.value}, {"from", said.where}});
}

Json as_json(const std::optional<Said<std::string>>& said) {
  return said ? as_json(*said) : Json();
}

Json as_json(const std::optional<Said<bool>>& said, bool otherwise) {
  return Json::object(
      {{"value", said ? said->value : otherwise}, {"from", said ? said->where : std::string(kDefault)}});
}

Json as_json(const std::vector<Said<std::string>>& list) {
  Json array = Json::list();
  for (const auto& entry : list) array.add(as_json(entry));
  return array;
}

Json as_json(const std::map<std::string, Said<std::string>>& table) {
  Json object = Json::object({});
  for (const auto& [key, said] : table) object.add(key, as_json(said));
  return object;
}

Json as_json(const edf::Edf& edf) {
  const edf::EdfFile& file = edf.combined;
  return Json::object({{"name", edf.name},
                       {"files", edf.files},
                       {"image", as_json(file.image)},
                       {"workdir", as_json(file.workdir)},
                       {"writable", as_json(file.writable, true)},
                       {"entrypoint", as_json(file.entrypoint, true)},
                       {"mounts", as_json(all_mounts(file))},
                       {"devices", as_json(file.devices)},
                       {"env", as_json(file.env)},
                       {"annotations", as_json(file.annotations)},
                       {"warnings", edf.warnings}});
}

constexpr JsonLayout kLayout{.indent = 2, .ascii = true};

Result<int> list_environments(const Context& context, const EnvironmentOptions& options) {
  const std::vector<edf::ListedEdf> listed = list_edfs(edf_places(context));
  if (options.json) {
    Json array = Json::list();
    for (const auto& each : listed)
      array.add(Json::object({{"name", each.name}, {"file", each.path}, {"hidden", each.hidden}}));
    context.streams.out << to_text(array, kLayout);
    return 0;
  }
  size_t width = 0;
  for (const auto& each : listed) width = std::max(width, printable(each.name).size());
  for (const auto& each : listed)
    context.streams.out << flush_left(printable(each.name), width) << "  " << printable(each.path)
                        << (each.hidden ? "  (hidden by the one before)" : "") << '\n';
  return 0;
}

Result<int> show_environment(const Context& context, const EnvironmentOptions& options) {
  TRY_ASSIGN(const edf::Edf edf, load_edf(options.names.front(), edf_places(context)));
  context.streams.out << (options.json ? to_text(as_json(edf), kLayout) : shown(edf));
  if (!options.json)
    for (const std::string& warning : edf.warnings) context.log.warning(printable(warning));
  return 0;
}

Result<int> resolve_environment(const Context& context, const EnvironmentOptions& options) {
  TRY_ASSIGN(const edf::Edf edf, load_edf(options.names.front(), edf_places(context)));
  TRY_ASSIGN(const std::string text, options_of(edf).to_text());
  context.streams.out << text << '\n';
  return 0;
}

Result<int> check_environments(const Context& context, const EnvironmentOptions& options) {
  const edf::EdfPlaces places = edf_places(context);
  Json array = Json::list();
  bool sound = true;
  for (const std::string& name : options.names) {
    Json problems = Json::list();
    const std::vector<Error> found = check_edf(name, places);
    for (const Error& error : found) {
      problems.add(Json::object(
          {{"message", error.message()}, {"code", std::string(to_string(error.code()))}, {"hint", error.hint()}}));
      if (!options.json) report_error(context, error);
    }
    if (found.empty() && !options.json) context.streams.out << printable(name) << ": ok\n";
    array.add(Json::object({{"name", name}, {"ok", found.empty()}, {"problems", std::move(problems)}}));
    sound = sound && found.empty();
  }
  if (options.json) context.streams.out << to_text(array, kLayout);
  return sound ? 0 : 1;
}

struct EnvironmentAction {
  std::string_view name;
  size_t least, most;  ///< names
  Result<int> (*run)(const Context&, const EnvironmentOptions&);
};
constexpr std::array<EnvironmentAction, 4> kEnvironmentActions = {{{"list", 0, 0, list_environments},
                                                                   {"show", 1, 1, show_environment},
                                                                   {"check", 1, SIZE_MAX, check_environments},
                                                                   {"resolve", 1, 1, resolve_environment}}};

Result<int> environment(const Context& context, const EnvironmentOptions& options) {
  std::vector<std::string_view> known;
  for (const EnvironmentAction& action : kEnvironmentActions) {
    known.push_back(action.name);
    if (action.name != options.action) continue;
    if (options.names.size() >= action.least && options.names.size() <= action.most)
      return action.run(context, options);
    return fail(Error(ErrorKind::usage, "environment " + options.action + ": takes " +
                                            (action.most == 0   ? "no name"
                                             : action.most == 1 ? "the name or the path of one environment"
                                                                : "names or paths of environments"))
                    .with_code(ErrorCode::option));
  }
  return fail(Error(ErrorKind::usage, "environment " + printable(options.action) + ": not known")
                  .with_code(ErrorCode::option)
                  .with_hint(suggestion(options.action, known, "known words")));
}

}  // namespace

void add_environment(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "environment",
                  "Look at environment files: environment list, show NAME|FILE, check NAME|FILE..., resolve NAME|FILE",
                  environment);
  command.option("ACTION", options.action, "list, show, check, or resolve, which is for srun").value("").required();
  command.option("NAME", options.names, "NAME.toml in EDF_PATH or the site's directory, or the path of a file")
      .value("");
  command.flag("--json", options.json, "Print one JSON document");
}

}  // namespace situla::cli
