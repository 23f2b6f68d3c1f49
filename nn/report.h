// Reports: an HTML page about a run, the memory of a step, a comparison of meshes, and the layouts that fit best.
#pragma once

#include "nn/report/compare_meshes.h"
#include "nn/report/measure_hardware.h"
#include "nn/report/memory_report.h"
#include "nn/report/report.h"
#include "nn/report/step_forecast.h"
#include "nn/report/suggest_layouts.h"
