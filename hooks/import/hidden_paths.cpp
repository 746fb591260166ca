#include "hooks/import/hidden_paths.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

namespace situla {
namespace {

uint64_t hash_of(std::string_view path) {
  return std::hash<std::string_view>()(path);
}

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

std::string joined(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty()) path += '/';
  path += name;
  return path;
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
    const std::string_view directory = table.directory(entry.directory);
    const std::string_view name = table.text(entry.name);
    if (name == kOpaqueWhiteout)
      opaque_.push_back(hash_of(directory));
    else if (name.starts_with(kWhiteoutPrefix))
      own.push_back(hash_of(joined(directory, name.substr(kWhiteoutPrefix.size()))));
    else if (entry.kind != EntryKind::directory)
      own.push_back(hash_of(joined(directory, name)));
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
  return {};
}

void HiddenPaths::forget(const LayerTable& table) {
  table.give_back(std::exchange(taken_, 0));
  covered_ = opaque_ = wanted_ = {};
}

bool HiddenPaths::hides(std::string_view directory, std::string_view name) const {
  if (covered_.empty() && opaque_.empty()) return false;
  const std::string path = joined(directory, name);
  if (contains(wanted_, hash_of(path))) return false;
  if (contains(covered_, hash_of(path))) return true;
  if (contains(opaque_, hash_of(""))) return true;
  for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    const uint64_t prefix = hash_of(std::string_view(path).substr(0, end));
    if (contains(covered_, prefix) || contains(opaque_, prefix)) return true;
  }
  return false;
}

}  // namespace situla
