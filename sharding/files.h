// Files: reading and writing safetensors, JSON and text files, and checksums.
#pragma once

#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/safetensors.h"
#include "sharding/files/safetensors_writer.h"
