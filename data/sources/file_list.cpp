// Walks folders with stat and directory iterators; each unusual entry is an Error that names it.
#include "data/sources/file_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "sharding/base/fail.h"

namespace tessera::data {

namespace {

namespace fs = std::filesystem;
using FolderId = std::pair<dev_t, ino_t>;

[[noreturn]] void bad_path(const std::string& path, const std::string& what) {
  fail(ErrorKind::invalid_file, "open", path + ": " + what);
}

struct stat status_of(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) return status;
  const std::string reason = std::strerror(errno);
  struct stat link;
  if (::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode))
    bad_path(path, fmt::format("a broken symbolic link ({}); repair or remove it", reason));
  bad_path(path, reason + "; expected a file or a folder that can be read, check the spelling and the working folder");
}

class Lister {
 public:
  explicit Lister(std::vector<std::string> extensions) : extensions_(std::move(extensions)) {
    for (auto& extension : extensions_) {
      if (!extension.starts_with('.')) extension = "." + extension;
    }
  }

  void add(const std::string& path) {
    const auto status = status_of(path);
    if (!S_ISDIR(status.st_mode)) return add_file(path, status);
    const size_t begin = files_.size();
    visited_.clear();
    add_folder(path, status);
    if (files_.size() == begin) bad_path(path, nothing_found());
    std::sort(files_.begin() + begin, files_.end(), [](auto& a, auto& b) { return a.path < b.path; });
  }

  std::vector<FileEntry> take() { return std::move(files_); }

 private:
  bool wanted(const std::string& path) const {
    return extensions_.empty() ||
           std::any_of(extensions_.begin(), extensions_.end(), [&](auto& end) { return path.ends_with(end); });
  }

  std::string nothing_found() const {
    if (extensions_.empty()) return "a folder without any file, expected at least one";
    return fmt::format("no file ends in {}; give other extensions, or none to take every file",
                       fmt::join(extensions_, " "));
  }

  void add_file(const std::string& path, const struct stat& status) {
    if (!S_ISREG(status.st_mode)) {
      bad_path(path, "neither a file nor a folder (a socket, pipe or device); move it away or filter by extension");
    }
    files_.push_back({path, static_cast<int64_t>(status.st_size)});
  }

  void add_folder(const std::string& path, const struct stat& status) {
    const FolderId id{status.st_dev, status.st_ino};
    if (std::find(above_.begin(), above_.end(), id) != above_.end()) {
      bad_path(path, "a symbolic link to a folder that holds it, which has no end; remove the link");
    }
    if (!visited_.insert(id).second) return;  // otherwise two links per level would double the walk at each level
    above_.push_back(id);
    for (const auto& child : children(path)) add_child(child);
    above_.pop_back();
  }

  void add_child(const fs::directory_entry& child) {
    const std::string path = child.path().string();
    std::error_code ignored;
    if (!child.is_directory(ignored) && !wanted(path)) return;
    const auto status = status_of(path);
    S_ISDIR(status.st_mode) ? add_folder(path, status) : add_file(path, status);
  }

  static std::vector<fs::directory_entry> children(const std::string& path) {
    std::error_code error;
    std::vector<fs::directory_entry> entries;
    for (auto it = fs::directory_iterator(path, error); !error && it != fs::directory_iterator(); it.increment(error)) {
      entries.push_back(*it);
    }
    if (error) bad_path(path, error.message() + "; the folder must be readable");
    std::sort(entries.begin(), entries.end());
    return entries;
  }

  std::vector<std::string> extensions_;
  std::vector<FolderId> above_;  // the current folder and the folders above it
  std::set<FolderId> visited_;   // below the given path
  std::vector<FileEntry> files_;
};

}  // namespace

std::vector<FileEntry> list_files(const std::vector<std::string>& paths, const std::vector<std::string>& extensions) {
  if (paths.empty()) fail(ErrorKind::invalid_argument, "open", "no paths given, expected at least one file or folder");
  Lister lister(extensions);
  for (const auto& path : paths) lister.add(path);
  return lister.take();
}

std::string detail::describe_files(size_t files, int64_t bytes, uint64_t hash) {
  return fmt::format("{} file{}, {} bytes, {:08x}", files, files == 1 ? "" : "s", bytes,
                     static_cast<uint32_t>(hash ^ (hash >> 32)));
}

}  // namespace tessera::data
