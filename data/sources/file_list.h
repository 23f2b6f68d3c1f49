// list_files: expands folders, filters by extension, and lists files in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

// A regular file and its size in bytes at the time of listing.
struct FileEntry {
  std::string path;
  int64_t size = 0;
};

// Lists the files of `paths` in the given order. Files below a folder (at any depth) are sorted by the bytes of their
// paths. So the list is the same on every machine that holds the same files.
//
// A path of a file is listed without a filter. Below a folder `extensions` decides: {".h", ".cuh"} selects names that
// end in one of these (the dot is optional); an empty list selects every file, also hidden ones. Every file that passes
// the filter is listed, also an empty one. A path given twice is listed twice.
//
// Symbolic links are followed, also out of the folder, because the caches of model hubs consist of links. Check the
// links of a folder that you do not trust. If several links below a path lead to one folder, it is listed once. Its
// first path in the order of the walk, which is by name, counts.
//
// Errors
//   invalid_file, which names the path: it does not exist (or is a broken link), cannot be read, is neither file nor
//     folder (a socket, a pipe, a device), is a link back to a folder that contains it, or is a folder in which no file
//     has a listed extension
//   invalid_argument: no paths
std::vector<FileEntry> list_files(const std::vector<std::string>& paths, const std::vector<std::string>& extensions);

namespace detail {
// Returns "3 files, 1024 bytes, 1f00a3c2": the text for files in saved states.
std::string describe_files(size_t files, int64_t bytes, uint64_t hash);
}  // namespace detail

}  // namespace tessera::data
