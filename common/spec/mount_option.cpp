#include "common/spec/mount_option.hpp"

#include <algorithm>
#include <string>

#include "common/base/text.hpp"
#include "common/spec/mount_words.hpp"

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

/// No shell expands it behind an option's '='.
std::string with_home(std::string_view path) {
  const bool is_home = path == "~" || path.starts_with("~/");
  return is_home ? "$HOME" + std::string(path.substr(1)) : std::string(path);
}

/// With the flags that it has by itself, and no target yet.
Result<MountOption> option_of_source(std::string_view entry, std::string_view source) {
  MountOption option;
  if (is_path(source)) {
    option.source = source;
    option.flags = {"x-create=auto", "rbind"};
    return option;
  }
  if (source == "tmpfs") {
    option.kind = MountOption::Kind::tmpfs;
    option.flags = {"x-create=dir"};
    return option;
  }
  if (source == "umount") {
    option.kind = MountOption::Kind::umount;
    option.flags = {"x-detach"};
    return option;
  }
  constexpr std::string_view kWanted = "the source must begin with '/' or './', or be \"tmpfs\" or \"umount\"";
  // What stands alone between commas, and was meant for the mount before.
  if (find_mount_word(entry) != nullptr)
    return fail(invalid_mount(entry, kWanted, "flags are joined by '+': /data:/data:ro+noexec"));
  return fail(invalid_mount(entry, kWanted, "for what is in this directory write ./" + printable(entry)));
}

/// hooks/mount/step.cpp looks again when variables have been replaced.
Result<void> check_flags(const MountOption& option) {
  if (option.kind == MountOption::Kind::tmpfs) return {};
  for (const std::string& flag : option.flags) {
    if (find_mount_word(flag) != nullptr || flag.starts_with("x-") || flag.find('$') != std::string::npos) continue;
    const std::string target = printable(option.target);
    return fail(unknown_mount_flag(option.kind == MountOption::Kind::umount
                                       ? "unmount " + target
                                       : "bind " + printable(option.source) + " on " + target,
                                   flag));
  }
  return {};
}

Result<MountOption> parse_entry(std::string_view entry) {
  const auto source_and_rest = cut(entry, ':');
  const std::string source = with_home(source_and_rest ? source_and_rest->first : entry);
  std::string target = source;
  std::string_view flags;
  if (source_and_rest) {
    const auto target_and_flags = cut(source_and_rest->second, ':');
    target = with_home(target_and_flags ? target_and_flags->first : source_and_rest->second);
    if (target_and_flags) flags = target_and_flags->second;
  }
  if (source.empty()) return fail(invalid_mount(entry, "the source is empty"));
  if (target.empty()) return fail(invalid_mount(entry, "the target is empty"));
  const auto words = split_nonempty(flags, '+');
  const bool is_image = std::find(words.begin(), words.end(), "sqsh") != words.end();
  // A file's name alone is no word of ours: nobody means a tmpfs by data.sqsh.
  TRY_ASSIGN(MountOption option, option_of_source(entry, is_image && !is_path(source) ? "./" + source : source));
  if (!is_path(target)) return fail(invalid_mount(entry, "the target must be a relative path or an absolute path"));
  option.target = std::move(target);
  for (const std::string_view flag : words) option.flags.emplace_back(flag);
  TRY(check_flags(option));
  return option;
}

}  // namespace

Error unknown_mount_flag(std::string_view mount, std::string_view flag) {
  std::vector<std::string_view> known;
  for (const MountWord& each : kMountWords) known.push_back(each.word);
  const auto near = closest(flag, known);
  return Error(ErrorKind::usage, std::string(mount) + ": unknown flag \"" + printable(flag) + '"')
      .with_code(ErrorCode::mount_syntax)
      .with_hint(near ? "did you mean \"" + std::string(*near) + "\"?" : "flags are those of mount(8): ro, noexec");
}

Error no_mount_source(const MountOption& option, std::string_view source) {
  return Error(ErrorKind::not_found, printable(option.origin) + ": source path does not exist: " + printable(source))
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
