// Reports: a page of what a run took and did, memory, and meshes side by side.
#pragma once

#include "nn/report/compare_meshes.h"
#include "nn/report/memory_report.h"
#include "nn/report/report.h"
