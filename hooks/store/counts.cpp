#include "hooks/store/counts.hpp"

#include <chrono>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/wire.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "hooks/turn/lease.hpp"

namespace situla {
namespace {

constexpr WireForm kForm{.what = "counts of the store", .version = 0x53430002, .most_bytes = 1024};
constexpr std::chrono::seconds kLimit{5};  // then without

std::string directory_of(const std::string& store) {
  return store + "/counts";
}
std::string path_of(const std::string& store) {
  return directory_of(store) + "/" + host_name();
}

}  // namespace

/// A damaged file begins anew: these are no accounts.
StoreCounts read_counts(const std::string& store) {
  const auto bytes = read_file(path_of(store), kForm.most_bytes);
  const auto counts = bytes ? from_wire<StoreCounts>(*bytes, kForm) : fail(bytes.error());
  return counts.value_or(StoreCounts());
}

Result<void> add_counts(const std::string& store, const StoreCounts& change) {
  TRY(make_directories(directory_of(store), 0700));
  TRY_ASSIGN(UniqueFd directory, open_file(directory_of(store), O_RDONLY | O_DIRECTORY));
  TRY_ASSIGN(const FileLock alone,
             FileLock::acquire(std::move(directory), FileLock::Kind::exclusive, kLimit, directory_of(store)));
  // What a killed writer of this node has left: there is only one at a time.
  for (const std::string& name : list_directory(directory_of(store)).value_or(std::vector<std::string>()))
    if (name.starts_with("." + host_name() + ".")) (void)unlink((directory_of(store) + "/" + name).c_str());
  StoreCounts counts = read_counts(store);
  std::apply(
      [&](auto&... sums) {
        std::apply([&](const auto&... added) { ((sums += added), ...); }, StoreCounts::fields(change));
      },
      StoreCounts::fields(counts));
  return write_file_atomically(path_of(store), to_wire(counts, kForm), 0600, Sync::no);
}

}  // namespace situla
