#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/text.hpp"
#include "common/protocol/slurm_inside.hpp"
#include "common/sys/socket.hpp"
#include "hooks/slurm/command_line.hpp"
#include "hooks/slurm/host_command.hpp"
#include "hooks/slurm/messages.hpp"
#include "hooks/slurm/nested.hpp"
#include "hooks/slurm/outside.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

/// Strict: of each there is one form.
template <typename Decode, typename Encode>
void check(std::string_view bytes, const Decode& decode, const Encode& encode) {
  const auto item = decode(bytes);
  if (item && encode(*item) != bytes) std::abort();
}

/// What is in the container alone never becomes a path of the host, whatever the command line is.
void translate(const std::string& command, const std::vector<std::string>& words) {
  ContainerFiles files;
  files.open = [](const std::string& path) -> Result<UniqueFd> {
    if (path.ends_with('x')) return fail_errno(ENOENT, "open " + path);
    TRY_ASSIGN(UniqueFd file, memory_file("file"));
    TRY(write_memory(file.get(), "#!/bin/sh\n#SBATCH -N1\n"));
    return file;
  };
  files.host_path = [](const std::string& path) -> Result<std::optional<std::string>> {
    if (path.starts_with("/data")) return std::optional<std::string>("/host" + path);
    return std::optional<std::string>();
  };
  slurm_line::Request request;
  request.command = command;
  request.arguments = words;
  request.directory = "/work";
  for (const bool batch : {false, true}) {
    const auto made = host_command(request, files, {batch, false});
    if (!made || command == "squeue") continue;
    for (const std::string& word : made->arguments) {
      const bool names_place =
          word.starts_with("--output=/") || word.starts_with("--error=/") || word.starts_with("--chdir=/");
      const std::string_view path = std::string_view(word).substr(word.find('=') + 1);
      if (names_place && !path.starts_with("/host/data") && !path.starts_with("/dev/") &&
          std::find(words.begin(), words.end(), word) == words.end())
        std::abort();
    }
  }
}

}  // namespace

/// The first byte says what it is; words are separated by line feeds.
void situla::fuzz(std::string_view input) {
  if (input.empty()) return;
  const char kind = input.front();
  const std::string text(input.substr(1));
  check(text, slurm_line::decode, slurm_line::encode);
  check(text, slurm_line::decode_request, slurm_line::encode_request);
  check(text, slurm_line::decode_inside, slurm_line::encode_inside);
  check(text, decode_slurm_proxy_input, encode_slurm_proxy_input);
  if (const auto door = SlurmDoor::parse(text)) {
    const auto again = SlurmDoor::parse(door->text());
    if (!again || again->address != door->address || again->token != door->token) std::abort();
  }
  (void)kept_export(text);
  const auto table = parse_mount_table(text);
  (void)host_candidates(table, table.empty() ? 0 : table.front().id, "/x", table);
  std::vector<std::string> words;
  for (const std::string_view word : split(text, '\n')) words.emplace_back(word);
  constexpr std::array<const char*, 5> kCommands = {"srun", "sbatch", "salloc", "sbcast", "squeue"};
  translate(kCommands.at(static_cast<uint8_t>(kind) % kCommands.size()), words);
}
