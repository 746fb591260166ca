#include "hooks/store/house_commands.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/base/text.hpp"
#include "hooks/store/housekeeping.hpp"

namespace situla {

bool is_house_command(const std::string& word) {
  constexpr std::array<std::string_view, 5> kWords = {"images", "prune", "rm", "pin", "verify"};
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

Result<void> run_house_command(const ImageStore& store, const std::vector<std::string>& words,
                               std::optional<uid_t> user, std::ostream& out, int64_t now) {
  if (words.empty() || !is_house_command(words[0])) return fail(ErrorKind::usage, "store: there is no such command");
  Housekeeping::Prune prune;
  bool json = false, undo = false, metrics = false, force = false;
  std::vector<std::string> names;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool has_value = word == "--unused-for" || word == "--to";
    if (has_value && i + 1 == words.size()) return fail(ErrorKind::usage, "store: " + word + " needs a value");
    const auto number = has_value ? parse_unsigned(words[++i]) : std::nullopt;
    if (word == "--unused-for" && number && *number <= INT32_MAX)
      prune.unused_for = std::chrono::seconds(*number);
    else if (word == "--to" && number)
      prune.to = number;
    else if (word == "--json")
      json = true;
    else if (word == "--metrics")
      metrics = true;
    else if (word == "--force")
      force = true;
    else if (word == "--undo")
      undo = true;
    else if (word == "--dry-run")
      prune.dry_run = true;
    else if (word.starts_with("--"))
      return fail(ErrorKind::usage, "store: " + printable(word) + " is not an option, or its value is no number");
    else
      names.push_back(word);
  }
  const Housekeeping house(store, out, now, user);
  if (words[0] == "images") return metrics ? house.metrics() : house.show(json);
  if (words[0] == "prune") return house.prune(prune);
  if (words[0] == "verify") return house.verify(names);
  return words[0] == "rm" ? house.remove(names, force) : house.pin(names, !undo);
}

}  // namespace situla
