#include "common/spec/mount_option.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
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
  if (is_registry_image(source)) {
    if (source.find('$') == std::string_view::npos) TRY(ImageReference::parse(source));
    option.source = source;
    option.flags = {"x-create=auto", "image"};
    return option;
  }
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
  constexpr std::string_view kWanted =
      "the source must begin with '/', './' or 'docker://', or be \"tmpfs\" or \"umount\"";
  if (entry.ends_with(":image"))
    return fail(invalid_mount(entry, kWanted, "an image of a registry is mounted as docker://IMAGE:TAG:/DST:image"));
  // What stands alone between commas, and was meant for the mount before.
  if (find_mount_word(entry) != nullptr)
    return fail(invalid_mount(entry, kWanted, "flags are joined by '+': /data:/data:ro+noexec"));
  return fail(invalid_mount(entry, kWanted, "for what is in this directory write ./" + printable(entry)));
}

bool is_image(const MountOption& option) {
  const auto has = [&](const char* word) {
    return std::find(option.flags.begin(), option.flags.end(), word) != option.flags.end();
  };
  return has("image") || has("sqsh");
}

/// hooks/mount/step.cpp looks again when variables have been replaced.
Result<void> check_flags(const MountOption& option) {
  if (option.kind == MountOption::Kind::tmpfs) return {};
  for (const std::string& flag : option.flags) {
    if (find_mount_word(flag) != nullptr || flag.starts_with("x-") || flag.find('$') != std::string::npos) continue;
    if (flag.starts_with(kSubpath) && (is_image(option) || option.source.find('$') != std::string::npos)) continue;
    const std::string target = printable(option.target);
    return fail(unknown_mount_flag(option.kind == MountOption::Kind::umount
                                       ? "unmount " + target
                                       : "bind " + printable(option.source) + " on " + target,
                                   flag));
  }
  return {};
}

}  // namespace

// Of a reference's own colons none is followed by what begins a path, but for variables: $TAG, or the target's. What
// has a tag or a digest is whole.
std::optional<std::pair<std::string_view, std::string_view>> cut_mount_source(std::string_view entry) {
  if (!is_registry_image(entry)) return cut(entry, ':');
  const auto is_whole = [&](size_t colon) {
    const std::string_view reference = entry.substr(kRegistryScheme.size(), colon - kRegistryScheme.size());
    return reference.substr(reference.rfind('/') + 1).find(':') != std::string_view::npos;
  };
  size_t found = std::string_view::npos;
  bool whole = false;
  for (size_t colon = entry.find(':', kRegistryScheme.size()); colon != std::string_view::npos;
       colon = entry.find(':', colon + 1)) {
    const char next = colon + 1 < entry.size() ? entry[colon + 1] : ' ';
    if (next == '/' || next == '.' || next == '~') {
      if (!whole) found = colon;
      break;
    }
    if (next != '$' || whole) continue;
    found = colon;
    whole = is_whole(colon);
  }
  if (found == std::string_view::npos) return std::nullopt;
  return std::pair(entry.substr(0, found), entry.substr(found + 1));
}

Result<MountOption> parse_mount_entry(std::string_view entry) {
  const auto source_and_rest = cut_mount_source(entry);
  if (is_registry_image(entry) && !source_and_rest)
    return fail(invalid_mount(entry, "an image needs a target", "write docker://IMAGE:TAG:/DST:image"));
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
  std::vector<std::string_view> words;
  for (const std::string_view part : split_nonempty(flags, '+'))
    for (const std::string_view word : split_nonempty(part, ',')) words.push_back(word);
  const bool is_file = std::find(words.begin(), words.end(), "sqsh") != words.end() && !is_registry_image(source);
  // A file's name alone is no word of ours: nobody means a tmpfs by data.sqsh.
  TRY_ASSIGN(MountOption option, option_of_source(entry, is_file && !is_path(source) ? "./" + source : source));
  if (!is_path(target)) return fail(invalid_mount(entry, "the target must be a relative path or an absolute path"));
  option.target = std::move(target);
  for (const std::string_view flag : words)
    if (flag != "image" || !is_registry_image(source)) option.flags.emplace_back(flag);
  // "subpath=usr/include/c++"
  const bool cut_off = flags.find("++") != std::string_view::npos || flags.ends_with('+');
  if (cut_off && flags.find(kSubpath) != std::string_view::npos)
    return fail(invalid_mount(entry, "a subpath cannot have a '+' in it", "mount the directory above it"));
  TRY(check_flags(option));
  return option;
}

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
    TRY_ASSIGN(MountOption option, parse_mount_entry(entry));
    if (std::find(options.begin(), options.end(), option) == options.end()) options.push_back(std::move(option));
  }
  return options;
}

}  // namespace situla
