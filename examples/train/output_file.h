// OutputFile: a file that grows while others read it.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace tessera::train {

// A file that starts empty, or with what it has. Readers see appended bytes at once. Error (invalid_file) "[metrics]
// path:
// ...": the file cannot be written.
class OutputFile {
 public:
  enum class Start { empty, as_it_is };
  explicit OutputFile(const std::string& path, Start start = Start::empty);

  void append(std::string_view bytes);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace tessera::train
