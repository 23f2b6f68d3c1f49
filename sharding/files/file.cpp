// POSIX file calls, whose failures throw Errors with advice.
#include "sharding/files/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sharding/base/fail.h"

namespace tessera {
namespace {

std::string_view advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "Free some space, or give a folder on another disk.";
    case EFBIG:
      return "Raise the limit on the size of files (ulimit -f), or lower the size of one file.";
    case EACCES:
    case EPERM:
      return "Change its permissions, or give another folder.";
    case EROFS:
      return "Give a folder that can be written to.";
    case ENOENT:
    case ENOTDIR:
      return "Check the path.";
    case EIO:
      return "The disk is failing: check it.";
    case ELOOP:
      return "Remove the link, or give another path: a link is not written through.";
    case EMFILE:
    case ENFILE:
      return "Close files, or raise the limit on how many are open (ulimit -n).";
    default:
      return "Check the path and the disk.";
  }
}

[[noreturn]] void refuse_path(const std::filesystem::path& path, std::string_view what, int error, const char* verb) {
  fail(ErrorKind::invalid_file, verb, "{}: {} ({}). {}", path.string(), what, std::strerror(error), advice(error));
}

[[noreturn]] void refuse_to_replace(const std::filesystem::path& path, const char* verb) {
  fail(ErrorKind::invalid_file, verb, "{}: this is not a regular file, and a file cannot replace it. Check the path.",
       path.string());
}

// Repeats a call that a signal interrupted.
template <class Call>
auto again(Call call) {
  decltype(call()) result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

// Uses O_NONBLOCK, because a pipe without a writer would block the call.
File File::try_open(const std::filesystem::path& path, const char* verb) {
  File file(-1, path, verb);
  file.fd_ = again([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); });
  return file;
}

File File::open(const std::filesystem::path& path, const char* verb) {
  File file = try_open(path, verb);
  if (!file.is_open()) file.refuse("it cannot be opened", errno);
  return file;
}

// Uses O_NOFOLLOW, because in a folder that others can write to, a symbolic link may lead anywhere.
File File::writable(const std::filesystem::path& path, int flags, const char* verb) {
  File file(-1, path, verb);
  file.fd_ = again([&] { return ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0666); });
  if (!file.is_open()) file.refuse("it cannot be written to", errno);
  return file;
}
File File::create(const std::filesystem::path& path, const char* verb) {
  struct stat there = {};
  if (::lstat(path.c_str(), &there) == 0) {
    if (!S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode)) refuse_to_replace(path, verb);
    if (::unlink(path.c_str()) != 0) refuse_path(path, "it cannot be replaced", errno, verb);
  }
  return writable(path, O_CREAT | O_EXCL, verb);
}
File File::modify(const std::filesystem::path& path, const char* verb) { return writable(path, 0, verb); }

File File::lock(const std::filesystem::path& path, const char* verb) {
  File file = writable(path, O_CREAT, verb);
  if (again([&] { return ::flock(file.fd_, LOCK_EX | LOCK_NB); }) == 0) {
    struct stat there = {};
    const bool is_same = ::stat(path.c_str(), &there) == 0 && there.st_ino == file.status().st_ino;
    return is_same ? std::move(file) : lock(path, verb);  // its last holder may have renamed it
  }
  if (errno == EWOULDBLOCK)
    fail(ErrorKind::invalid_file, verb,
         "{}: another run saves here. Give each run its own folder, or wait for the other to end.",
         path.parent_path().string());
  refuse_path(path, "it cannot be locked", errno, verb);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), verb_(other.verb_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(verb_, other.verb_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::refuse(std::string_view what, int error) const { refuse_path(path_, what, error, verb_); }

void File::write_at(std::span<const std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t n = again([&] { return ::pwrite(fd_, bytes.data(), bytes.size(), offset); });
    if (n <= 0) refuse("it cannot be written to", n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

void File::read_at(std::span<std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t n = again([&] { return ::pread(fd_, bytes.data(), bytes.size(), offset); });
    if (n < 0) refuse("it cannot be read", errno);
    if (n == 0)
      fail(ErrorKind::invalid_file, verb_,
           "{}: it ends at byte {}, {} more were expected. Was it truncated or replaced meanwhile?", path_.string(),
           offset, bytes.size());
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

int64_t File::size() const { return status().st_size; }

bool File::is_regular() const { return S_ISREG(status().st_mode); }

struct stat File::status() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) refuse("its size is not known", errno);
  return status;
}

std::shared_ptr<const void> File::map(size_t size) const {
  void* begin = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (begin == MAP_FAILED) return nullptr;
  return {begin, [size](void* map) { ::munmap(map, size); }};
}

void File::reserve(int64_t size) const {
  if (again([&] { return ::ftruncate(fd_, size); }) != 0) refuse("it cannot be resized", errno);
  if (size == 0 || again([&] { return ::fallocate(fd_, 0, 0, size); }) == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
    refuse(fmt::format("there is no space for its {} bytes", size), errno);
}

void File::flush(int64_t offset, int64_t size) const {
  ::sync_file_range(fd_, offset, size, SYNC_FILE_RANGE_WRITE);  // only a hint: sync() reports failures
}

void File::sync() const {
  if (again([&] { return ::fsync(fd_); }) != 0) refuse("it cannot be flushed to the disk", errno);
}

std::string read_text(const std::filesystem::path& path, const char* verb, int64_t most) {
  const File file = File::open(path, verb);
  if (!file.is_regular())
    fail(ErrorKind::invalid_file, verb, "{}: this is not a regular file. Check the path.", path.string());
  const int64_t size = file.size();
  if (size > most)
    fail(ErrorKind::invalid_file, verb, "{}: {} bytes, expected at most {}. Is it the right file?", path.string(), size,
         most);
  std::string text(static_cast<size_t>(size), '\0');
  file.read_at(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

void check_replaceable(const std::filesystem::path& path, std::string_view beginning, std::string_view kind,
                       const char* verb) {
  struct stat there = {};
  if (::lstat(path.c_str(), &there) != 0) return;
  std::error_code unknown;
  std::string found;
  if (std::filesystem::is_regular_file(path, unknown)) {
    const File file = File::open(path, verb);
    if (file.size() == 0) return;
    found.resize(std::min(beginning.size(), static_cast<size_t>(file.size())));
    file.read_at(std::as_writable_bytes(std::span(found)), 0);
  }
  if (found != beginning)
    fail(ErrorKind::invalid_file, verb, "{}: it is there and not {}. Delete it, or give another name.", path.string(),
         kind);
}

void write_text(const std::filesystem::path& path, std::string_view text, const char* verb) {
  const std::filesystem::path partial = path.string() + ".partial";
  struct stat there = {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) refuse_to_replace(path, verb);  // also /dev/stdout
  try {
    const File file = File::create(partial, verb);
    file.write_at(std::as_bytes(std::span(text)), 0);
    file.sync();
    move_into_place(partial, path, verb);
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
}

void make_folder(const std::filesystem::path& path, const char* verb) {
  if (::mkdir(path.c_str(), 0777) != 0) refuse_path(path, "this folder cannot be made", errno, verb);
}

void make_folders(const std::filesystem::path& path, const char* verb) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    fail(ErrorKind::invalid_file, verb, "{}: this folder cannot be made ({}). Give a folder that can be written to.",
         path.string(), error.message());
}

void remove_all(const std::filesystem::path& path, const char* verb) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error)
    fail(ErrorKind::invalid_file, verb, "{}: it cannot be removed ({}). Remove it by hand.", path.string(),
         error.message());
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}
bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

void check_writable_folder(const std::filesystem::path& folder, const char* verb) {
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    refuse_path(folder, "it cannot be written to", errno, verb);
}

// Does not use std::filesystem::directory_iterator, which terminates the program when memory runs out (libstdc++ 12).
std::vector<std::string> names_in(const std::filesystem::path& folder, const char* verb) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open) refuse_path(folder, "this folder cannot be listed", errno, verb);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (!entry && errno != 0) refuse_path(folder, "this folder cannot be listed", errno, verb);
    if (!entry) return names;
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  }
}

void sync_folder(const std::filesystem::path& path, const char* verb) { File::open(path, verb).sync(); }

void move_into_place(const std::filesystem::path& from, const std::filesystem::path& to, const char* verb) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    refuse_path(to, fmt::format("{} cannot be renamed to it", from.filename().string()), errno, verb);
  const std::filesystem::path folder = to.parent_path();
  sync_folder(folder.empty() ? "." : folder, verb);
}

}  // namespace tessera
