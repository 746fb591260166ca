#include "hooks/bundle/bundle.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/bundle/bundle_files.hpp"
#include "hooks/bundle/header.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/squashfs/output_file.hpp"
#include "hooks/unpack/bundle_trailer.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla {
namespace {

constexpr uint64_t kPage = 4096;  // what file systems can share begins at one
constexpr uint64_t kHeaderBytes = 2 * kPage;
constexpr std::array<const char*, 3> kDirectories = {"hooks.d", "mounts.d", "environ.d"};
constexpr std::string_view kProgramName = "situla-bundle-start";

uint64_t whole_pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// Beside this program in a build, else where it was installed.
Result<UniqueFd> open_program() {
  const std::string name = "/" + std::string(kProgramName);
  if (auto program = open_file(program_directory() + name, O_RDONLY)) return program;
  return open_file(libexec_directory() + name, O_RDONLY);
}

Result<void> add_files(const std::string& source, const std::string& name, BundleFiles& files) {
  auto names = list_directory(source);
  if (!names && names.error().kind() == ErrorKind::not_found) return {};
  TRY(names);
  std::sort(names->begin(), names->end());
  for (const std::string& file : *names) {
    struct stat status {};
    const std::string path = source + "/" + file;
    if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    BundleFile added{name + "/" + file, status.st_mode & 0777U, {}};
    TRY_ASSIGN(added.content, read_file(path));
    files.files.push_back(std::move(added));
  }
  return {};
}

Result<uint64_t> unpacked_bytes(ImageAccess& image) {
  uint64_t bytes = 0;
  uint64_t directories = 0;
  TRY_ASSIGN(const StoredInode top, image.top());
  std::vector<StoredInode> open{top};
  while (!open.empty()) {
    const StoredInode directory = open.back();
    open.pop_back();
    if (++directories > image.info().inodes) return fail(ErrorKind::corrupt, "a directory with two names");
    TRY_ASSIGN(const std::shared_ptr<const Listing> names, image.list(directory));
    for (const StoredName& name : *names) {
      TRY_ASSIGN(const StoredInode inode, image.inode(name.inode));
      if (S_ISREG(inode.mode)) bytes += inode.size;
      if (S_ISDIR(inode.mode)) open.push_back(inode);
    }
  }
  return bytes;
}

/// A word of sh in which only $NAME and ${NAME} mean anything.
std::string word_with_variables(std::string_view text) {
  std::string word = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_name =
        text[i] == '$' && i + 1 < text.size() &&
        (text[i + 1] == '{' || text[i + 1] == '_' || std::isalpha(static_cast<unsigned char>(text[i + 1])) != 0);
    if (text[i] == '"' || text[i] == '\\' || text[i] == '`' || (text[i] == '$' && !starts_name)) word += '\\';
    word += text[i];
  }
  return word + "\"";
}

/// Writes a bundle from its start to its end; the header comes last, because it holds the checksum.
class BundleWriter {
 public:
  BundleWriter(const BundleRequest& request, int fd) : request_(request), fd_(fd) {}

  Result<void> write(int program, int image, const ImageInfo& info, const BundleFiles& files) {
    struct stat status {};
    if (fstat(program, &status) != 0) return fail_errno(errno, "inspect " + std::string(kProgramName));
    program_bytes_ = whole_pages(static_cast<uint64_t>(status.st_size));
    TRY(copy(program, 0, static_cast<uint64_t>(status.st_size), kHeaderBytes));
    BundleTrailer trailer;
    trailer.image_offset = kHeaderBytes + program_bytes_;
    trailer.image_bytes = whole_pages(info.bytes_used);
    TRY(copy(image, info.offset, info.bytes_used, trailer.image_offset));
    const std::string packed = to_wire(files, kBundleFiles);
    trailer.files_offset = trailer.image_offset + trailer.image_bytes;
    trailer.files_bytes = packed.size();
    TRY(put(packed + trailer.bytes(), trailer.files_offset));
    std::string checksum;
    if (request_.checksum) {
      TRY_ASSIGN(checksum, checksum_of(trailer.files_offset + packed.size() + BundleTrailer::kBytes));
    }
    TRY_ASSIGN(const std::string text, header(checksum));
    return put(text, 0);
  }

 private:
  Result<void> copy(int from, uint64_t offset, uint64_t bytes, uint64_t to) {
    TRY_CONTEXT("write " + request_.output, copy_range(from, offset, fd_, to, bytes));
    return {};
  }

  Result<void> put(std::string_view bytes, uint64_t at) {
    if (lseek(fd_, static_cast<off_t>(at), SEEK_SET) < 0) return fail_errno(errno, "write " + request_.output);
    TRY_CONTEXT("write " + request_.output, write_all(fd_, bytes));
    return {};
  }

  [[nodiscard]] Result<std::string> checksum_of(uint64_t end) const {
    Sha256 sum;
    std::string buffer(size_t{1} << 20U, '\0');
    for (uint64_t at = kHeaderBytes; at < end;) {
      const ssize_t count =
          pread(fd_, buffer.data(), std::min<uint64_t>(buffer.size(), end - at), static_cast<off_t>(at));
      if (count <= 0) return fail_errno(count < 0 ? errno : EIO, "read " + request_.output);
      sum.update(std::string_view(buffer).substr(0, static_cast<size_t>(count)));
      at += static_cast<uint64_t>(count);
    }
    return sum.finish().hex();
  }

  [[nodiscard]] Result<std::string> header(const std::string& checksum) const {
    std::string text(builtin::kBundleHeader);
    for (const auto& [name, value] : std::array<std::pair<std::string_view, std::string>, 7>{{
             {"@VERSION@", SITULA_VERSION},
             {"@HEADER_BYTES@", std::to_string(kHeaderBytes)},
             {"@AFTER_HEADER@", std::to_string(kHeaderBytes + 1)},
             {"@HEADER_BLOCKS@", std::to_string(kHeaderBytes / kPage)},
             {"@PROGRAM_BLOCKS@", std::to_string(program_bytes_ / kPage)},
             {"@CHECKSUM@", "'" + checksum + "'"},
             {"@TARGET@", word_with_variables(request_.target)},
         }})
      for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size()))
        text.replace(at, name.size(), value);
    // The shell is past it before it reads on; but whoever looks at the file sees where it ends.
    if (text.size() > kHeaderBytes)
      return fail(
          Error(ErrorKind::usage, "bundle: the name of the target directory is too long").with_code(ErrorCode::option));
    text.resize(kHeaderBytes, '\n');
    return text;
  }

  const BundleRequest& request_;
  int fd_;
  uint64_t program_bytes_ = 0;
};

Result<BundleFiles> collect_files(const BundleRequest& request, const EnrootConfig& config, ImageAccess& image) {
  BundleFiles files;
  files.description = request.description;
  TRY_ASSIGN(const uint64_t unpacked, unpacked_bytes(image));
  files.information = "Compression: " + image.info().compressor +
                      "\nDescription: " + (request.description.empty() ? "none" : request.description) +
                      "\nRuntime version: " + SITULA_VERSION + "\nTarget directory: " + request.target +
                      "\nUncompressed size: " + std::to_string((unpacked + 1023) / 1024) + " KB\n";
  for (const std::string directory : kDirectories) {
    TRY(add_files(config.sysconf_path() + "/" + directory, "system/" + directory, files));
    if (request.user_files) TRY(add_files(config.config_path() + "/" + directory, "user/" + directory, files));
  }
  // What scripts of hooks.d call; the program finds it beside itself.
  const std::string library = "enroot-library";
  const std::string beside = program_directory() + "/" + library;
  TRY(add_files(access(beside.c_str(), F_OK) == 0 ? beside : libexec_path(library), library, files));
  return files;
}

}  // namespace

Result<void> make_bundle(const BundleRequest& request, const EnrootConfig& config, LogSink& log) {
  struct stat status {};
  if (!request.replace && lstat(request.output.c_str(), &status) == 0)
    return fail(Error(ErrorKind::exists, "File already exists: " + request.output)
                    .with_code(ErrorCode::file_exists)
                    .with_hint("--force replaces it"));
  TRY_ASSIGN(const UniqueFd image, open_file(request.image, O_RDONLY));
  auto opened = ImageAccess::open(image.get());
  if (!opened)
    return fail(Error(ErrorKind::corrupt, "Invalid image format: " + request.image + ": " + opened.error().message())
                    .with_code(ErrorCode::image_file));
  TRY_ASSIGN(const BundleFiles files, collect_files(request, config, *opened));
  auto program = open_program();
  if (!program)
    return fail(std::move(program).error().with_code(ErrorCode::installation).with_hint("it is installed with situla"));
  TRY_ASSIGN(OutputFile output, OutputFile::create(request.output));
  log.info("Generating bundle...");
  TRY(BundleWriter(request, output.fd()).write(program->get(), image.get(), opened->info(), files));
  const unsigned mode = less_umask(0777);
  return request.replace ? output.publish_over(mode) : output.publish(mode);
}

}  // namespace situla
