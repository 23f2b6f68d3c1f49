// Writes inputs to files in memory, for readers that take a path.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tessera::fuzz {

// A folder that is deleted when the process ends.
inline const std::filesystem::path& scratch_folder() {
  static const struct Folder {
    std::filesystem::path path;
    Folder() {
      std::string name = "/dev/shm/tessera_fuzz_XXXXXX";
      if (!::mkdtemp(name.data())) std::abort();
      path = name;
    }
    ~Folder() { std::filesystem::remove_all(path); }
  } folder;
  return folder.path;
}

inline std::string scratch_file(const std::string& name, std::string_view bytes) {
  const std::string path = scratch_folder() / name;
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) std::abort();
  return path;
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace tessera::fuzz
