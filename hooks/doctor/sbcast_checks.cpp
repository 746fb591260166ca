#include <filesystem>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/run_program.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/store_checks.hpp"

namespace situla::doctor {
namespace {

constexpr const char* kMunge = "munge";
constexpr std::chrono::seconds kAnswers{5};
constexpr const char* kStartMunge =
    "start munged, with one key on all nodes: systemctl start munge; its log says what is wrong";

/// What the program prints when it reads `input`; the error has what it says of itself.
Result<std::string> answer_of(const std::string& program, const std::vector<std::string>& arguments,
                              const std::string& input, const Environment& environment) {
  TRY_ASSIGN(auto pipe, make_pipe());
  TRY(write_all(pipe.second.get(), input));  // less than a pipe holds
  pipe.second.reset();
  SpawnOptions options;
  options.program = program;
  options.arguments = {program};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.environment = environment.strings();
  options.fds = {{pipe.first.get(), STDIN_FILENO}};
  RunLimits limits;
  limits.time = kAnswers;
  limits.error_bytes = limits.output_bytes;
  TRY_ASSIGN(const ProgramRun run, run_program(std::move(options), limits));
  const std::string name = std::filesystem::path(program).filename().string();
  if (run.end == ProgramRun::End::too_late)
    return fail(ErrorKind::failure, name + " gives no answer in " + std::to_string(kAnswers.count()) + " s");
  if (run.success()) return run.output;
  const std::string said(trim(run.errors));
  return fail(ErrorKind::failure, name + (said.empty() && run.status ? " " + run.status->text() : ": " + said));
}

/// "UID:              situla (998)" of unmunge's lines.
std::optional<uint64_t> uid_in(const std::string& decoded) {
  for (const std::string_view line : split_nonempty(decoded, '\n')) {
    const size_t open = line.rfind('('), close = line.rfind(')');
    if (line.starts_with("UID:") && open != std::string_view::npos && close != std::string_view::npos && open < close)
      return parse_unsigned(line.substr(open + 1, close - open - 1));
  }
  return std::nullopt;
}

}  // namespace

Check check_sbcast(const SlurmFiles& files, const Environment& environment) {
  std::vector<std::string> missing;
  for (const char* name : {"sbcast", kMunge, "unmunge"})
    if (!find_program(name, environment)) missing.emplace_back(name);
  if (!missing.empty())
    return {"sbcast", State::fail, "missing: " + join(missing, ", "),
            "install Slurm's commands and munge, or set distribute = \"registry\" in situla.toml"};
  if (files.one_address && files.bcast_addresses)
    return {"sbcast", State::fail,
            files.slurm_conf + ": slurmd listens at NodeAddr alone (NoInAddrAny), and sbcast goes to BcastAddr",
            "take NoInAddrAny out of CommunicationParameters, or BcastAddr out of the nodes' lines"};
  return {"sbcast", State::ok, *find_program("sbcast", environment), ""};
}

Check check_munge(const std::string& user, const Environment& environment) {
  const auto encoder = find_program(kMunge, environment), decoder = find_program("unmunge", environment);
  if (!encoder || !decoder) return {kMunge, State::info, "not tried: see the line sbcast", ""};
  const Result<std::string> credential = answer_of(*encoder, {"--no-input"}, "", environment);
  if (!credential) return check_of(kMunge, State::fail, credential.error(), kStartMunge);
  const Result<std::string> decoded = answer_of(*decoder, {}, *credential, environment);
  if (!decoded) return check_of(kMunge, State::fail, decoded.error(), kStartMunge);
  const std::optional<uint64_t> uid = uid_in(*decoded);
  if (uid == geteuid()) return {kMunge, State::ok, user + " encodes and decodes", ""};
  return {kMunge, State::fail,
          "what " + user + " (uid " + std::to_string(geteuid()) + ") encodes is decoded as " +
              (uid ? "uid " + std::to_string(*uid) : "no uid"),
          kStartMunge};
}

Check check_incoming(const std::string& path) {
  Check check{"sbcast-incoming", State::ok, path, ""};
  const std::string place = existing(path);
  if (place != path) check.found += " (made when it is needed)";
  const MountedFrom from = mounted_from(place);
  if (!from.type.empty()) check.found += " on " + from.type;
  const bool memory = from.kind == FileSystemKind::memory;
  if (!memory && from.kind != FileSystemKind::network) return check;
  check.state = State::warn;
  check.found += memory ? ": an image on its way takes memory of the node"
                        : ": an image on its way goes over the network once more, and nodes may be in each other's way";
  check.fix = "set store_path in situla.toml to a local disk of each node; this directory lies beside it";
  return check;
}

}  // namespace situla::doctor
