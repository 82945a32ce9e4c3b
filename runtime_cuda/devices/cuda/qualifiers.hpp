// How functions that kernels call are declared.
#pragma once

#include <cuda_runtime.h>

#define ATLASC_DEVICE __host__ __device__
