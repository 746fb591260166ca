#include "hooks/mount/fstab.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/mount/source.hpp"

namespace situla {
namespace {

/// Takes dump frequency and pass number off the end. One number alone, or a zero pass number, leaves the pass in the
/// frequency's column, where enroot accepts it.
int take_numbers(std::vector<std::string_view>& fields) {
  std::vector<int> numbers;
  while (fields.size() > 2 && numbers.size() < 2) {
    const std::optional<int> number = parse_integer(fields.back());
    if (!number) break;
    numbers.insert(numbers.begin(), *number);
    fields.pop_back();
  }
  if (numbers.empty()) return 0;
  return numbers.back() != 0 ? numbers.back() : numbers.front();
}

int pass_of(std::string_view line) {
  std::vector<std::string_view> fields = split_words(line);
  return take_numbers(fields);
}

std::vector<std::string> option_list(std::string_view field) {
  std::vector<std::string> words;
  for (const std::string_view word : split_nonempty(field, ',')) words.push_back(unescape_octal(word));
  return words;
}

/// Missing fields: `tmpfs /x`, `/src`, `/src bind`, `/src /dst`, `/src /dst bind`, `none /x devpts`.
MountFields assign_fields(const std::vector<std::string_view>& fields) {
  const std::vector<std::string> whole_path = {"rbind", "x-create=auto"};
  MountFields assigned;
  assigned.source = unescape_octal(fields[0]);
  const bool is_path = fields[0].starts_with('/') || fields[0].starts_with('.');
  if (fields.size() == 1) {
    if (is_path) assigned.target = assigned.source;
    assigned.options = whole_path;
    return assigned;
  }
  if (fields.size() == 2 && is_path && !fields[1].starts_with('/') && is_mount_option(fields[1])) {
    assigned.target = assigned.source;
    assigned.options = option_list(fields[1]);
    return assigned;
  }
  assigned.target = unescape_octal(fields[1]);
  if (fields.size() == 2) {
    if (is_path) assigned.options = whole_path;
    if (is_registry_image(assigned.source)) assigned.options = {"image", "x-create=auto"};
  } else if (fields.size() == 3) {
    if (is_mount_option(fields[2]))
      assigned.options = option_list(fields[2]);
    else
      assigned.type = unescape_octal(fields[2]);
  } else {
    assigned.type = unescape_octal(fields[2]);
    assigned.options = option_list(fields[3]);
  }
  return assigned;
}

}  // namespace

std::optional<int> parse_integer(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string expand_braced(std::string_view text, const Environment& environment) {
  std::string expanded;
  for (size_t dollar = 0; (dollar = text.find("${")) != std::string_view::npos;) {
    expanded += text.substr(0, dollar);
    const size_t end = text.find('}', dollar);
    const std::string_view name =
        end == std::string_view::npos ? std::string_view() : text.substr(dollar + 2, end - dollar - 2);
    if (is_variable_name(name)) {
      expanded += environment.get(name).value_or("");
      text.remove_prefix(end + 1);
    } else {
      expanded += "${";
      text.remove_prefix(dollar + 2);
    }
  }
  return expanded += text;
}

Result<FstabEntry> parse_fstab_line(std::string_view line, const std::string& origin) {
  std::vector<std::string_view> fields = split_words(line);
  if (fields.empty()) return fail(Error(ErrorKind::usage, origin + ": empty mount").with_code(ErrorCode::mount_syntax));
  if (line.find('\0') != std::string_view::npos)
    return fail(Error(ErrorKind::usage, origin + ": the line holds a NUL byte").with_code(ErrorCode::mount_syntax));
  FstabEntry entry;
  entry.pass = take_numbers(fields);
  if (fields.size() > 4)
    return fail(Error(ErrorKind::usage, origin + ": too many fields in '" + printable(line) + "'")
                    .with_code(ErrorCode::mount_syntax)
                    .with_hint("write blanks inside a field as \\040"));
  TRY_ASSIGN(entry.step, make_step(assign_fields(fields), origin));
  return entry;
}

namespace {

/// Lines of passes that are not wanted may hold what we would not understand, as an fstab of a real system has them.
Result<std::vector<FstabEntry>> parse_lines(const std::vector<std::string>& lines, const std::vector<int>& passes,
                                            const std::string& where) {
  std::vector<FstabEntry> entries;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = trim(lines[i]);
    if (line.empty() || line.front() == '#') continue;
    if (std::find(passes.begin(), passes.end(), pass_of(line)) == passes.end()) continue;
    TRY_ASSIGN(FstabEntry entry, parse_fstab_line(line, where + ":" + std::to_string(i + 1)));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

Result<std::vector<FstabEntry>> parse_fstab(std::string_view text, const Environment& environment,
                                            const std::string& where) {
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n')) lines.push_back(expand_braced(line, environment));
  return parse_lines(lines, {-1, 0}, where);
}

Result<std::vector<MountStep>> parse_literal_fstab(std::string_view text, int pass, const std::string& where) {
  const std::vector<std::string_view> lines = split(text, '\n');
  TRY_ASSIGN(std::vector<FstabEntry> entries, parse_lines({lines.begin(), lines.end()}, {pass}, where));
  std::vector<MountStep> steps;
  for (FstabEntry& entry : entries) steps.push_back(std::move(entry.step));
  return steps;
}

namespace {

/// Somebody is there who can write it right; in a file of the site's or of the image's an unknown word is a warning.
Result<void> check_words(const MountStep& step) {
  if (step.ignored.empty()) return {};
  return fail(unknown_mount_flag(operand(step), step.ignored.front()).with_context(step.origin));
}

Result<MountStep> make_known_step(const MountFields& fields, const std::string& origin) {
  TRY_ASSIGN(MountStep step, make_step(fields, origin));
  TRY(check_words(step));
  return step;
}

/// NGC's login is called so.
std::string expand_source(std::string_view source, const Environment& environment) {
  const std::string login = std::string(kRegistryScheme) + "$oauthtoken@";
  if (!source.starts_with(login)) return expand_variables(source, environment);
  return login + expand_variables(source.substr(login.size()), environment);
}

}  // namespace

Result<MountStep> step_from_option(const MountOption& option, const Environment& environment) {
  const std::string origin = printable(option.origin);
  MountFields fields;
  fields.target = expand_variables(option.target, environment);
  for (const std::string& flag : option.flags) fields.options.push_back(expand_variables(flag, environment));
  switch (option.kind) {
    case MountOption::Kind::bind:
      fields.source = expand_source(option.source, environment);
      break;
    case MountOption::Kind::tmpfs:
      fields.source = fields.type = "tmpfs";
      break;
    case MountOption::Kind::umount:
      fields.source = fields.type = "none";
      break;
    case MountOption::Kind::script:
      return MountStep{.source = option.source,
                       .target = option.target,
                       .create = CreateTarget::file,
                       .flags = {.read_only = true, .no_suid = true, .no_dev = true},
                       .propagation = Propagation::private_mount,
                       .origin = "batch script"};
  }
  const auto is_path = [](std::string_view text) { return text.starts_with('/') || text.starts_with('.'); };
  const bool source_ok =
      option.kind != MountOption::Kind::bind || is_path(fields.source) || is_registry_image(fields.source);
  if (!source_ok || !is_path(fields.target)) {
    const std::string& written = source_ok ? option.target : option.source;
    const std::string& given = source_ok ? fields.target : fields.source;
    return fail(Error(ErrorKind::usage, origin + ": '" + printable(written) + "' gives '" + printable(given) +
                                            "' on this node, which is not a path")
                    .with_code(ErrorCode::mount_syntax)
                    .with_hint("is the variable set in the job's environment?"));
  }
  return make_known_step(fields, origin);
}

Result<void> check_sources(const std::vector<MountOption>& options, const Environment& environment) {
  for (const MountOption& option : options) {
    TRY_ASSIGN(const MountStep step, step_from_option(option, environment));
    struct stat status {};
    if (is_of_registry(step)) {
      TRY_CONTEXT(printable(step.origin), ImageReference::parse(step.source));
      continue;
    }
    if (step.on_failure != OnFailure::fail) continue;
    if (step.kind == StepKind::image) {
      auto path = image_path(step.source);
      if (path) continue;
      if (path.error().kind() == ErrorKind::not_found) return fail(no_mount_source(option, step.source));
      return fail(std::move(path).error().with_context(step.origin));
    }
    if (step.kind != StepKind::bind) continue;
    if (stat(step.source.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR)) continue;
    return fail(no_mount_source(option, step.source));
  }
  return {};
}

Result<MountStep> step_from_argument(std::string_view argument, const std::string& origin,
                                     const Environment& environment) {
  constexpr std::array<std::string_view, 10> kTypes = {"none",   "tmpfs", "proc",  "sysfs",   "devpts",
                                                       "mqueue", "fuse",  "ramfs", "overlay", "cgroup2"};
  if (is_registry_image(argument)) {
    auto option = parse_mount_entry(argument);
    if (!option) return fail(std::move(option).error().with_context(origin));
    option->origin = origin;
    return step_from_option(*option, environment);
  }
  const std::vector<std::string_view> fields = split(argument, ':');
  // An image may be a name alone, as in --container-mounts.
  const bool is_image = fields.size() == 3 && (std::string(fields[2]) + "+").starts_with("sqsh+");
  const bool is_path = argument.starts_with('/') || argument.starts_with('.') || is_image;
  if (is_path && fields.size() == 3 && std::find(kTypes.begin(), kTypes.end(), fields[2]) == kTypes.end()) {
    MountFields bind{std::string(fields[0]), std::string(fields[1]), "", {"x-create=auto", "rbind"}};
    for (const std::string_view words : split_nonempty(fields[2], '+'))
      for (const std::string_view word : split_nonempty(words, ',')) bind.options.emplace_back(word);
    return make_known_step(bind, origin);
  }
  std::string line;
  for (const char c : argument) line += c == ':' ? " " : c == ' ' ? "\\040" : std::string(1, c);
  TRY_ASSIGN(FstabEntry entry, parse_fstab_line(line, origin));
  TRY(check_words(entry.step));
  return std::move(entry.step);
}

}  // namespace situla
