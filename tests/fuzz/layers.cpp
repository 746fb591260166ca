#include <cstdlib>
#include <set>

#include "hooks/import/hidden_paths.hpp"
#include "hooks/sources/tar_reader.hpp"
#include "hooks/squashfs/root_tree.hpp"
#include "tests/fuzz/tar_input.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

constexpr uint64_t kMostContent = uint64_t{1} << 20U;  // of one file, which may be a hole of any size

Result<void> read_content(TarReader& reader, uint64_t size) {
  uint64_t seen = 0;
  const auto stop = [] { return fail(ErrorKind::cancelled, "enough"); };
  TRY(reader.read_data([&](std::string_view bytes) -> Result<void> {
    seen += bytes.size();
    if (seen > size) std::abort();
    return seen > kMostContent ? Result<void>(stop()) : Result<void>();
  }));
  if (seen != size) std::abort();
  return {};
}

Result<void> read_layer(std::string_view tar, LayerTable& table) {
  constexpr size_t kPiece = 700;  // headers begin in the middle of pieces, too
  TarReader reader([&]() -> Result<std::string_view> {
    const std::string_view piece = tar.substr(0, kPiece);
    tar.remove_prefix(piece.size());
    return piece;
  });
  for (bool wanted = true;; wanted = !wanted) {
    TRY_ASSIGN(const auto entry, reader.next());
    if (!entry) return {};
    TRY(table.add(*entry));
    // Contents of some files are passed over, as those that upper layers hide.
    if (wanted && entry->kind == EntryKind::file) TRY(read_content(reader, entry->size));
  }
}

void check_tree(const RootTree& tree) {
  const LayerTable& table = tree.table();
  std::vector<uint32_t> open = {RootTree::kRoot};
  std::set<uint32_t> directories;
  while (!open.empty()) {
    const uint32_t directory = open.back();
    open.pop_back();
    if (!tree.is_directory(directory) || !directories.insert(directory).second) std::abort();
    std::string_view before;
    for (const uint32_t child : tree.children(directory)) {
      const std::string_view name = tree.name(child);
      if (name.empty() || name == "." || name == ".." || name.size() > 255 ||
          name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos)
        std::abort();
      if (!before.empty() && name <= before) std::abort();
      before = name;
      const EntryKind kind = table.entry(tree.node(child).inode).kind;
      if (kind == EntryKind::device || kind == EntryKind::hardlink || tree.node(child).parent != directory)
        std::abort();
      if (kind == EntryKind::directory) open.push_back(child);
    }
  }
}

}  // namespace

/// Layers of tar, with whiteouts, that become one tree. They are read from the top of the image down.
void situla::fuzz(std::string_view bytes) {
  const std::vector<std::string> layers = layers_in(bytes);
  ImportMeter meter{ImportBudget()};
  LayerTable table(&meter);
  HiddenPaths hidden;
  for (size_t i = layers.size(); i-- > 0;) {
    table.begin_layer();
    const auto read = read_layer(layers[i], table);
    table.end_layer();
    if (!read || !hidden.add_layer(table, table.layers() - 1)) return;
  }
  for (uint32_t i = 0; i < table.size(); ++i)
    (void)hidden.hides(table, table.entry(i).directory, table.text(table.entry(i).name));
  RootTree tree(table);
  for (size_t layer = table.layers(); layer-- > 0;)
    if (!tree.apply(layer)) return;
  if (!tree.make_directories("etc/a")) return;
  tree.finish();
  check_tree(tree);
}
