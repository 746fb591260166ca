#include "hooks/sources/image_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <unordered_map>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/sources/tar_reader.hpp"
#include "hooks/squashfs/budget.hpp"

namespace situla {
namespace {

constexpr size_t kMaxEntries = 200000;  // an image has some per layer
constexpr uint64_t kMaxNamesBytes = uint64_t{16} << 20U;
constexpr unsigned kMaxLinks = 8;

/// Opens without waiting, whatever is there, and takes only a regular file.
Result<FileRange> open_regular(const std::string& path, const std::string& shown) {
  TRY_ASSIGN(UniqueFd fd, open_file(path, O_RDONLY | O_NONBLOCK));
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "read " + shown);
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::usage, "open " + shown + ": not a regular file");
  return FileRange{std::make_shared<UniqueFd>(std::move(fd)), 0, static_cast<uint64_t>(status.st_size)};
}

class Directory final : public ImageFiles {
 public:
  Directory(std::string path, const ImportBudget& budget)
      : ImageFiles(budget), path_(std::move(path)), place_(printable(path_)) {}

  Result<FileRange> open(const std::string& name) override {
    return open_regular(path_ + "/" + name, printable(path_ + "/" + name));
  }
  [[nodiscard]] const std::string& place() const override { return place_; }

 private:
  std::string path_, place_;
};

/// "./a//b/../c" -> "a/c"; nullopt for a name that leads out.
std::optional<std::string> normalize(std::string_view name) {
  std::vector<std::string> components;
  for (const std::string_view component : split_nonempty(name, '/')) {
    if (component == ".") continue;
    if (component != "..") {
      components.emplace_back(component);
      continue;
    }
    if (components.empty()) return std::nullopt;
    components.pop_back();
  }
  return join(components, "/");
}

class Archive final : public ImageFiles {
 public:
  Archive(FileRange file, std::string place, const ImportBudget& budget)
      : ImageFiles(budget), file_(std::move(file)), place_(std::move(place)) {}

  Result<void> index() {
    std::vector<char> buffer(size_t{64} << 10U);
    uint64_t position = 0;
    TarReader reader(
        [&]() -> Result<std::string_view> {
          const ssize_t count = pread(file_.fd->get(), buffer.data(), buffer.size(), static_cast<off_t>(position));
          if (count < 0) return fail_errno(errno, "read");
          position += static_cast<uint64_t>(count);
          return std::string_view(buffer.data(), static_cast<size_t>(count));
        },
        [&](uint64_t wanted) {
          const uint64_t count = std::min(wanted, file_.size - std::min(position, file_.size));
          position += count;
          return count;
        });
    while (true) {
      auto entry = reader.next();
      if (!entry)
        return fail(Error(entry.error().kind(), "read " + place_ + ": " + entry.error().message())
                        .with_code(ErrorCode::image_damaged)
                        .with_hint("the archive is damaged or not a tar: copy or save the image again"));
      if (!*entry) return {};
      TRY(add(**entry));
    }
  }

  Result<FileRange> open(const std::string& name) override {
    std::optional<std::string> wanted = normalize(name);
    for (unsigned links = 0; wanted && links <= kMaxLinks; ++links) {
      const auto found = members_.find(*wanted);
      if (found == members_.end()) break;
      const Member& member = found->second;
      if (member.link.empty()) return FileRange{file_.fd, member.offset, member.size};
      wanted = normalize(member.link);
    }
    return fail(ErrorKind::not_found, "there is no file " + excerpt(name) + " in " + place_);
  }
  [[nodiscard]] const std::string& place() const override { return place_; }

 private:
  struct Member {
    uint64_t offset = 0, size = 0;
    std::string link;  ///< another name to look for
  };

  Result<void> add(const TarEntry& entry) {
    const bool link = entry.kind == EntryKind::symlink || entry.kind == EntryKind::hardlink;
    if (entry.kind != EntryKind::file && !link) return {};
    const std::optional<std::string> name = normalize(entry.path);
    if (!name) return {};
    names_bytes_ += name->size() + entry.target.size();
    if (members_.size() > kMaxEntries || names_bytes_ > kMaxNamesBytes)
      return fail(
          Error(ErrorKind::corrupt, place_ + ": too many files for an image").with_code(ErrorCode::image_damaged));
    Member member{entry.offset, entry.size, {}};
    if (link) {
      const size_t slash = name->rfind('/');
      const bool beside = entry.kind == EntryKind::symlink && slash != std::string::npos;
      member.link = (beside ? name->substr(0, slash + 1) : "") + entry.target;
    } else if (entry.sparse) {
      return fail(Error(ErrorKind::unsupported, place_ + ": " + excerpt(*name) + " is stored as a sparse file")
                      .with_code(ErrorCode::image_unsupported));
    } else if (entry.size > file_.size || entry.offset > file_.size - entry.size) {
      return fail(Error(ErrorKind::corrupt, place_ + ": is cut short in " + excerpt(*name))
                      .with_code(ErrorCode::image_damaged)
                      .with_hint("the archive was not copied whole: copy or save the image again"));
    }
    members_.insert_or_assign(*name, std::move(member));
    return {};
  }

  FileRange file_;
  std::string place_;
  uint64_t names_bytes_ = 0;
  std::unordered_map<std::string, Member> members_;
};

struct Compression {
  std::string_view magic, name, tool;
};
constexpr std::array<Compression, 4> kCompressions = {{{"\x1f\x8b", "gzip", "gunzip"},
                                                       {"\x28\xb5\x2f\xfd", "zstd", "unzstd"},
                                                       {"\xfd"
                                                        "7zXZ",
                                                        "xz", "unxz"},
                                                       {"BZh", "bzip2", "bunzip2"}}};

Result<void> refuse_compressed(const FileRange& file, const std::string& place) {
  std::array<char, 8> first{};
  const ssize_t count = pread(file.fd->get(), first.data(), first.size(), 0);
  if (count < 0) return fail_errno(errno, "read " + place);
  const std::string_view bytes(first.data(), static_cast<size_t>(count));
  for (const Compression& compression : kCompressions)
    if (bytes.starts_with(compression.magic))
      return fail(Error(ErrorKind::unsupported, place + ": is compressed with " + std::string(compression.name) +
                                                    ", an archive has to be plain")
                      .with_code(ErrorCode::image_unsupported)
                      .with_hint("decompress it first: " + std::string(compression.tool) + " " + place));
  return {};
}

Result<std::unique_ptr<ImageFiles>> index_range(FileRange file, const std::string& place, const ImportBudget& budget) {
  TRY(refuse_compressed(file, place));
  auto archive = std::make_unique<Archive>(std::move(file), place, budget);
  TRY(archive->index());
  return archive;
}

}  // namespace

Result<std::unique_ptr<ImageFiles>> open_image_directory(const std::string& path, const ImportBudget& budget) {
  TRY(open_file(path, O_RDONLY | O_DIRECTORY));
  return std::make_unique<Directory>(path, budget);
}

Result<std::unique_ptr<ImageFiles>> open_image_archive(const std::string& path, const ImportBudget& budget) {
  TRY_ASSIGN(FileRange file, open_regular(path, printable(path)));
  return index_range(std::move(file), printable(path), budget);
}

Result<std::unique_ptr<ImageFiles>> index_image_archive(UniqueFd fd, const std::string& place,
                                                        const ImportBudget& budget) {
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "read " + place);
  return index_range({std::make_shared<UniqueFd>(std::move(fd)), 0, static_cast<uint64_t>(status.st_size)}, place,
                     budget);
}

Result<std::string> read_range(const FileRange& range, uint64_t limit, const char* key, const std::string& what) {
  if (range.size > limit) return fail(text_over_limit(what, range.size, limit, key));
  std::string bytes(range.size, '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count =
        pread(range.fd->get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(range.offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read " + what);
    if (count == 0) return fail(ErrorKind::corrupt, what + ": is cut short");
    done += static_cast<size_t>(count);
  }
  return bytes;
}

}  // namespace situla
