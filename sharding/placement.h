// Umbrella header of placement: meshes, specs, shardings, mesh rules, and the functions that place arrays by them.
#pragma once

#include "sharding/placement/axis.h"
#include "sharding/placement/dtype.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_rules.h"
#include "sharding/placement/named_sharding.h"
#include "sharding/placement/partition_spec.h"
#include "sharding/placement/shape.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/redistribution/redistribute.h"
