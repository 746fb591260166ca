#include "plugin/broker/report/record_file.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/access_list.hpp"
#include "common/sys/directory.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kWithoutWaiting{0};

struct Written {
  std::string name;
  timespec when{};
};

std::vector<Written> records_in(int directory, const std::string& path) {
  std::vector<Written> records;
  for (std::string& name : list_directory(directory, path).value_or(std::vector<std::string>())) {
    struct stat status {};
    if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode))
      records.push_back({std::move(name), status.st_mtim});
  }
  return records;
}

void keep_latest(int directory, const std::string& path) {
  std::vector<Written> records = records_in(directory, path);
  if (records.size() <= RecordFile::kMostOfUser) return;
  std::sort(records.begin(), records.end(), [](const Written& one, const Written& other) {
    return std::pair(one.when.tv_sec, one.when.tv_nsec) < std::pair(other.when.tv_sec, other.when.tv_nsec);
  });
  records.resize(records.size() - RecordFile::kMostOfUser);
  for (const Written& record : records) (void)unlinkat(directory, record.name.c_str(), 0);
}

/// A step may run for days, and its record stays as it was when it began.
bool is_being_written(int directory, const std::string& name) {
  auto file = open_file_at(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  return file && !FileLock::acquire(std::move(*file), FileLock::Kind::shared, kWithoutWaiting, name);
}

}  // namespace

Result<void> RecordFile::write(std::string_view bytes) {
  const std::string path = directory_ + "/" + std::to_string(user_);
  TRY(make_directories(path, 0755));
  TRY_ASSIGN(const UniqueFd directory, open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  // Nobody else writes a record of this step.
  const std::string temporary = "." + name_;
  (void)unlinkat(directory.get(), temporary.c_str(), 0);
  TRY_ASSIGN(UniqueFd file, open_file_at(directory.get(), temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0400));
  const auto fill = [&]() -> Result<void> {
    // Before its user can lock it.
    TRY_ASSIGN(FileLock lock, FileLock::acquire(std::move(file), FileLock::Kind::exclusive, kWithoutWaiting, path));
    TRY(let_user_read(lock.fd(), user_));
    TRY(write_all(lock.fd(), bytes));
    if (renameat(directory.get(), temporary.c_str(), directory.get(), name_.c_str()) != 0)
      return fail_errno(errno, "rename " + path + "/" + temporary);
    file_ = std::move(lock);
    return {};
  };
  if (auto filled = fill(); !filled) {
    (void)unlinkat(directory.get(), temporary.c_str(), 0);
    return filled;
  }
  keep_latest(directory.get(), path);
  return {};
}

void remove_old_records(const std::string& directory) {
  const int64_t now = std::time(nullptr);
  for (const std::string& user : list_directory(directory).value_or(std::vector<std::string>())) {
    const std::string path = directory + "/" + user;
    const auto opened = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!opened) continue;
    for (const Written& record : records_in(opened->get(), path))
      if (record.when.tv_sec + RecordFile::kLongest < now && !is_being_written(opened->get(), record.name))
        (void)unlinkat(opened->get(), record.name.c_str(), 0);
  }
}

}  // namespace situla
