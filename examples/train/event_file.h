// EventFile: scalars over the steps of a run, in the file that TensorBoard reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/train/output_file.h"

namespace tessera::train {

// Written to <folder>/events.out.tfevents.<seconds since 1970>.<host>.<process id>; `tensorboard --logdir <folder>`
// shows it, even while it grows. A further run in the same folder makes a further file, and TensorBoard draws both as
// one run.
//
// Sources: the framing is TensorFlow's lib/io/record_writer.h, the messages its util/event.proto and
// framework/summary.proto.
class EventFile {
 public:
  using Scalars = std::vector<std::pair<std::string_view, double>>;  // tag, value; kept as float

  // Makes the folder, too. Error (invalid_file): as OutputFile, or the folder cannot be made.
  explicit EventFile(const std::string& folder);

  // One event, stamped with the time of the call.
  void write(int64_t step, const Scalars& scalars);

 private:
  void append(const std::string& event);

  OutputFile file_;
};

// A record of a TFRecord file: the data's length (uint64), the masked crc of these eight bytes (uint32), the data, and
// its masked crc; all little-endian.
std::string tf_record(std::string_view data);

// CRC-32C (Castagnoli), as in RFC 3720: "123456789" gives 0xe3069283.
uint32_t crc32c(std::string_view bytes);

}  // namespace tessera::train
