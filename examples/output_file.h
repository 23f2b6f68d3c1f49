// The files that a training writes: one that grows while others read it, and one that is replaced whole.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace tessera::examples {

// A file that starts empty, or as it is. What was appended is there for readers at once.
// Error (bad_file) "[metrics] path: ...", here and below: the file cannot be written.
class OutputFile {
 public:
  enum class Start { empty, as_it_is };
  explicit OutputFile(const std::string& path, Start start = Start::empty);

  void append(std::string_view bytes);

 private:
  std::string path_;
  std::ofstream file_;
};

// Puts `bytes` where `path` says by way of path.partial, so that a reader finds the old file or the new one, whole.
// What is there and is no regular file (a device, a folder) is refused, since it would be replaced.
void replace_file(const std::string& path, std::string_view bytes);

}  // namespace tessera::examples
