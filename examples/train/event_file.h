// OutputFile: a file that others read while it grows. EventFile: scalars over steps in TensorBoard's format.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::train {

// A file that starts empty, or with its present content. Readers see appended bytes at once. Error (invalid_file): the
// file cannot be written.
class OutputFile {
 public:
  enum class Start { empty, as_it_is };
  explicit OutputFile(const std::string& path, Start start = Start::empty);

  void append(std::string_view bytes);
  // Waits until all appended bytes are on the disk, if the file is on one.
  void sync() const;

 private:
  std::string path_;
  std::ofstream file_;
};

// Writes <folder>/events.out.tfevents.<seconds since 1970>.<host>.<process id>. `tensorboard --logdir <folder>`
// shows it, also while it grows. Another run in the same folder makes another file, and TensorBoard draws both as
// one run.
//
// Sources: the framing is TensorFlow's lib/io/record_writer.h, the messages its util/event.proto and
// framework/summary.proto.
class EventFile {
 public:
  using Scalars = std::vector<std::pair<std::string_view, double>>;  // tag, value; kept as float

  // Also makes the folder. Error (invalid_file): as OutputFile, or the folder cannot be made.
  explicit EventFile(const std::string& folder);

  // Writes one event with the time of the call.
  void write(int64_t step, const Scalars& scalars);

 private:
  void append(const std::string& event);

  OutputFile file_;
};

// A record of a TFRecord file: the data's length (uint64), the masked crc of these eight bytes (uint32), the data, and
// its masked crc; all little-endian.
std::string tf_record(std::string_view data);

}  // namespace tessera::train
