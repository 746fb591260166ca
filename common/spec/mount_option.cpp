#include "common/spec/mount_option.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "common/base/text.hpp"

namespace situla {
namespace {

Error invalid_mount(std::string_view entry, std::string_view reason, std::string_view hint = "") {
  const std::string_view usual = "write mounts as SRC[:DST[:FLAGS]], for example /data:/data:ro";
  return Error(ErrorKind::usage, "invalid mount '" + printable(entry) + "': " + std::string(reason))
      .with_code(ErrorCode::mount_syntax)
      .with_hint(has_curly_quotes(entry) ? kPlainQuotes
                 : hint.empty()          ? usual
                                         : hint);
}

/// A '$' is let through: the variable is expanded on the node, and what it gives is checked there.
bool is_path(std::string_view text) {
  return !text.empty() && std::string_view("/.$").find(text[0]) != std::string_view::npos;
}

/// What stands alone between commas, and was meant for the mount before.
bool is_flag(std::string_view entry) {
  constexpr std::array<std::string_view, 14> kFlags = {"ro",       "rw",     "exec",   "noexec",  "suid",
                                                       "nosuid",   "dev",    "nodev",  "private", "slave",
                                                       "rprivate", "rslave", "nofail", "bind"};
  return std::find(kFlags.begin(), kFlags.end(), entry) != kFlags.end();
}

/// With the flags that it has by itself, and no target yet.
Result<MountOption> option_of_source(std::string_view entry, std::string_view source) {
  // No shell expands it behind an option's '='.
  if (source == "~" || source.starts_with("~/"))
    return option_of_source(entry, "$HOME" + std::string(source.substr(1)));
  if (is_path(source)) return MountOption{MountOption::Kind::bind, std::string(source), "", {"x-create=auto", "rbind"}};
  if (source == "tmpfs") return MountOption{MountOption::Kind::tmpfs, "", "", {"x-create=dir"}};
  if (source == "umount") return MountOption{MountOption::Kind::umount, "", "", {"x-detach"}};
  constexpr std::string_view kWanted = "the source must begin with '/' or './', or be \"tmpfs\" or \"umount\"";
  if (is_flag(entry)) return fail(invalid_mount(entry, kWanted, "flags are joined by '+': /data:/data:ro+noexec"));
  return fail(invalid_mount(entry, kWanted, "for what is in this directory write ./" + printable(entry)));
}

Result<MountOption> parse_entry(std::string_view entry) {
  const auto source_and_rest = cut(entry, ':');
  const std::string_view source = source_and_rest ? source_and_rest->first : entry;
  std::string_view target = source;
  std::string_view flags;
  if (source_and_rest) {
    const auto target_and_flags = cut(source_and_rest->second, ':');
    target = target_and_flags ? target_and_flags->first : source_and_rest->second;
    if (target_and_flags) flags = target_and_flags->second;
  }
  if (source.empty()) return fail(invalid_mount(entry, "the source is empty"));
  if (target.empty()) return fail(invalid_mount(entry, "the target is empty"));
  const auto words = split_nonempty(flags, '+');
  const bool is_image = std::find(words.begin(), words.end(), "sqsh") != words.end();
  // A file's name alone is no word of ours: nobody means a tmpfs by data.sqsh.
  const bool bare = is_image && !is_path(source) && !source.starts_with('~');
  const std::string path = bare ? "./" + std::string(source) : std::string(source);
  TRY_ASSIGN(MountOption option, option_of_source(entry, path));
  if (!is_path(target)) return fail(invalid_mount(entry, "the target must be a relative path or an absolute path"));
  option.target = target;
  for (const std::string_view flag : words) option.flags.emplace_back(flag);
  return option;
}

}  // namespace

Error no_mount_source(std::string_view source) {
  return Error(ErrorKind::not_found, "--container-mounts: source path does not exist: " + printable(source))
      .with_code(ErrorCode::mount_source)
      .with_hint(
          "it is looked for on the compute node, from the job's directory; with the flag nofail (SRC:DST:nofail) it is "
          "left out");
}

Result<std::vector<MountOption>> parse_mount_options(std::string_view value) {
  std::vector<MountOption> options;
  for (const std::string_view entry : split(value, ',')) {
    if (entry.find('\0') != std::string_view::npos) return fail(invalid_mount(entry, "it holds a NUL byte"));
    TRY_ASSIGN(MountOption option, parse_entry(entry));
    if (std::find(options.begin(), options.end(), option) == options.end()) options.push_back(std::move(option));
  }
  return options;
}

}  // namespace situla
