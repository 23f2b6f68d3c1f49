// File: an open file that is read and written at offsets, from any thread; and durable changes to folders.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Every failure is an Error (invalid_file) "[verb] path: what the system says. What to do"; `verb` says who wants the
// file. Only try_open and map leave the words to their caller.
class File {
 public:
  File() = default;                                                         // none
  static File open(const std::filesystem::path& path, const char* verb);    // to read
  // To write. A new file: one that was there is removed, and a symbolic link itself rather than the file it leads to.
  static File create(const std::filesystem::path& path, const char* verb);
  static File modify(const std::filesystem::path& path, const char* verb);  // to write into one that is there
  // As open; where that fails the File is not open, and errno says why.
  static File try_open(const std::filesystem::path& path, const char* verb);
  // Opens a lock file, which one process of a machine holds at a time; the lock ends with the File or with the process,
  // however that ends. Makes the file if it is missing; an Error if another process holds it.
  static File lock(const std::filesystem::path& path, const char* verb);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  void write_at(std::span<const std::byte> bytes, int64_t offset) const;
  // Fills `bytes`; a file that ends earlier is an Error.
  void read_at(std::span<std::byte> bytes, int64_t offset) const;
  int64_t size() const;
  bool is_regular() const;
  // The first `size` bytes, mapped to memory until the last copy goes, which may outlive the File. Null if that fails
  // or `size` is 0, and errno says why. Bytes that the file does not have, or that a failing disk does not give, end
  // the process when they are read (SIGBUS).
  std::shared_ptr<const void> map(size_t size) const;

  // Sets the file's size and, where the filesystem can, allocates its space, so that a full disk is noticed at once.
  void reserve(int64_t size) const;
  // Asks the system to begin writing these bytes to the disk, without waiting.
  void flush(int64_t offset, int64_t size) const;
  // Waits until all that was written is on the disk.
  void sync() const;

  const std::filesystem::path& path() const { return path_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  File(int fd, std::filesystem::path path, const char* verb) : fd_(fd), path_(std::move(path)), verb_(verb) {}
  static File writable(const std::filesystem::path& path, int flags, const char* verb);
  struct stat status() const;
  [[noreturn]] void refuse(std::string_view what, int error) const;

  int fd_ = -1;
  std::filesystem::path path_;
  const char* verb_ = "";
};

// The file's whole text. Error (invalid_file) if it is missing, not a regular file, or larger than `most` bytes: by
// default 64 MiB, several times the largest manifest in use.
std::string read_text(const std::filesystem::path& path, const char* verb, int64_t most = int64_t{1} << 26);

// Creates or replaces a file, which is written as path.partial first, so that a reader finds the old text or the new
// one. Waits until it is on the disk.
void write_text(const std::filesystem::path& path, std::string_view text, const char* verb);

// Makes a folder. It must not exist yet, and its parent must.
void make_folder(const std::filesystem::path& path, const char* verb);

// Removes a file, or a folder and all in it; a path that does not exist is no Error.
void remove_all(const std::filesystem::path& path, const char* verb);

// Whether something, or a folder, is at the path. No where the system does not say: who opens it then is told why.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// The names in a folder, without . and .., in any order. An Error (invalid_file) if it cannot be listed to its end.
std::vector<std::string> names_in(const std::filesystem::path& folder, const char* verb);

// Error (invalid_file) if this process may not create files in the folder.
void check_writable_folder(const std::filesystem::path& folder, const char* verb);

// Waits until the names in the folder are on the disk.
void sync_folder(const std::filesystem::path& path, const char* verb);

// Renames within one folder, atomically, and waits until that is on the disk. A folder replaces only an empty folder.
void move_into_place(const std::filesystem::path& from, const std::filesystem::path& to, const char* verb);

}  // namespace tessera
