// Reports: an HTML page about a run, the memory and the time of a step, and a comparison of meshes.
#pragma once

#include "nn/report/compare_meshes.h"
#include "nn/report/memory_report.h"
#include "nn/report/profile.h"
#include "nn/report/report.h"
