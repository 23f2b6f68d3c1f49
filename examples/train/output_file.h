// The files that a training writes: one that grows while others read it, and one that is replaced whole.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace tessera::train {

// A file that starts empty, or with what it has. Readers see appended bytes at once. Error (bad_file) "[metrics] path:
// ...", here and below: the file cannot be written.
class OutputFile {
 public:
  enum class Start { empty, as_it_is };
  explicit OutputFile(const std::string& path, Start start = Start::empty);

  void append(std::string_view bytes);

 private:
  std::string path_;
  std::ofstream file_;
};

// Replaces the file `path` by `bytes`, written to path.partial first, so that a reader finds the whole old file or the
// whole new one. Anything at `path` that is not a regular file (a device, a folder) is an error.
void replace_file(const std::string& path, std::string_view bytes);

}  // namespace tessera::train
