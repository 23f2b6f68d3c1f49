// A stream that is flushed at once.
#include "examples/train/output_file.h"

#include <tessera/sharding/base.h>

namespace tessera::train {

OutputFile::OutputFile(const std::string& path, Start start)
    : path_(path), file_(path, std::ios::binary | (start == Start::empty ? std::ios::trunc : std::ios::app)) {
  if (!file_) fail(ErrorKind::invalid_file, "metrics", path_ + ": the file cannot be written. Check its folder.");
}

void OutputFile::append(std::string_view bytes) {
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  if (!file_) fail(ErrorKind::invalid_file, "metrics", path_ + ": the file cannot be written. Is the disk full?");
}

}  // namespace tessera::train
