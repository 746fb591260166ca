#include <cstdlib>
#include <string>

#include "common/base/text.hpp"
#include "hooks/config/config_lines.hpp"
#include "hooks/squashfs/squash_options.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

void check_value(const std::string& value, const Environment& environment) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _/.,:+=@%-";
  if (value.find_first_not_of(kPlain) != std::string::npos || value.find("  ") != std::string::npos) std::abort();
  // What was printed has nothing in it that would be evaluated a second time.
  if (const auto again = evaluate_plainly(value, environment); again && *again != value) std::abort();
}

}  // namespace

/// Lines of enroot.conf as far as no shell is needed for them, and the options of mksquashfs that it may have.
void situla::fuzz(std::string_view bytes) {
  NullLog log;
  Environment environment;
  environment.set("HOME", "/home/user");
  environment.set("WORDS", "  two words ");
  environment.set("NOT_PLAIN", "$(id)");
  for (const ConfigLine& line : parse_config_lines(bytes, "enroot.conf", log)) {
    if (!is_configuration_key(line.key) || !is_variable_name(line.key)) std::abort();
    if (line.raw.empty() || line.raw.find_first_of(std::string_view("\n\0", 2)) != std::string::npos) std::abort();
    const auto value = evaluate_plainly(line.raw, environment);
    if (!value) continue;
    check_value(*value, environment);
    environment.set(line.key, *value);
  }
  for (const std::string_view words : {bytes, environment.get("ENROOT_SQUASH_OPTIONS").value_or("")}) {
    const auto options = SquashOptions::parse(words, log);
    if (!options) continue;
    const uint32_t block = options->block_bytes;
    if (block < 4096 || block > 1U << 20U || (block & (block - 1)) != 0) std::abort();
  }
}
