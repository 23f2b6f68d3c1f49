// Streams that are flushed at once, and a rename.
#include "examples/train/output_file.h"

#include <filesystem>
#include <span>
#include <system_error>

#include "sharding/diagnostics.h"
#include "sharding/files.h"

namespace tessera::train {

OutputFile::OutputFile(const std::string& path, Start start)
    : path_(path), file_(path, std::ios::binary | (start == Start::empty ? std::ios::trunc : std::ios::app)) {
  if (!file_) fail(ErrorKind::bad_file, "metrics", path_ + ": the file cannot be written. Check its folder.");
}

void OutputFile::append(std::string_view bytes) {
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  if (!file_) fail(ErrorKind::bad_file, "metrics", path_ + ": the file cannot be written. Is the disk full?");
}

void replace_file(const std::string& path, std::string_view bytes) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    fail(ErrorKind::bad_file, "metrics", path + ": it is there and is no regular file. Name a file.");
  const std::string partial = path + ".partial";
  File::create(partial, "metrics").write_at(std::as_bytes(std::span(bytes)), 0);
  std::filesystem::rename(partial, path, error);
  if (error) fail(ErrorKind::bad_file, "metrics", path + ": the file cannot be written: " + error.message() + ".");
}

}  // namespace tessera::train
