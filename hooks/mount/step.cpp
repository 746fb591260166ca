#include "hooks/mount/step.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"
#include "common/spec/mount_option.hpp"
#include "common/spec/mount_words.hpp"

namespace situla {
namespace {

/// nullptr: the word is no attribute's.
bool MountFlags::*flag_of(MountMeaning meaning) {
  switch (meaning) {
    case MountMeaning::read_only:
      return &MountFlags::read_only;
    case MountMeaning::no_suid:
      return &MountFlags::no_suid;
    case MountMeaning::no_dev:
      return &MountFlags::no_dev;
    case MountMeaning::no_exec:
      return &MountFlags::no_exec;
    case MountMeaning::no_atime:
      return &MountFlags::no_atime;
    case MountMeaning::no_symfollow:
      return &MountFlags::no_symfollow;
    default:
      return nullptr;
  }
}

/// The words of an image's mount, as a type or an option: of a file, and of a registry. Where one is said and the other
/// is meant, the source tells.
constexpr std::array<std::string_view, 2> kImages = {"sqsh", "image"};

bool names_image(const MountFields& fields) {
  return is_registry_image(fields.source) || std::any_of(kImages.begin(), kImages.end(), [&](std::string_view word) {
           return fields.type == word ||
                  std::find(fields.options.begin(), fields.options.end(), word) != fields.options.end();
         });
}

/// nullopt: the word says nothing of propagation.
std::optional<Propagation> propagation_of(MountMeaning meaning) {
  switch (meaning) {
    case MountMeaning::private_mount:
      return Propagation::private_mount;
    case MountMeaning::slave:
      return Propagation::slave;
    case MountMeaning::shared:
      return Propagation::shared;
    case MountMeaning::unbindable:
      return Propagation::unbindable;
    default:
      return std::nullopt;
  }
}

template <typename Container>
bool contains(const Container& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Parameters of a file system are kept; on anything else they cannot mean anything and are reported.
void keep_unknown(MountStep& step, std::string_view word) {
  if (step.kind != StepKind::filesystem) {
    step.ignored.emplace_back(word);
    return;
  }
  const auto key_and_value = cut(word, '=');
  if (key_and_value)
    step.parameters.emplace_back(key_and_value->first, key_and_value->second);
  else
    step.parameters.emplace_back(word, "");
}

void apply_word(MountStep& step, std::string_view word) {
  if (step.kind == StepKind::image && word.starts_with(kSubpath)) {
    step.subpath = word.substr(kSubpath.size());
    return;
  }
  const MountWord* const known = find_mount_word(word);
  if (known == nullptr) {
    if (!word.starts_with("x-")) keep_unknown(step, word);
  } else if (const auto flag = flag_of(known->meaning)) {
    step.flags.*flag = known->value;
  } else if (const auto change = propagation_of(known->meaning)) {
    step.propagation = change;
    step.propagation_recursive = known->recursive;
  } else if (known->meaning == MountMeaning::superblock && step.kind == StepKind::filesystem) {
    step.parameters.emplace_back(word, "");
  }
}

CreateTarget create_of(const std::vector<std::string>& options) {
  if (contains(options, "x-create=file")) return CreateTarget::file;
  if (contains(options, "x-create=dir")) return CreateTarget::directory;
  if (contains(options, "x-create=auto")) return CreateTarget::automatic;
  return CreateTarget::no;
}

OnFailure on_failure_of(const std::vector<std::string>& options) {
  if (!contains(options, "nofail")) return OnFailure::fail;
  return contains(options, "silent") && !contains(options, "loud") ? OnFailure::ignore : OnFailure::warn;
}

bool only_propagation(const std::vector<std::string>& options) {
  const auto changes = [](const std::string& word) {
    const MountWord* const known = find_mount_word(word);
    return known != nullptr && propagation_of(known->meaning);
  };
  const auto neutral = [&](const std::string& word) {
    return changes(word) || word == "silent" || word == "nofail" || word == "loud" || word.starts_with("x-create=");
  };
  return std::any_of(options.begin(), options.end(), changes) && std::all_of(options.begin(), options.end(), neutral);
}

Error invalid(const MountFields& fields, const std::string& origin, std::string_view reason) {
  const std::string shown = fields.source + (fields.target.empty() ? "" : " " + fields.target);
  return Error(ErrorKind::usage, origin + ": invalid mount '" + printable(shown) + "': " + std::string(reason))
      .with_code(ErrorCode::mount_syntax)
      .with_hint("write SRC DST TYPE OPTIONS, for example: /data /data none x-create=dir,bind,ro");
}

Result<StepKind> kind_of(const MountFields& fields, const std::string& origin) {
  const std::vector<std::string>& options = fields.options;
  const bool typed = !fields.type.empty() && fields.type != "none";
  if (contains(options, "x-detach")) return StepKind::detach;
  if (contains(options, "remount")) return StepKind::remount;
  if (contains(options, "x-move")) return StepKind::move;
  if (names_image(fields)) return StepKind::image;
  if (contains(options, "bind") || contains(options, "rbind")) return StepKind::bind;
  if (typed) return StepKind::filesystem;
  if (only_propagation(options)) return StepKind::propagation;
  if (fields.source == "tmpfs") return StepKind::filesystem;
  // More generous than the original, which would ask the kernel for a file system called "none".
  if (fields.source.starts_with('/') || fields.source.starts_with('.')) return StepKind::bind;
  return fail(invalid(fields, origin, "neither a path, nor a file system type, nor an action"));
}

}  // namespace

bool is_mount_option(std::string_view word) {
  return word.find_first_of(",=") != std::string_view::npos || find_mount_word(word) != nullptr;
}

Result<MountStep> make_step(const MountFields& fields, const std::string& origin) {
  MountStep step;
  step.origin = origin;
  step.target = fields.target;
  if (fields.source.empty() || fields.target.empty())
    return fail(invalid(fields, origin, "source or target is missing"));
  TRY_ASSIGN(step.kind, kind_of(fields, origin));
  step.create = create_of(fields.options);
  step.on_failure = on_failure_of(fields.options);
  const bool has_source = step.kind == StepKind::bind || step.kind == StepKind::move ||
                          step.kind == StepKind::filesystem || step.kind == StepKind::image;
  if (has_source) step.source = fields.source;
  if (step.kind == StepKind::filesystem)
    step.type = fields.type.empty() || fields.type == "none" ? fields.source : fields.type;
  if (step.kind == StepKind::bind) {
    const bool spelled_out = contains(fields.options, "bind") || contains(fields.options, "rbind");
    step.recursive = contains(fields.options, "rbind") || !spelled_out;
  }
  if (step.kind == StepKind::remount) step.recursive = contains(fields.options, "rbind");
  for (const std::string& word : fields.options) apply_word(step, word);
  return step;
}

std::vector<std::string> flag_words(const MountFlags& flags) {
  std::vector<std::string> words;
  for (const MountWord& entry : kMountWords) {
    const auto flag = flag_of(entry.meaning);
    if (flag == nullptr || !entry.value || !(flags.*flag)) continue;
    if (entry.word == "ro" || entry.word.front() == 'n') words.emplace_back(entry.word);
  }
  return words;
}

namespace {

std::vector<std::string> option_words(const MountStep& step) {
  std::vector<std::string> words;
  if (step.kind == StepKind::bind && step.recursive) words.emplace_back("recursive");
  if (!step.subpath.empty()) words.push_back(std::string(kSubpath) + step.subpath);
  for (std::string& word : flag_words(step.flags)) words.push_back(std::move(word));
  if (step.kind == StepKind::filesystem)
    for (const auto& [key, value] : step.parameters) words.push_back(value.empty() ? key : key + "=" + value);
  for (const MountWord& entry : kMountWords)
    if (step.propagation && step.propagation == propagation_of(entry.meaning) &&
        step.propagation_recursive == entry.recursive)
      words.emplace_back(entry.word);
  if (step.create == CreateTarget::file) words.emplace_back("create file");
  if (step.create == CreateTarget::directory) words.emplace_back("create directory");
  if (step.create == CreateTarget::automatic) words.emplace_back("create");
  if (step.on_failure != OnFailure::fail) words.emplace_back("if possible");
  return words;
}

}  // namespace

bool is_of_registry(const MountStep& step) {
  return step.kind == StepKind::image && is_registry_image(step.source);
}

std::string operand(const MountStep& step) {
  const std::string source = printable(step.source);
  std::string target = printable(step.target);
  switch (step.kind) {
    case StepKind::cover:
      return "cover " + target;
    case StepKind::host_file:
      return "mount " + source + " on " + target;
    case StepKind::device:
      return "device " + source + " on " + target;
    case StepKind::bind:
      return "bind " + source + " on " + target;
    case StepKind::filesystem:
      return "mount " + printable(step.type) + " on " + target;
    case StepKind::image:
      return "mount image " + source + " on " + target;
    case StepKind::move:
      return "move " + source + " to " + target;
    case StepKind::remount:
      return "remount " + target;
    case StepKind::detach:
      return "unmount " + target;
    case StepKind::propagation:
      return "set propagation of " + target;
  }
  return target;
}

std::string describe(const MountStep& step) {
  std::string line = operand(step);
  if (step.number) line += " (" + to_text(*step.number) + ")";
  const std::string words = join(option_words(step), ", ");
  if (!words.empty()) line += " [" + printable(words) + "]";
  if (!step.origin.empty()) line += "  (" + printable(step.origin) + ")";
  return line;
}

}  // namespace situla
