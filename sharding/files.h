// Files: the safetensors format, read and written.
#pragma once

#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/safetensors.h"
#include "sharding/files/safetensors_writer.h"
