// Files: the safetensors format, read and written, and checksums of bytes.
#pragma once

#include "sharding/files/crc32c.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/safetensors.h"
#include "sharding/files/safetensors_writer.h"
