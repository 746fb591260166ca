#include "hooks/squashfs/root_tree.hpp"

#include <algorithm>
#include <climits>
#include <string>

#include <sys/stat.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr unsigned kMaxLinks = 40;  // in one path, as in Linux
/// Names in the paths of entries, and in the targets of the links on their way, that are looked up for the whole image:
/// seconds. Archives list a directory's entries together, and its path is walked once: an honest image takes less than
/// one for each entry. Of two files 2,000 directories deep by turns each takes 2,000, and a link leads over as many.
constexpr uint64_t kMostSteps = 16'000'000, kMostStepsOfEntry = 16;

/// Components still to be walked, the next one last. The texts must outlive it.
class Route {
 public:
  /// Returns how many components the path has.
  size_t prepend(std::string_view path) {
    const auto pieces = split_nonempty(path, '/');
    rest_.insert(rest_.end(), pieces.rbegin(), pieces.rend());
    return pieces.size();
  }
  [[nodiscard]] bool done() const { return rest_.empty(); }
  std::string_view next() {
    const std::string_view component = rest_.back();
    rest_.pop_back();
    return component;
  }

 private:
  std::vector<std::string_view> rest_;
};

/// Names come from tar entries, targets of links, configurations and other file systems: whoever reads the image takes
/// them for names of one directory entry.
Result<void> check_name(std::string_view name) {
  const auto shown = [&] { return "the name '" + printable(name.substr(0, size_t{NAME_MAX})) + "'"; };
  if (name.size() > size_t{NAME_MAX})
    return fail(ErrorKind::corrupt, shown() + "... has " + std::to_string(name.size()) + " bytes, more than " +
                                        std::to_string(size_t{NAME_MAX}));
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos)
    return fail(ErrorKind::corrupt, shown() + " cannot be that of a file");
  return {};
}

}  // namespace

RootTree::RootTree(LayerTable& table) : table_(table), slots_(1024, kNone) {
  LayerEntry root;
  root.directory = table_.intern_directory("").value_or(0);  // the empty text has its place
  root.kind = EntryKind::directory;
  root.mode = 0755;
  Node node;
  node.inode = table_.add_made(root);
  node.name = root.name;
  nodes_.push_back(node);
}

size_t RootTree::slot_of(uint32_t parent, std::string_view name) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_(name, parent) & mask;
  while (slots_[slot] != kNone) {
    const Node& node = nodes_[slots_[slot]];
    if (node.parent == parent && this->name(slots_[slot]) == name) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

/// A dead node keeps its slot; a new one of the same name takes it over.
void RootTree::insert_slot(uint32_t index) {
  if (2 * (used_slots_ + 1) > slots_.size()) grow();
  const size_t slot = slot_of(nodes_[index].parent, name(index));
  if (slots_[slot] == kNone) ++used_slots_;
  slots_[slot] = index;
}

void RootTree::grow() {
  std::vector<uint32_t> old(slots_.size() * 2, kNone);
  old.swap(slots_);
  for (const uint32_t index : old)
    if (index != kNone) slots_[slot_of(nodes_[index].parent, name(index))] = index;
}

uint32_t RootTree::lookup(uint32_t parent, std::string_view name) const {
  const uint32_t index = slots_[slot_of(parent, name)];
  return index == kNone || nodes_[index].inode == kNone ? kNone : index;
}

/// The one place where names enter the tree.
Result<uint32_t> RootTree::add_node(uint32_t parent, std::string_view name, TextArena::Ref ref, uint32_t inode) {
  TRY(check_name(name));
  TRY(table_.take_memory(sizeof(Node) + kSlotBytes + (ref == kNone ? sizeof(uint16_t) + name.size() : 0)));
  Node node;
  node.parent = parent;
  node.name = ref;
  if (ref == kNone) {
    TRY_ASSIGN(node.name, table_.add_text(name));
  }
  node.inode = inode;
  node.next_sibling = nodes_[parent].first_child;
  const auto index = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back(node);
  nodes_[parent].first_child = index;
  insert_slot(index);
  touch(index);
  return index;
}

void RootTree::kill(uint32_t index) {
  nodes_[index].inode = kNone;
  cached_path_ = kNone;
}

/// What a layer touches is out of reach of its own whiteouts, and so are the directories above it.
void RootTree::touch(uint32_t index) {
  while (nodes_[index].layer != layer_) {
    nodes_[index].layer = layer_;
    if (index == kRoot) return;
    index = nodes_[index].parent;
  }
}

Result<uint32_t> RootTree::make_directory(uint32_t parent, std::string_view name) {
  TRY(table_.take_memory(sizeof(LayerEntry)));
  LayerEntry made;
  made.kind = EntryKind::directory;
  // As mkdir(2) does: what is made in a set-group-id directory is one, too.
  made.mode = static_cast<uint16_t>(0755U | (table_.entry(nodes_[parent].inode).mode & S_ISGID));
  const uint32_t inode = table_.add_made(made);
  return add_node(parent, name, kNone, inode);
}

Result<void> RootTree::count_steps(std::string_view path, size_t names) {
  constexpr size_t kBytesOfStep = 64;  // a path may be long without names: "/////"
  steps_ += 1 + names + path.size() / kBytesOfStep;
  const uint64_t most = kMostSteps + kMostStepsOfEntry * table_.size();
  if (steps_ <= most) return {};
  return fail(ErrorKind::unsupported,
              "the paths of the image's entries, with the symbolic links in them, lead over more than " +
                  std::to_string(most) + " names");
}

Result<uint32_t> RootTree::walk(std::string_view path, Missing missing) {
  Route route;
  TRY(count_steps(path, route.prepend(path)));
  uint32_t here = kRoot;
  unsigned links = 0;
  while (!route.done()) {
    const std::string_view component = route.next();
    if (component == ".") continue;
    if (component == "..") {
      here = nodes_[here].parent;
      continue;
    }
    const uint32_t next = lookup(here, component);
    const EntryKind kind = next == kNone ? EntryKind::file : table_.entry(nodes_[next].inode).kind;
    if (next != kNone && kind == EntryKind::directory) {
      here = next;
    } else if (next != kNone && kind == EntryKind::symlink) {
      if (++links > kMaxLinks)
        return fail(ErrorKind::corrupt, "'" + excerpt(path) + "': too many levels of symbolic links");
      const std::string_view target = table_.text(table_.entry(nodes_[next].inode).data);
      if (target.starts_with('/')) here = kRoot;
      TRY(count_steps(target, route.prepend(target)));
    } else {
      if (missing == Missing::fail) return kNone;
      if (next != kNone) kill(next);
      TRY_ASSIGN(here, make_directory(here, component));
    }
  }
  return here;
}

/// Gives a name an inode: a directory upon a directory keeps the children, everything else replaces.
Result<uint32_t> RootTree::set_child(uint32_t directory, TextArena::Ref name, uint32_t inode) {
  const uint32_t old = lookup(directory, table_.text(name));
  if (old != kNone) {
    const bool both = is_directory(old) && table_.entry(inode).kind == EntryKind::directory;
    if (both) {
      nodes_[old].inode = inode;
      touch(old);
      return old;
    }
    kill(old);
  }
  return add_node(directory, table_.text(name), name, inode);
}

Result<void> RootTree::apply(size_t layer, const std::function<bool()>& cancelled) {
  constexpr uint64_t kStepsBetween = 100'000;
  ++layer_;
  cached_path_ = kNone;
  uint64_t next_check = 0;
  for (uint32_t index = table_.begin_of(layer); index < table_.end_of(layer); ++index) {
    if (const uint64_t done = steps_ + index; cancelled && done >= next_check) {
      if (cancelled()) return fail(ErrorKind::cancelled, "cancelled");
      next_check = done + kStepsBetween;
    }
    TRY_CONTEXT("entry '" + excerpt(table_.path(table_.entry(index))) + "'", apply_entry(index));
  }
  return {};
}

Result<void> RootTree::apply_entry(uint32_t index) {
  const LayerEntry entry = table_.entry(index);
  const std::string_view name = table_.text(entry.name);
  if (name.empty()) {
    if (entry.kind != EntryKind::directory) return fail(ErrorKind::corrupt, "the root is not a directory");
    nodes_[kRoot].inode = index;
    return {};
  }
  if (name.starts_with(kWhiteoutPrefix)) return apply_whiteout(entry, name);
  if (cached_path_ != entry.directory) {
    TRY_ASSIGN(cached_node_, walk(table_.directory(entry.directory), Missing::make));
    cached_path_ = entry.directory;
  }
  const uint32_t directory = cached_node_;
  if (entry.kind == EntryKind::hardlink) return apply_link(directory, entry);
  TRY(set_child(directory, entry.name, index));
  // A new link may change what paths mean.
  if (entry.kind == EntryKind::symlink) cached_path_ = kNone;
  return {};
}

/// The name becomes another name of the target's inode, whose metadata stay as they are.
Result<void> RootTree::apply_link(uint32_t directory, const LayerEntry& entry) {
  const std::string target = clean_path(table_.text(entry.data));
  const size_t slash = target.rfind('/');
  const std::string_view parent =
      slash == std::string::npos ? std::string_view() : std::string_view(target).substr(0, slash);
  const std::string_view last =
      slash == std::string::npos ? std::string_view(target) : std::string_view(target).substr(slash + 1);
  TRY_ASSIGN(const uint32_t target_directory, walk(parent, Missing::fail));
  const uint32_t node = target_directory == kNone || last.empty() ? kNone : lookup(target_directory, last);
  if (node == kNone)
    return fail(ErrorKind::corrupt, "the target of the hard link, '" + excerpt(target) + "', does not exist");
  if (is_directory(node)) return fail(ErrorKind::corrupt, "a hard link to the directory '" + excerpt(target) + "'");
  const uint32_t inode = nodes_[node].inode;
  const uint32_t old = lookup(directory, table_.text(entry.name));
  if (old == node) return {};  // a link to itself
  if (old != kNone) kill(old);
  TRY(add_node(directory, table_.text(entry.name), entry.name, inode));
  cached_path_ = kNone;
  return {};
}

Result<void> RootTree::apply_whiteout(const LayerEntry& entry, std::string_view name) {
  TRY_ASSIGN(const uint32_t directory, walk(table_.directory(entry.directory), Missing::fail));
  if (directory == kNone) return {};
  if (name == kOpaqueWhiteout) {
    remove_lower_children(directory);
  } else {
    const uint32_t hidden = lookup(directory, name.substr(kWhiteoutPrefix.size()));
    if (hidden != kNone) remove_lower(hidden);
  }
  cached_path_ = kNone;
  return {};
}

void RootTree::remove_lower(uint32_t index) {
  if (nodes_[index].layer != layer_)
    kill(index);
  else if (is_directory(index))
    remove_lower_children(index);
}

/// Without recursion: the depth is the image's choice.
void RootTree::remove_lower_children(uint32_t directory) {
  std::vector<uint32_t> open{directory};
  while (!open.empty()) {
    const uint32_t here = open.back();
    open.pop_back();
    for (uint32_t child = nodes_[here].first_child; child != kNone; child = nodes_[child].next_sibling) {
      ++steps_;  // a whiteout for each of a million entries that each looks at a million
      if (nodes_[child].inode == kNone) continue;
      if (nodes_[child].layer != layer_)
        kill(child);
      else if (is_directory(child))
        open.push_back(child);
    }
  }
}

Result<void> RootTree::place(std::string_view path, uint32_t inode) {
  const size_t slash = path.rfind('/');
  TRY_ASSIGN(const uint32_t directory,
             walk(slash == std::string_view::npos ? "" : path.substr(0, slash), Missing::make));
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  const uint32_t old = lookup(directory, name);
  if (old != kNone) kill(old);
  TRY(add_node(directory, name, kNone, inode));
  return {};
}

Result<void> RootTree::make_directories(std::string_view path) {
  TRY(walk(path, Missing::make));
  return {};
}

Result<uint32_t> RootTree::put(uint32_t directory, std::string_view name, uint32_t inode) {
  TRY_ASSIGN(const TextArena::Ref text, table_.add_text(name));
  return set_child(directory, text, inode);
}

void RootTree::remove_children(uint32_t directory) {
  for (uint32_t child = nodes_[directory].first_child; child != kNone; child = nodes_[child].next_sibling) kill(child);
}

void RootTree::finish() {
  const uint32_t dev = lookup(kRoot, "dev");
  if (dev != kNone) nodes_[dev].first_child = kNone;
  for (uint32_t index = 0; index < nodes_.size(); ++index) {
    Node& node = nodes_[index];
    if (node.inode == kNone) continue;
    LayerEntry& entry = table_.entry(node.inode);
    if (entry.kind == EntryKind::device) node.inode = kNone;
    // Readable and searchable for the owner, who is the user: without it nobody could look inside.
    if (entry.kind == EntryKind::directory && (entry.mode & 0500U) != 0500U) entry.mode |= 0700U;
  }
  slots_ = {};
  table_.give_back(kSlotBytes * (nodes_.size() - 1));
}

void RootTree::open_to_owner() {
  constexpr std::string_view kAufsPrefix = ".wh..wh.";
  constexpr int kWritableLevels = 5;
  for (const uint32_t child : children(kRoot))
    if (name(child).starts_with(kAufsPrefix)) kill(child);
  for (uint32_t index = 0; index < nodes_.size(); ++index) {
    if (nodes_[index].inode == kNone) continue;
    LayerEntry& entry = table_.entry(nodes_[index].inode);
    if (entry.kind != EntryKind::file) continue;
    entry.mode |= (entry.mode & 0111U) != 0 ? 0500U : 0400U;
  }
  std::vector<uint32_t> level{kRoot};
  for (int depth = 0; depth <= kWritableLevels; ++depth) {
    std::vector<uint32_t> below;
    for (const uint32_t directory : level) {
      table_.entry(nodes_[directory].inode).mode |= 0700U;
      for (uint32_t child = nodes_[directory].first_child; child != kNone; child = nodes_[child].next_sibling)
        if (nodes_[child].inode != kNone && is_directory(child)) below.push_back(child);
    }
    level = std::move(below);
  }
}

std::vector<uint32_t> RootTree::children(uint32_t directory) const {
  std::vector<uint32_t> live;
  for (uint32_t child = nodes_[directory].first_child; child != kNone; child = nodes_[child].next_sibling)
    if (nodes_[child].inode != kNone) live.push_back(child);
  std::sort(live.begin(), live.end(), [this](uint32_t a, uint32_t b) { return name(a) < name(b); });
  return live;
}

std::vector<bool> RootTree::used() const {
  std::vector<bool> used(table_.size(), false);
  used[nodes_[kRoot].inode] = true;
  std::vector<uint32_t> open{kRoot};
  while (!open.empty()) {
    const uint32_t here = open.back();
    open.pop_back();
    for (uint32_t child = nodes_[here].first_child; child != kNone; child = nodes_[child].next_sibling) {
      if (nodes_[child].inode == kNone) continue;
      used[nodes_[child].inode] = true;
      if (is_directory(child)) open.push_back(child);
    }
  }
  return used;
}

std::vector<uint32_t> RootTree::files_without_data() const {
  const std::vector<bool> used = this->used();
  std::vector<uint32_t> missing;
  for (uint32_t inode = 0; inode < used.size(); ++inode) {
    const LayerEntry& entry = table_.entry(inode);
    if (used[inode] && entry.kind == EntryKind::file && entry.size > 0 && entry.data == kNone) missing.push_back(inode);
  }
  return missing;
}

}  // namespace situla
