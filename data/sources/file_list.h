// list_files: the files that a list of paths stands for, with folders expanded, filtered and put in a fixed order.
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

// The files that `paths` stand for: the paths in the order given, and the files below a folder (at any depth) sorted by
// the bytes of their paths, so the list is the same on every machine that holds the same files.
//
// A path that names a file is taken as it is. Below a folder `extensions` decides: {".h", ".cuh"} takes the names that
// end so (the dot may be left out), an empty list takes every file, hidden ones too. Every file that passes the filter
// is listed, empty files too. Symbolic links are followed, also out of the folder, because the caches of model hubs
// consist of links. Check the links of a folder that you do not trust. A folder below a path that several links lead
// to is listed once, under the first of its paths in the order of the walk, which is by names. A path given twice is
// listed twice.
//
// Errors (invalid_file), each naming the path: it does not exist (or is a link to nothing), may not be read, is neither
// file nor folder (a socket, a pipe, a device), is a link back to a folder that holds it, or is a folder in which no
// file has a wanted extension. Error (invalid_argument): no paths.
std::vector<FileEntry> list_files(const std::vector<std::string>& paths, const std::vector<std::string>& extensions);

namespace detail {
// "3 files, 1024 bytes, 1f00a3c2": the text for files in saved states.
std::string describe_files(size_t files, int64_t bytes, uint64_t hash);
}  // namespace detail

}  // namespace tessera::data
