#include "hooks/mount/step.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// Words of mount(8) that do nothing to a mount made here.
constexpr std::array<std::string_view, 28> kNoEffect = {
    "defaults", "auto",        "noauto",        "nofail",     "silent",     "loud",  "group",
    "nogroup",  "owner",       "noowner",       "user",       "nouser",     "users", "nousers",
    "relatime", "norelatime",  "diratime",      "mand",       "nomand",     "async", "bind",
    "iversion", "strictatime", "nostrictatime", "nolazytime", "noiversion", "rbind", "remount"};

/// The word of an image's mount, as a type or an option.
constexpr std::string_view kImage = "sqsh";

/// Superblock options that fsconfig(2) takes as flags.
constexpr std::array<std::string_view, 3> kSuperblockFlags = {"sync", "dirsync", "lazytime"};

struct PropagationWord {
  std::string_view word;
  Propagation propagation;
  bool recursive;
};
constexpr std::array<PropagationWord, 8> kPropagationWords = {{{"private", Propagation::private_mount, false},
                                                               {"rprivate", Propagation::private_mount, true},
                                                               {"slave", Propagation::slave, false},
                                                               {"rslave", Propagation::slave, true},
                                                               {"shared", Propagation::shared, false},
                                                               {"rshared", Propagation::shared, true},
                                                               {"unbindable", Propagation::unbindable, false},
                                                               {"runbindable", Propagation::unbindable, true}}};

struct FlagWord {
  std::string_view word;
  bool MountFlags::*flag;
  bool value;
};
/// mount(8). Those of whole trees ("rro") are the OCI runtime specification's; flags are always of the whole tree here.
constexpr std::array<FlagWord, 18> kFlagWords = {{{"ro", &MountFlags::read_only, true},
                                                  {"rw", &MountFlags::read_only, false},
                                                  {"nosuid", &MountFlags::no_suid, true},
                                                  {"suid", &MountFlags::no_suid, false},
                                                  {"nodev", &MountFlags::no_dev, true},
                                                  {"dev", &MountFlags::no_dev, false},
                                                  {"noexec", &MountFlags::no_exec, true},
                                                  {"exec", &MountFlags::no_exec, false},
                                                  {"noatime", &MountFlags::no_atime, true},
                                                  {"atime", &MountFlags::no_atime, false},
                                                  {"nosymfollow", &MountFlags::no_symfollow, true},
                                                  {"symfollow", &MountFlags::no_symfollow, false},
                                                  {"rro", &MountFlags::read_only, true},
                                                  {"rnosuid", &MountFlags::no_suid, true},
                                                  {"rnodev", &MountFlags::no_dev, true},
                                                  {"rnoexec", &MountFlags::no_exec, true},
                                                  {"rnoatime", &MountFlags::no_atime, true},
                                                  {"rnosymfollow", &MountFlags::no_symfollow, true}}};

template <typename Container>
bool contains(const Container& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

template <typename Table>
auto lookup(const Table& table, std::string_view word) {
  return std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.word == word; });
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
  if (const auto flag = lookup(kFlagWords, word); flag != kFlagWords.end()) {
    step.flags.*(flag->flag) = flag->value;
  } else if (const auto change = lookup(kPropagationWords, word); change != kPropagationWords.end()) {
    step.propagation = change->propagation;
    step.propagation_recursive = change->recursive;
  } else if (contains(kSuperblockFlags, word)) {
    if (step.kind == StepKind::filesystem) step.parameters.emplace_back(word, "");
  } else if (word == "nodiratime" || word == "noiversion") {
    // Neither can be set through mount_setattr(2) on every kernel we support, and neither changes what a program can
    // do.
  } else if (word != kImage && !contains(kNoEffect, word) && !word.starts_with("x-")) {
    keep_unknown(step, word);
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
    return lookup(kPropagationWords, word) != kPropagationWords.end();
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
  if (contains(options, kImage) || fields.type == kImage) return StepKind::image;
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
  if (word.find_first_of(",=") != std::string_view::npos) return true;
  return contains(kNoEffect, word) || contains(kSuperblockFlags, word) ||
         lookup(kFlagWords, word) != kFlagWords.end() || lookup(kPropagationWords, word) != kPropagationWords.end() ||
         word == "nodiratime" || word == "x-move" || word == "x-detach" || word == kImage;
}

std::vector<std::string_view> mount_words() {
  std::vector<std::string_view> words = {kImage,          "x-move",       "x-detach",
                                         "x-create=auto", "x-create=dir", "x-create=file"};
  // Those that are likely first: of equally near ones the first is meant.
  for (const FlagWord& entry : kFlagWords) words.push_back(entry.word);
  for (const PropagationWord& entry : kPropagationWords) words.push_back(entry.word);
  words.insert(words.end(), kNoEffect.begin(), kNoEffect.end());
  return words;
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
  for (const FlagWord& entry : kFlagWords)
    if (entry.value && (entry.word == "ro" || entry.word.front() == 'n') && flags.*(entry.flag))
      words.emplace_back(entry.word);
  return words;
}

namespace {

std::vector<std::string> option_words(const MountStep& step) {
  std::vector<std::string> words;
  if (step.kind == StepKind::bind && step.recursive) words.emplace_back("recursive");
  for (std::string& word : flag_words(step.flags)) words.push_back(std::move(word));
  if (step.kind == StepKind::filesystem)
    for (const auto& [key, value] : step.parameters) words.push_back(value.empty() ? key : key + "=" + value);
  for (const PropagationWord& entry : kPropagationWords)
    if (step.propagation == entry.propagation && step.propagation_recursive == entry.recursive)
      words.emplace_back(entry.word);
  if (step.create == CreateTarget::file) words.emplace_back("create file");
  if (step.create == CreateTarget::directory) words.emplace_back("create directory");
  if (step.create == CreateTarget::automatic) words.emplace_back("create");
  if (step.on_failure != OnFailure::fail) words.emplace_back("if possible");
  return words;
}

}  // namespace

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
