// File: reads and writes at offsets, from any thread. Also durable changes to folders, and checksums.
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

// An open file. Each failure throws invalid_file: "[verb] path: the system's message. Advice." `verb` names the
// function that uses the file. After try_open and map, the caller writes the message.
class File {
 public:
  File() = default;                                                       // not open
  static File open(const std::filesystem::path& path, const char* verb);  // for reading
  // Creates a file for writing. An existing file is removed first; for a symbolic link, the link itself.
  static File create(const std::filesystem::path& path, const char* verb);
  static File modify(const std::filesystem::path& path, const char* verb);  // for writing into an existing file
  // Opens a file for reading, as open() does. On failure returns a File that is not open, and sets errno.
  static File try_open(const std::filesystem::path& path, const char* verb);
  // Opens a lock file, which one process of a machine can hold at a time. The lock ends with the File or with the
  // process, however that ends. Creates the file if it is missing. Throws if another process holds it.
  static File lock(const std::filesystem::path& path, const char* verb);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  void write_at(std::span<const std::byte> bytes, int64_t offset) const;
  // Fills `bytes`. Throws if the file ends earlier.
  void read_at(std::span<std::byte> bytes, int64_t offset) const;
  int64_t size() const;
  bool is_regular() const;
  // Maps the first `size` bytes to memory, until the last copy of the pointer is destroyed, which may outlive the File.
  // Returns null and sets errno if that fails or `size` is 0. If the file is too short or the disk fails, reading these
  // bytes terminates the process (SIGBUS).
  std::shared_ptr<const void> map(size_t size) const;

  // Sets the file's size and, if the filesystem can, allocates its space, so that a full disk is detected immediately.
  void reserve(int64_t size) const;
  // Asks the system to start writing these bytes to the disk, without waiting.
  void flush(int64_t offset, int64_t size) const;
  // Waits until all written data is on the disk.
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

// Returns the text of the file. Throws invalid_file if it is missing, not a regular file, or larger than `most` bytes.
// The default is 64 MiB, several times the largest manifest in use.
std::string read_text(const std::filesystem::path& path, const char* verb, int64_t most = int64_t{1} << 26);
inline constexpr int64_t max_tokenizer_bytes = int64_t{1} << 30;  // for the files of a tokenizer

// A Git LFS pointer is the content of a file that Git LFS has not downloaded. It begins with this text.
inline constexpr std::string_view git_lfs_begin = "version https://git-lfs";
inline constexpr std::string_view git_lfs_advice =
    "this is a pointer of Git LFS, not the file itself. Run in its folder: git lfs pull";

// Throws invalid_file if a file of another kind is at the path: one that is not empty and does not begin with
// `beginning`, or not a regular file. `kind` is "a GGUF file", for the message.
void check_replaceable(const std::filesystem::path& path, std::string_view beginning, std::string_view kind,
                       const char* verb);

// Creates or replaces a file. Writes path.partial first and renames it, so that readers see the old text or the new
// one. Waits until it is on the disk.
void write_text(const std::filesystem::path& path, std::string_view text, const char* verb);

// Creates a folder, which must not exist yet. Its parent must exist.
void make_folder(const std::filesystem::path& path, const char* verb);
// Creates a folder and its missing parents. Existing folders are kept.
void make_folders(const std::filesystem::path& path, const char* verb);

// Removes a file, or a folder with its contents. Does nothing if the path does not exist.
void remove_all(const std::filesystem::path& path, const char* verb);

// Return whether anything, or a folder, exists at the path. If this cannot be determined, return false: opening the
// path then throws the reason.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// Returns the names in a folder, without . and .., in any order. Throws invalid_file if it cannot be listed completely.
std::vector<std::string> names_in(const std::filesystem::path& folder, const char* verb);

// Throws invalid_file if this process may not create files in the folder.
void check_writable_folder(const std::filesystem::path& folder, const char* verb);

// Waits until the names in the folder are on the disk.
void sync_folder(const std::filesystem::path& path, const char* verb);

// Renames within one folder, atomically, and waits until that is on the disk. A folder can only replace an empty
// folder.
void move_into_place(const std::filesystem::path& from, const std::filesystem::path& to, const char* verb);

// Returns the CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `bytes`, continued from the CRC `before` of preceding
// bytes: crc32c(ab) = crc32c(b, crc32c(a)). It detects each burst of up to 32 wrong bits.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// Returns the CRC-32C of `size` zero bytes. A CRC is affine in its bytes: for a and b of one size, crc32c(a ^ b) =
// crc32c(a) ^ crc32c(b) ^ crc32c_of_zeros(size). So processes that write parts of a chunk, each with zeros elsewhere,
// can combine their checksums without exchanging bytes.
uint32_t crc32c_of_zeros(size_t size);

}  // namespace tessera
