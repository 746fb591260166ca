#include "hooks/import/hidden_paths.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/text.hpp"

namespace situla {
namespace {

bool contains(const std::vector<uint64_t>& sorted, uint64_t value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

void sort_unique(std::vector<uint64_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

/// Both sorted and without doubles; what `more` has is in `values` afterwards.
void merge(std::vector<uint64_t>& values, std::vector<uint64_t>&& more) {
  if (values.empty()) {
    values = std::move(more);
    return;
  }
  std::vector<uint64_t> both;
  both.reserve(values.size() + more.size());
  std::set_union(values.begin(), values.end(), more.begin(), more.end(), std::back_inserter(both));
  values = std::move(both);
}

}  // namespace

Result<void> HiddenPaths::add_layer(LayerTable& table, size_t layer) {
  // Twice: while they are merged with those of other layers.
  const uint64_t bytes = 2 * sizeof(uint64_t) * (table.end_of(layer) - table.begin_of(layer));
  TRY(table.take_memory(bytes));
  taken_ += bytes;
  std::vector<uint64_t> own;
  own.reserve(table.end_of(layer) - table.begin_of(layer));
  for (uint32_t i = table.begin_of(layer); i < table.end_of(layer); ++i) {
    const LayerEntry& entry = table.entry(i);
    const uint64_t directory = look_at(table, entry.directory).hash;
    const std::string_view name = table.text(entry.name);
    if (name == kOpaqueWhiteout)
      opaque_.push_back(directory);
    else if (name.starts_with(kWhiteoutPrefix))
      own.push_back(hash_(name.substr(kWhiteoutPrefix.size()), directory));
    else if (entry.kind != EntryKind::directory)
      own.push_back(hash_(name, directory));
  }
  sort_unique(own);
  for (uint32_t i = table.begin_of(layer); i < table.end_of(layer); ++i) {
    const LayerEntry& entry = table.entry(i);
    if (entry.kind != EntryKind::hardlink) continue;
    const uint64_t target = hash_of(clean_path(table.text(entry.data)));
    if (!contains(own, target)) wanted_.push_back(target);
  }
  merge(covered_, std::move(own));
  sort_unique(opaque_);
  sort_unique(wanted_);
  ++layers_;
  return check_steps(table);
}

/// As RootTree::count_steps(), which comes when all layers have been read.
Result<void> HiddenPaths::check_steps(const LayerTable& table) const {
  constexpr uint64_t kMostSteps = 64'000'000, kMostStepsOfEntry = 16;
  const uint64_t most = kMostSteps + kMostStepsOfEntry * table.size();
  if (steps_ <= most) return {};
  return fail(ErrorKind::unsupported,
              "the paths of what upper layers may hide lead over more than " + std::to_string(most) + " names");
}

void HiddenPaths::forget(const LayerTable& table) {
  table.give_back(std::exchange(taken_, 0));
  covered_ = opaque_ = wanted_ = {};
  directories_ = {};
}

uint64_t HiddenPaths::hash_of(std::string_view clean_path) const {
  uint64_t hash = 0;
  for (const std::string_view name : split_nonempty(clean_path, '/')) hash = hash_(name, hash);
  return hash;
}

/// Once for each layer that hides something: of files in deep directories each would take as long as its path.
const HiddenPaths::Directory& HiddenPaths::look_at(const LayerTable& table, uint32_t directory) {
  if (directory >= directories_.size()) directories_.resize(table.directories());
  Directory& known = directories_[directory];
  if (known.layers == layers_) return known;
  known = {0, layers_, contains(opaque_, 0)};
  for (const std::string_view name : split_nonempty(table.directory(directory), '/')) {
    ++steps_;
    known.hash = hash_(name, known.hash);
    known.hidden = known.hidden || contains(covered_, known.hash) || contains(opaque_, known.hash);
  }
  return known;
}

bool HiddenPaths::hides(const LayerTable& table, uint32_t directory, std::string_view name) {
  if (covered_.empty() && opaque_.empty()) return false;
  const Directory& above = look_at(table, directory);
  const uint64_t hash = hash_(name, above.hash);
  return !contains(wanted_, hash) && (above.hidden || contains(covered_, hash));
}

}  // namespace situla
